"""Results of work that comes again, kept while there is room: the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["Memo"]

T = TypeVar("T")


class Memo(Generic[T]):
    """A bounded cache of what a function gave. Thread-safe; two threads may compute the same result at a time.

    Args:
        room: the most that the costs of all results kept may add up to. What costs more than that is not kept.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._used = 0
        self._kept: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, cost: int, compute: Callable[[], T]) -> T:
        """The result kept for ``key``, or that of ``compute()``, which is then kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[1]
        result = compute()
        self.put(key, cost, result)
        return result

    def put(self, key: Hashable, cost: int, result: T) -> None:
        """Keep a result in place of the one that was kept for ``key``."""
        if cost > self._room:
            return
        with self._lock:
            old = self._kept.pop(key, None)
            self._used += cost - (old[0] if old is not None else 0)
            self._kept[key] = (cost, result)
            while self._used > self._room:
                _, (freed, _) = self._kept.popitem(last=False)
                self._used -= freed

    def __len__(self) -> int:
        return len(self._kept)
