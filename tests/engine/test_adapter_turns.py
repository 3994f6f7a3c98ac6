"""Sets of adapters take turns: who is next, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from causerie.engine import Adapter
from causerie.engine._turns import TURN, Turns


def generations(*sets: int) -> list[Any]:
    class Fake:
        def __init__(self, number: int) -> None:
            self.sequence = self
            self.adapters = (Adapter("x", number, "f"),) if number else ()

    return [Fake(number) for number in sets]


def test_one_set_needs_no_turns() -> None:
    active = generations(0, 0)
    turns = Turns()
    assert turns.groups(active) == [active]
    turns.begin(())
    assert turns.all_in(2, active)
    assert not turns.all_in(1, active)


def test_the_longest_waiting_is_next() -> None:
    now = [0.0]
    active = generations(0, 1, 0, 2)
    turns = Turns(lambda: now[0])
    order = []
    for _ in range(6):
        group = turns.groups(active)[0]
        turns.begin(group[0].adapters)
        order.append(group[0].adapters[0].scale if group[0].adapters else 0)
        assert turns.groups(active)[0] == group  # for a while
        assert turns.all_in(len(group), active)
        now[0] += 1
        assert not turns.all_in(len(group), active)
    assert order == [0, 1, 2, 0, 1, 2]


def test_nobody_comes_before_those_who_wait() -> None:
    now = [0.0]
    turns = Turns(lambda: now[0])
    waiting, *others = generations(1, 2, 3)
    turns.begin(waiting.adapters)
    for k in range(6):  # two that end within their turns, and come back
        active = [waiting, others[k % 2]]
        now[0] += 1
        turns.groups(active)
        group = turns.groups(active)[0]
        turns.begin(group[0].adapters)
        if group[0] is waiting and k:
            return
    pytest.fail("it never had another turn")


def test_the_change_is_not_counted() -> None:
    now = [0.0]
    active = generations(0, 1)
    turns = Turns(lambda: now[0])
    turns.begin(active[1].adapters)
    now[0] += 10 * TURN  # the first step
    assert turns.groups(active)[0] == [active[1]]
    now[0] += 0.9 * TURN
    assert turns.all_in(1, active)
    now[0] += 0.2 * TURN
    assert turns.groups(active)[0] == [active[0]]
