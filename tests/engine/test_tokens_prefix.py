"""The longest common prefix of two sequences of token ids."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.engine.tokens_prefix import common_prefix_length

KINDS: list[Any] = [
    list,
    tuple,
    lambda ids: np.array(ids, np.int32),
    lambda ids: np.array(ids, np.int64),
    lambda ids: array.array("i", ids),
]
ids = st.lists(st.integers(0, 2), max_size=8)


def naive(a: list[int], b: list[int]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


@settings(deadline=None, max_examples=150)
@given(ids, ids, ids, st.integers(0, 40), st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_every_kind_of_sequence_gives_the_plain_answer(
    common: list[int], a: list[int], b: list[int], repeat: int, kind_a: Any, kind_b: Any
) -> None:
    a, b = common * repeat + a, common * repeat + b
    assert common_prefix_length(kind_a(a), kind_b(b)) == naive(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_is_found_at_every_place(kind: Any) -> None:
    base = list(range(300))
    for place in range(300):
        other = base.copy()
        other[place] = -1
        assert common_prefix_length(kind(base), kind(other)) == place


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_and_a_part_and_itself(kind: Any) -> None:
    some = kind(range(100))
    assert common_prefix_length(kind([]), some) == 0
    assert common_prefix_length(some, kind(range(70))) == 70
    assert common_prefix_length(some, some) == 100


def test_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        common_prefix_length(np.zeros((2, 2), np.int32), [0])
