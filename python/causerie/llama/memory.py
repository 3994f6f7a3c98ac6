"""What a context remembers, per sequence: KV cells or recurrent state (the llama_memory part of llama.h)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from causerie.errors import UnsupportedError
from causerie.llama._errors import check
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._params import uint

if TYPE_CHECKING:
    from causerie.llama.context import Context

__all__ = ["Memory"]

_POS_MIN, _POS_MAX = -(2**31), 2**31 - 1


class Memory:
    """`context.memory`: llama.cpp's sequence operations, refused with an exception where llama.cpp would abort.

    Positions are half-open ranges [p0, p1); a negative p0 means from the start, a negative p1 to the end.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @contextmanager
    def _use(self, operation: str) -> Iterator[Any]:
        with self._context._exclusive() as ctx:
            memory = lib.llama_get_memory(ctx)
            if memory == ffi.NULL:
                raise UnsupportedError(f"{operation}: a context of this model has no memory (it only encodes)")
            yield memory
            self._context._check(operation)
            drain_log()

    def _seq(self, seq: int) -> int:
        return uint("sequence id", seq, 0, self._context.n_seq_max - 1)

    @staticmethod
    def _range(p0: int, p1: int) -> tuple[int, int]:
        return uint("p0", p0, _POS_MIN, _POS_MAX), uint("p1", p1, _POS_MIN, _POS_MAX)

    def clear(self, data: bool = True) -> None:
        """Forget every sequence (llama_memory_clear); `data` also zeroes the buffers."""
        with self._use("clearing the memory") as memory:
            lib.llama_memory_clear(memory, data)

    def seq_rm(self, seq: int, p0: int = -1, p1: int = -1) -> None:
        """Remove the positions [p0, p1) of a sequence; -1: of all sequences (llama_memory_seq_rm).

        Raises:
            UnsupportedError: this memory cannot remove a part (recurrent state, a window that moved on); nothing changed.
            ValueError: the sequence id is out of range.
        """
        if seq != -1:
            self._seq(seq)
        p0, p1 = self._range(p0, p1)
        with self._use("removing from a sequence") as memory:
            if not lib.llama_memory_seq_rm(memory, seq, p0, p1):
                check("removing from a sequence")
                raise UnsupportedError(
                    f"this memory cannot remove positions [{p0}, {p1}) of sequence {seq}: only a whole sequence, "
                    "or what it still holds"
                )

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Let `dst` hold the positions [p0, p1) of `src` too (llama_memory_seq_cp); unified cells are shared.

        Raises:
            UnsupportedError: the cells are not unified and the range is not the whole sequence.
            ValueError: a sequence id is out of range.
        """
        self._seq(src)
        self._seq(dst)
        p0, p1 = self._range(p0, p1)
        with self._use("copying a sequence") as memory:
            if src == dst:
                return
            if not self._context.kv_unified and self._is_partial(memory, src, p0, p1):
                raise UnsupportedError(
                    f"only a whole sequence can be copied where cells are not unified, not [{p0}, {p1}); "
                    "create the context with kv_unified=True"
                )
            lib.llama_memory_seq_cp(memory, src, dst, p0, p1)

    def _is_partial(self, memory: Any, seq: int, p0: int, p1: int) -> bool:
        # llama.cpp compares with the size of a stream, so "to the end" must be written as a negative p1.
        del memory, seq
        return p0 > 0 or p1 >= 0

    def seq_keep(self, seq: int) -> None:
        """Forget every other sequence (llama_memory_seq_keep)."""
        self._seq(seq)
        with self._use("keeping one sequence") as memory:
            lib.llama_memory_seq_keep(memory, seq)

    def seq_add(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Move the positions [p0, p1) by delta (llama_memory_seq_add).

        Raises:
            UnsupportedError: this memory cannot shift (`can_shift`).
            ValueError: a position would leave 0..2**31-1, or an argument is out of range.
        """
        self._seq(seq)
        p0, p1 = self._range(p0, p1)
        uint("delta", delta, _POS_MIN, _POS_MAX)
        with self._use("shifting a sequence") as memory:
            self._shiftable(memory)
            low = max(p0, lib.llama_memory_seq_pos_min(memory, seq), 0)
            high = lib.llama_memory_seq_pos_max(memory, seq)
            high = min(p1 - 1, high) if p1 >= 0 else high
            if low <= high and (low + delta < 0 or high + delta > _POS_MAX):
                raise ValueError(f"delta {delta} would move positions {low}..{high} out of 0..{_POS_MAX}")
            lib.llama_memory_seq_add(memory, seq, p0, p1, delta)

    def seq_div(self, seq: int, p0: int, p1: int, d: int) -> None:
        """Divide the positions [p0, p1) by d > 1, rounding down (llama_memory_seq_div).

        Raises:
            UnsupportedError: this memory cannot shift.
            ValueError: an argument is out of range.
        """
        self._seq(seq)
        p0, p1 = self._range(p0, p1)
        uint("d", d, 2, _POS_MAX)
        with self._use("dividing positions") as memory:
            self._shiftable(memory)
            lib.llama_memory_seq_div(memory, seq, p0, p1, d)

    @staticmethod
    def _shiftable(memory: Any) -> None:
        if not lib.llama_memory_can_shift(memory):
            raise UnsupportedError("the positions of this memory cannot be shifted")

    def seq_pos_min(self, seq: int) -> int:
        """Smallest position held of a sequence, -1 if none (llama_memory_seq_pos_min)."""
        self._seq(seq)
        with self._use("reading a position") as memory:
            return int(lib.llama_memory_seq_pos_min(memory, seq))

    def seq_pos_max(self, seq: int) -> int:
        """Largest position held of a sequence, -1 if none (llama_memory_seq_pos_max)."""
        self._seq(seq)
        with self._use("reading a position") as memory:
            return int(lib.llama_memory_seq_pos_max(memory, seq))

    @property
    def can_shift(self) -> bool:
        """Whether positions can be moved (llama_memory_can_shift)."""
        with self._use("reading the memory's abilities") as memory:
            return bool(lib.llama_memory_can_shift(memory))
