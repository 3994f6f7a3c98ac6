"""Of all threads that wait one runs the steps; nobody is forgotten, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from causerie.engine._leadership import Leadership
from causerie.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """Counts steps; each one is done when there were so many."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.steps = 0
        self.inside = 0
        self.seconds = seconds
        self.items: list[Any] = []
        self.leadership = Leadership(self.step, lambda: None, lambda: None)

    def step(self) -> None:
        self.inside += 1
        assert self.inside == 1
        time.sleep(self.seconds)
        self.steps += 1
        self.inside -= 1
        with self.leadership.lock:
            for item in self.items:
                for listener in tuple(item.listeners):
                    listener()

    def item(self) -> Any:
        item = SimpleNamespace(listeners=[])
        self.items.append(item)
        return item


def run(*functions: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "somebody waits for ever"
    if failures:
        raise failures[0]


def test_all_get_there_and_one_leads_at_a_time() -> None:
    work = Work(0.0005)
    run(*[lambda n=n: work.leadership.wait([work.item()], lambda: work.steps >= n) for n in range(0, 200, 7)])
    assert work.steps >= 196
    assert work.leadership.vacant
    assert not work.leadership._followers


def test_two_may_wait_for_the_same() -> None:
    work, item = Work(0.001), None
    item = work.item()
    run(*[lambda: work.leadership.wait([item], lambda: work.steps >= 20) for _ in range(5)])
    assert not item.listeners


def test_guests_go_between_two_steps() -> None:
    work = Work(0.001)

    def visit() -> None:
        for _ in range(20):
            with work.leadership.between_steps():
                assert work.inside == 0

    run(visit, visit, lambda: work.leadership.wait([work.item()], lambda: work.steps >= 60))


def test_guests_that_come_again_and_again_do_not_stop_the_steps() -> None:
    work, over = Work(), threading.Event()

    def visit() -> None:
        while not over.is_set():
            with work.leadership.between_steps():
                pass

    def wait() -> None:
        work.leadership.wait([work.item()], lambda: work.steps >= 100)
        over.set()

    run(visit, visit, visit, wait)


def test_a_leader_that_fails_hands_over() -> None:
    work = Work(0.001)
    failing = iter([RuntimeError("in a step")])
    step = work.leadership._step

    def faulty() -> None:
        step()
        if work.steps > 5:
            for error in failing:
                raise error

    work.leadership._step = faulty
    failed = []

    def wait() -> None:
        try:
            work.leadership.wait([work.item()], lambda: work.steps >= 30)
        except RuntimeError as error:
            failed.append(error)

    run(*[wait for _ in range(6)])
    assert len(failed) == 1
    assert work.steps >= 30


def test_no_way_back_in_from_a_step() -> None:
    work = Work()
    caught = []

    def inside() -> None:
        work.steps += 1
        for call in (
            lambda: work.leadership.wait([work.item()], lambda: False),
            lambda: work.leadership.between_steps().__enter__(),
        ):
            with pytest.raises(BusyError):
                call()
            caught.append(1)

    work.leadership._step = inside
    work.leadership.wait([work.item()], lambda: work.steps > 0)
    assert caught == [1, 1]
