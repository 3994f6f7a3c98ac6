"""When a new prompt gets its place in the cache: at once, or when another one has evaluated what both begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.engine.tokens_prefix import common_prefix_length

if TYPE_CHECKING:
    from causerie.engine._cache import Cache
    from causerie.engine.generation import Generation

__all__ = ["Placing"]

# Waiting a step for somebody else's evaluation pays from so many tokens on.
_WORTH_WAITING = 32
_CHECKPOINTS = 4


class Placing:
    """Decides about generations that have no slot yet. Used by whoever leads the engine.

    Args:
        cache: what the context's memory holds.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._whole_only = not cache.can_cut
        self._stops: dict[int, set[int]] = {}  # by generation: lengths at which another one wants to copy its state

    def place(self, generation: Generation, active: list[Generation]) -> bool:
        """Give it a slot; False: not yet."""
        target = generation.target
        limit = len(target) - (generation.chooser is not None)
        if self._waits(generation, active, limit):
            return False
        if self._cache.place(generation.sequence, target, limit) is None:
            return False
        generation.placed = True
        generation.waits_for = None
        return True

    def _waits(self, generation: Generation, active: list[Generation], limit: int) -> bool:
        if generation.waits_for is not None:
            awaited, length = generation.waits_for
            if awaited.placed and not awaited.done and _held(awaited) < length:
                return True
            generation.waits_for = None
            return False
        if not self._cache.can_share:
            return False
        length, other = self._best_in_flight(generation, active, limit)
        if other is None or length < _WORTH_WAITING:
            return False
        here = self._cache.best(generation.target, limit)[0]
        if length < max(here, generation.sequence.held, _held(other)) + _WORTH_WAITING:
            return False
        generation.waits_for = other, length
        if self._whole_only:
            self._stops.setdefault(other.number, set()).add(length)
        return True

    @staticmethod
    def _best_in_flight(generation: Generation, active: list[Generation], limit: int) -> tuple[int, Generation | None]:
        """The longest prefix that a prompt on its way will have evaluated."""
        best: tuple[int, Generation | None] = (0, None)
        for other in active:
            if other is not generation and other.placed and len(other.target) - _held(other) > 1:
                length = min(common_prefix_length(other.target, generation.target), limit)
                if length > best[0]:
                    best = length, other
        return best

    def stretch(self, generation: Generation, remaining: int) -> int:
        """How far it may be evaluated in one go.

        A memory that cannot go back is stopped where somebody wants to copy it, and before the last token of a prompt,
        where it is saved: what comes behind may be taken back.
        """
        if not self._whole_only or remaining == 1:
            return remaining
        held = _held(generation)
        stops = [stop - held for stop in self._stops.get(generation.number, ()) if stop > held]
        last = remaining - 1 if generation.chooser is not None else remaining
        return min([last, *stops])

    def evaluated(self, generation: Generation) -> None:
        """Some of it was evaluated."""
        if not self._whole_only:
            return
        if generation.chooser is not None and _held(generation) == generation.n_prompt - 1:
            self._cache.saved.checkpoint(generation.sequence, _CHECKPOINTS)
        if _held(generation) >= len(generation.target) - 1:
            self._stops.pop(generation.number, None)

    def forget(self, generation: Generation) -> None:
        """It has ended."""
        self._stops.pop(generation.number, None)


def _held(generation: Generation) -> int:
    return generation.sequence.held
