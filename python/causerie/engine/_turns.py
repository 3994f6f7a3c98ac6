"""Who may go into a step together: a context computes with one set of adapters at a time, so sets take turns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.engine.adapters import Adapter
    from causerie.engine.generation import Generation

__all__ = ["TURN", "Turns"]

TURN = 0.1
"""Seconds that one set has while others wait: llama.cpp plans its memory anew for each change."""


class Turns:
    """Used by whoever leads the engine.

    Args:
        clock: tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now: tuple[Adapter, ...] | None = None
        self._until: float | None = None  # None: until the first step is over, which includes the change
        self._turns = 0
        self._last: dict[tuple[Adapter, ...], int] = {}  # the number of the last turn of each set that is there

    def groups(self, active: list[Generation]) -> list[list[Generation]]:
        """The generations with each set, in their order; first those whose turn it is, who waited longest next."""
        groups: dict[tuple[Adapter, ...], list[Generation]] = {}
        for generation in active:
            groups.setdefault(generation.sequence.adapters, []).append(generation)
        # Who comes, or comes back, is behind all that wait.
        self._last = {adapters: self._last.get(adapters, self._turns) for adapters in groups}
        over = self._over()
        order = sorted(groups, key=lambda adapters: ((adapters == self._now) == over, self._last[adapters]))
        return [groups[adapters] for adapters in order]

    def begin(self, adapters: tuple[Adapter, ...]) -> None:
        """A step is for these."""
        if adapters != self._now or self._over():
            self._turns += 1
            self._now, self._until = adapters, None
        self._last[adapters] = self._turns

    def all_in(self, planned: int, active: list[Generation]) -> bool:
        """Whether a step with so many, whose turn it is, has all who could be in it, and the turn is not over."""
        mine = sum(generation.sequence.adapters == self._now for generation in active)
        return planned == mine and (mine == len(active) or not self._over())

    def _over(self) -> bool:
        now = self._clock()
        if self._until is None:
            self._until = now + TURN
        return now >= self._until
