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
# Cells that are left for each one that runs when another one gets a place, so that nobody has to leave at once.
_HEADROOM = 16


class Placing:
    """Decides about generations that have no slot yet. Used by whoever leads the engine.

    Args:
        cache: what the context's memory holds.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._whole_only = not cache.can_cut
        self._wanting: Generation | None = None  # found no room when its turn was: nobody younger is placed before it
        self._stops: dict[int, set[int]] = {}  # by generation: lengths at which another one wants to copy its state

    def place(self, generation: Generation, active: list[Generation], reserved: int) -> bool:
        """Give it a slot; False: not yet. Where one finds no room, those that came later wait too.

        Args:
            generation: it.
            active: all generations.
            reserved: cells that others will take in this step.
        """
        target = generation.target
        limit = len(target) - (generation.chooser is not None)
        if self._wanting is generation:
            self._wanting = None
        if self._is_behind(generation) or self._waits(generation, active, limit):
            return False
        if not self._fits(generation, active, limit, reserved):
            self._wanting = generation
            return False
        if self._cache.place(generation.sequence, target, limit, reserved) is None:
            return False
        generation.placed = True
        generation.waits_for = None
        return True

    def _is_behind(self, generation: Generation) -> bool:
        wanting = self._wanting
        return wanting is not None and not wanting.done and wanting.number < generation.number

    def _fits(self, generation: Generation, active: list[Generation], limit: int, reserved: int) -> bool:
        """Whether there are cells for it without taking them from those that run."""
        running = sum(other.placed for other in active)
        if not running:
            return True
        needed = len(generation.target) + reserved + _HEADROOM * (running + 1)
        if self._cache.obtainable(needed):
            return True
        shared = self._cache.best(generation.sequence, generation.target, limit)[0] if self._cache.can_share else 0
        return shared > 0 and self._cache.obtainable(needed - shared)

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
        here = self._cache.best(generation.sequence, generation.target, limit)[0]
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
            if other.sequence.adapters != generation.sequence.adapters:
                continue
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
        if self._wanting is generation:
            self._wanting = None


def _held(generation: Generation) -> int:
    return generation.sequence.held
