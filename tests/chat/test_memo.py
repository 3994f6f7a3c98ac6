"""A bounded cache: computes once, forgets what was not used for longest."""

from __future__ import annotations

from causerie.chat.memo import Memo


def fail() -> int:
    raise AssertionError("it should have been remembered")


def test_computes_once() -> None:
    memo: Memo[int] = Memo(10)
    assert memo.get("a", 3, lambda: 1) == 1
    assert memo.get("a", 3, fail) == 1


def test_also_what_is_none() -> None:
    memo: Memo[int | None] = Memo(10)
    assert memo.get("a", 3, lambda: None) is None
    assert memo.get("a", 3, fail) is None


def test_forgets_the_least_recently_used() -> None:
    memo: Memo[int] = Memo(10)
    for key in "abc":
        memo.get(key, 3, lambda: 1)
    memo.get("a", 3, fail)
    memo.get("d", 3, lambda: 1)
    assert memo.get("b", 3, lambda: 2) == 2
    assert memo.get("a", 3, fail) == 1


def test_does_not_keep_what_is_larger_than_all_its_room() -> None:
    memo: Memo[int] = Memo(10)
    memo.get("a", 3, lambda: 1)
    memo.get("big", 11, lambda: 1)
    assert memo.get("a", 3, fail) == 1
    assert memo.get("big", 11, lambda: 2) == 2


def test_replaces() -> None:
    memo: Memo[int] = Memo(10)
    memo.put("a", 8, 1)
    memo.put("a", 9, 2)
    assert memo.get("a", 9, fail) == 2
    assert len(memo) == 1
