"""Sequences that left the context: their state in RAM, within a budget of bytes; the oldest are dropped first."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Parked", "Parking"]


class Parked:
    """One saved state; forks share it.

    Attributes:
        ids: the token ids it holds.
        data: the state, as `llama.State.seq_get` gives it; None once it was dropped for room.
        users: sequences that refer to it.
    """

    __slots__ = ("data", "ids", "users")

    def __init__(self, ids: list[int], data: bytes) -> None:
        self.ids = ids
        self.data: bytes | None = data
        self.users = 1

    def shared(self) -> Parked:
        """Itself, with one more user."""
        self.users += 1
        return self


class Parking:
    """All saved states. Owned by whoever leads the engine.

    Args:
        budget: bytes they may take together; 0: nothing is saved.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._kept: OrderedDict[Parked, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def fits(self, size: int) -> bool:
        """Whether so many bytes could be kept at all."""
        return size <= self.budget

    def keep(self, ids: list[int], data: bytes) -> Parked | None:
        """Save a state, dropping older ones where there is no room; None if it is larger than the whole budget."""
        if not self.fits(len(data)):
            return None
        parked = Parked(ids, data)
        self._kept[parked] = None
        self.used += len(data)
        while self.used > self.budget:
            self.drop(next(iter(self._kept)))
        return parked

    def touch(self, parked: Parked) -> None:
        """It was used just now."""
        if parked in self._kept:
            self._kept.move_to_end(parked)

    def release(self, parked: Parked) -> None:
        """One user less; without users its bytes are given up."""
        parked.users -= 1
        if parked.users <= 0:
            self.drop(parked)

    def drop(self, parked: Parked) -> None:
        """Give up its bytes. Idempotent."""
        if parked in self._kept:
            del self._kept[parked]
            self.used -= len(parked.data or b"")
        parked.data = None

    def clear(self) -> None:
        """Give up all."""
        while self._kept:
            self.drop(next(iter(self._kept)))
