"""Which cells of the KV cache are in use, by how many sequences: a mirror of what llama.cpp shares and frees.

Attention adds up over the cells in the order in which they lie in memory. llama.cpp puts new tokens into whatever cells
were freed, so behind a removal the tokens of a sequence may lie in another order than that of their positions: sums
are rounded differently, which a quantised model makes visible (logits that differ by some hundredths). So that every
conversation gives what it would give alone, to the last bit, freed cells are not used again before all that lies behind
them is free too, or has been moved up (`OrderedCells`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Cells", "CountedCells", "OrderedCells"]


class Cells(Protocol):
    """The cells of one context.

    Attributes:
        size: cells there are.
        garbage: cells that no sequence wants and that cannot be used yet.
    """

    size: int
    garbage: int

    @property
    def free(self) -> int:
        """Cells that can be used now."""

    def take(self, count: int) -> list[int]:
        """New cells with one holder each; ValueError if there are not so many."""

    def share(self, cells: Sequence[int]) -> None:
        """One more holder for each."""

    def release(self, cells: Sequence[int]) -> tuple[int, int]:
        """One holder less for each of the last cells of a sequence.

        Returns:
            Indices (i, j): from i on they have no holder any more; those before j must be kept from being used.
        """

    def private(self, cells: Sequence[int]) -> int:
        """How many of these have no other holder."""

    def shared(self) -> int:
        """Cells with several holders."""

    def compact(self) -> dict[int, int]:
        """All cells that have holders have been moved up, in their order; their new numbers."""


class _Held:
    """What both kinds have in common: a count of holders for each cell."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.garbage = 0
        self._holders = [0] * size

    def share(self, cells: Sequence[int]) -> None:
        """See `Cells.share`."""
        for cell in cells:
            self._holders[cell] += 1

    def private(self, cells: Sequence[int]) -> int:
        """See `Cells.private`."""
        return sum(self._holders[cell] == 1 for cell in cells)

    def shared(self) -> int:
        """See `Cells.shared`."""
        return sum(holders > 1 for holders in self._holders)

    def _hold(self, cells: Iterable[int]) -> None:
        for cell in cells:
            self._holders[cell] = 1


class CountedCells(_Held):
    """For memories where the order does not matter, or cannot go wrong: any free cell may be used."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._free = list(range(size - 1, -1, -1))

    @property
    def free(self) -> int:
        """See `Cells.free`."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """See `Cells.take`."""
        if count > len(self._free):
            raise ValueError(f"{count} cells are wanted, {len(self._free)} are free")
        taken = [self._free.pop() for _ in range(count)]
        self._hold(taken)
        return taken

    def release(self, cells: Sequence[int]) -> tuple[int, int]:
        """See `Cells.release`; nothing has to be kept."""
        for cell in reversed(cells):
            self._holders[cell] -= 1
            if not self._holders[cell]:
                self._free.append(cell)
        return 0, 0

    def compact(self) -> dict[int, int]:
        """See `Cells.compact`; there is no need."""
        return {}


class OrderedCells(_Held):
    """Cells are used from the first to the last, as llama.cpp does as long as none before them is free."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._top = 0  # all cells before it are in use or garbage, all others free

    @property
    def free(self) -> int:
        """See `Cells.free`."""
        return self.size - self._top

    def take(self, count: int) -> list[int]:
        """See `Cells.take`."""
        if count > self.free:
            raise ValueError(f"{count} cells are wanted, {self.free} are free")
        taken = list(range(self._top, self._top + count))
        self._top += count
        self._hold(taken)
        return taken

    def release(self, cells: Sequence[int]) -> tuple[int, int]:
        """See `Cells.release`. Sequences share what they begin with, so those without holders are the last ones."""
        first = len(cells)
        for i, cell in enumerate(cells):
            self._holders[cell] -= 1
            if not self._holders[cell] and first == len(cells):
                first = i
        last = len(cells)
        while last > first and cells[last - 1] == self._top - 1:
            last -= 1
            self._top -= 1
        self.garbage += last - first
        return first, last

    def compact(self) -> dict[int, int]:
        """See `Cells.compact`."""
        held = [cell for cell in range(self._top) if self._holders[cell]]
        moved = {old: new for new, old in enumerate(held)}
        self._holders = [self._holders[cell] for cell in held] + [0] * (self.size - len(held))
        self._top = len(held)
        self.garbage = 0
        return moved
