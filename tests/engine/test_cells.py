"""Which cells are in use: compared with a list of what llama.cpp would do, after any operations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.engine._cells import CountedCells, OrderedCells

SIZE = 40
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["take", "share", "cut", "compact"]), st.integers(0, 7), st.integers(0, 12)), max_size=60
)


class Model:
    """Sequences that share what they begin with, and the cells that keep tokens from being used again."""

    def __init__(self, cells: OrderedCells | CountedCells) -> None:
        self.cells = cells
        self.sequences: list[list[int]] = [[] for _ in range(4)]
        self.buried: set[int] = set()

    def take(self, i: int, count: int) -> None:
        if count > self.cells.free:
            with pytest.raises(ValueError, match="are free"):
                self.cells.take(count)
            return
        self.sequences[i % 4] += self.cells.take(count)

    def share(self, i: int, count: int) -> None:
        source, target = self.sequences[i % 4], self.sequences[(i + 1) % 4]
        if not target:
            target += source[:count]
            self.cells.share(target)

    def cut(self, i: int, length: int) -> None:
        sequence = self.sequences[i % 4]
        tail = sequence[length:]
        first, last = self.cells.release(tail)
        self.buried |= set(tail[first:last])
        del sequence[length:]

    def compact(self, *_: int) -> None:
        moved = self.cells.compact()
        if moved:
            assert list(moved.values()) == list(range(len(moved)))
            assert list(moved) == sorted(moved)
        if isinstance(self.cells, OrderedCells):
            self.buried.clear()
            self.sequences = [[moved[cell] for cell in sequence] for sequence in self.sequences]

    def check(self) -> None:
        cells, held = self.cells, {cell for sequence in self.sequences for cell in sequence}
        assert cells.garbage == len(self.buried)
        assert not self.buried & held
        assert cells.free + cells.garbage + len(held) == cells.size
        counts = [sum(cell in sequence for sequence in self.sequences) for cell in range(SIZE)]
        assert cells.shared() == sum(count > 1 for count in counts)
        for sequence in self.sequences:
            assert cells.private(sequence) == sum(counts[cell] == 1 for cell in sequence)
            assert len(set(sequence)) == len(sequence)
            if isinstance(cells, OrderedCells):
                assert sequence == sorted(sequence)  # the order of cells is that of positions


@pytest.mark.parametrize("kind", [OrderedCells, CountedCells])
@given(operations=OPERATIONS)
@settings(max_examples=150, deadline=None)
def test_counts_are_those_of_a_simple_model(kind: type, operations: list[tuple[str, int, int]]) -> None:
    model = Model(kind(SIZE))
    for name, i, n in operations:
        getattr(model, name)(i, n)
        model.check()


def test_the_last_cells_are_free_at_once_and_others_are_kept() -> None:
    cells = OrderedCells(10)
    a, b = cells.take(3), cells.take(3)
    assert cells.release(a[1:]) == (0, 2)  # b lies behind
    assert (cells.free, cells.garbage) == (4, 2)
    assert cells.release(b) == (0, 0)
    assert (cells.free, cells.garbage) == (7, 2)
    assert cells.compact() == {0: 0}
    assert (cells.free, cells.garbage) == (9, 0)
