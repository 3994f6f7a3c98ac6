"""Sequences that left the context: their state in RAM, then on disk, each within a budget; the oldest are dropped."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from causerie.errors import CauserieError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.engine._parking_folder import ParkingFolder
    from causerie.engine.adapters import Adapter

__all__ = ["Parked", "Parking"]

logger = logging.getLogger("causerie.engine")


class Parked:
    """One saved state; forks share it.

    Attributes:
        ids: the token ids it holds.
        adapters: what they were evaluated with.
        data: the state in RAM, as `llama.State.seq_buffer` gives it; None: it is not there.
        number: of its file on disk; None: it has none.
        size: bytes of the state.
        users: sequences that refer to it.
    """

    __slots__ = ("adapters", "data", "ids", "number", "size", "users")

    def __init__(self, ids: Sequence[int], data: bytes | memoryview, adapters: tuple[Adapter, ...]) -> None:
        self.ids = ids
        self.adapters = adapters
        self.data: bytes | memoryview | None = data
        self.number: int | None = None
        self.size = len(data)
        self.users = 1

    @property
    def kept(self) -> bool:
        """Whether the state is still there; it is dropped where there is no room."""
        return self.data is not None or self.number is not None

    def shared(self) -> Parked:
        """Itself, with one more user."""
        self.users += 1
        return self


class Parking:
    """All saved states. Owned by whoever leads the engine.

    Args:
        budget: bytes they may take in RAM together; 0: nothing is saved there.
        folder: where those go for which there is no room in RAM; None: nowhere.
        disk_budget: bytes they may take there.

    Raises:
        ValueError: a budget is negative.
    """

    def __init__(self, budget: int, folder: ParkingFolder | None = None, disk_budget: int = 0) -> None:
        for name, value in (("parking_bytes", budget), ("parking_disk_bytes", disk_budget)):
            if value < 0:
                raise ValueError(f"{name} must not be negative, not {value}")
        self.budget = budget
        self.used = 0
        self.disk_budget = disk_budget if folder is not None else 0
        self.disk_used = 0
        self._folder = folder
        self._kept: OrderedDict[Parked, None] = OrderedDict()
        self._on_disk: OrderedDict[Parked, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept) + len(self._on_disk)

    @property
    def closed(self) -> bool:
        """Whether nothing can be saved at all."""
        return not (self.budget or self.disk_budget)

    def fits(self, size: int) -> bool:
        """Whether so many bytes could be kept at all."""
        return size <= max(self.budget, self.disk_budget)

    def keep(self, ids: Sequence[int], data: bytes | memoryview, adapters: tuple[Adapter, ...] = ()) -> Parked | None:
        """Save a state; where there is no room, older ones go to disk, or are dropped. None: it fits nowhere."""
        parked = Parked(ids, data, adapters)
        if parked.size > self.budget:
            return parked if self._move_to_disk(parked) else None
        self._kept[parked] = None
        self.used += parked.size
        while self.used > self.budget:
            oldest = next(iter(self._kept))
            if not self._move_to_disk(oldest):
                self.drop(oldest)
        return parked

    def _move_to_disk(self, parked: Parked) -> bool:
        """Whether the state is on disk now, and not in RAM any more."""
        if self._folder is None or parked.data is None or parked.size > self.disk_budget:
            return False
        while self.disk_used + parked.size > self.disk_budget:
            self.drop(next(iter(self._on_disk)))
        try:
            parked.number = self._folder.write(parked.ids, parked.data)
        except OSError as error:
            logger.warning("a sequence could not be parked on disk, and will be evaluated again: %s", error)
            return False
        if parked in self._kept:
            del self._kept[parked]
            self.used -= parked.size
        parked.data = None
        self._on_disk[parked] = None
        self.disk_used += parked.size
        return True

    def read(self, parked: Parked) -> bytes | memoryview | None:
        """The state, wherever it is; None: it was dropped. It may be used for as long as it is referred to."""
        if parked.data is None and parked.number is not None and self._folder is not None:
            try:
                return self._folder.read(parked.number, parked.ids)
            except (OSError, CauserieError) as error:
                logger.warning("a sequence parked on disk is lost, and will be evaluated again: %s", error)
                self.drop(parked)
        return parked.data

    def touch(self, parked: Parked) -> None:
        """It was used just now."""
        for place in (self._kept, self._on_disk):
            if parked in place:
                place.move_to_end(parked)

    def release(self, parked: Parked) -> None:
        """One user less; without users its bytes are given up."""
        parked.users -= 1
        if parked.users <= 0:
            self.drop(parked)

    def drop(self, parked: Parked) -> None:
        """Give up its bytes. Idempotent."""
        if parked in self._kept:
            del self._kept[parked]
            self.used -= parked.size
        if parked in self._on_disk:
            del self._on_disk[parked]
            self.disk_used -= parked.size
        if parked.number is not None and self._folder is not None:
            self._folder.remove(parked.number)
        parked.data = parked.number = None

    def clear(self) -> None:
        """Give up all, and the place on disk."""
        for place in (self._kept, self._on_disk):
            while place:
                self.drop(next(iter(place)))
        if self._folder is not None:
            self._folder.close()
            self.disk_budget = 0
