"""What a context remembers, per sequence: KV cells or recurrent state (the llama_memory part of llama.h)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from causerie.errors import UnsupportedError
from causerie.llama._handle import Uncopyable
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._memory_kinds import shares_no_cells, shifting_aborts, whole_only
from causerie.llama._params import uint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.llama.context import Context

__all__ = ["Memory"]

_POS_MIN, _POS_MAX = -(2**31), 2**31 - 1


def _refused(reason: str) -> UnsupportedError:
    return UnsupportedError(f"{reason}; remove the whole sequence and evaluate it anew, or restore a saved state")


class _Part:
    """Positions [p0, p1) as llama.cpp writes them (negative: open), and as [start, stop)."""

    def __init__(self, p0: int, p1: int) -> None:
        self.p0 = uint("p0", p0, _POS_MIN, _POS_MAX)
        self.p1 = uint("p1", p1, _POS_MIN, _POS_MAX)
        self.start = max(self.p0, 0)
        self.stop = self.p1 if self.p1 >= 0 else 2**31

    def overlaps(self, span: tuple[int, int]) -> bool:
        """Whether anything of the positions span[0]..span[1] is in here."""
        return span[1] >= 0 and max(self.start, span[0]) < min(self.stop, span[1] + 1)

    def covers(self, span: tuple[int, int]) -> bool:
        """Whether all positions span[0]..span[1] are in here."""
        return self.start <= span[0] and self.stop > span[1]

    def __str__(self) -> str:
        return f"[{self.p0}, {self.p1})"


class Memory(Uncopyable):
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

    def _span(self, memory: Any, seq: int) -> tuple[int, int]:
        """First and last position held, (-1, -1) if none.

        Recurrent state stands for all from 0; and llama.cpp tells the first position of the window, while layers
        without one hold all.
        """
        last = int(lib.llama_memory_seq_pos_max(memory, seq))
        if last >= 0 and (whole_only(self._context.model) or self._context.model.n_swa > 0):
            return 0, last
        return int(lib.llama_memory_seq_pos_min(memory, seq)), last

    def clear(self, data: bool = True) -> None:
        """Forget every sequence (llama_memory_clear); `data` also zeroes the buffers.

        What zeroed cells took of the CPU's memory is free until they are used again (Linux).
        """
        operation = "clearing the memory"
        with self._use(operation) as memory:
            lib.llama_memory_clear(memory, data)
            if data:
                self._context._check(operation)
                with self._context._resource as ctx:
                    lib.causerie_give_back_cache(ctx)

    def seq_rm(self, seq: int, p0: int = -1, p1: int = -1) -> None:
        """Remove the positions [p0, p1) of a sequence; -1: of all sequences (llama_memory_seq_rm).

        Raises:
            UnsupportedError: this memory cannot remove that part, and nothing changed: recurrent state (unless the
                context keeps snapshots, n_rs_seq); or the end of a sequence, where what a sliding window needs before
                it has been overwritten (unless swa_full).
            ValueError: the sequence id is out of range.
        """
        ids = list(range(self._context.n_seq_max)) if seq == -1 else [self._seq(seq)]
        part = _Part(p0, p1)
        with self._use("removing from a sequence") as memory:
            held = [s for s in ids if part.overlaps(self._span(memory, s))]
            whole = [s for s in held if part.covers(self._span(memory, s))]
            partly = [s for s in held if s not in whole]
            for s in partly:
                self._check_removal(memory, s, part, alone=len(ids) == 1)
            for s in whole:
                lib.llama_memory_seq_rm(memory, s, -1, -1)
            for s in partly:
                if not lib.llama_memory_seq_rm(memory, s, part.p0, part.p1):
                    self._context._check("removing from a sequence")
                    raise _refused(f"positions {part} of sequence {s} cannot be removed")

    def _shares_state(self, memory: Any, seq: int) -> bool:
        """Whether another sequence may share this one's recurrent state: llama.cpp shows only where each one stands."""
        last = lib.llama_memory_seq_pos_max(memory, seq)
        others = (s for s in range(self._context.n_seq_max) if s != seq)
        return any(lib.llama_memory_seq_pos_max(memory, s) == last for s in others)

    def _check_removal(self, memory: Any, seq: int, part: _Part, *, alone: bool) -> None:
        """What llama.cpp would do only apparently."""
        _, last = self._span(memory, seq)
        if whole_only(self._context.model):
            if not alone or part.stop <= last:
                raise _refused(f"positions {part} of sequence {seq} cannot be taken out of recurrent state")
            if self._context._params.n_rs_seq and self._shares_state(memory, seq):
                raise _refused(f"sequence {seq} shares its state with another one, which would be rolled back too")
        elif part.stop > last and not self._window_complete(memory, seq, part.start):
            raise _refused(f"positions {part} of sequence {seq} cannot be removed: the window before is incomplete")

    def _window_complete(self, memory: Any, seq: int, position: int) -> bool:
        """Whether what a token at `position` attends to is still there."""
        window = self._context.model.n_swa
        return window <= 0 or lib.llama_memory_seq_pos_min(memory, seq) <= max(0, position - window + 1)

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Let `dst` hold the positions [p0, p1) of `src` too (llama_memory_seq_cp).

        Unified cells (`kv_unified`) and recurrent state are shared, not copied. What `dst` held stays there where cells
        are unified, and is replaced otherwise: better remove it first.

        Raises:
            UnsupportedError: only a part is asked for, and cells are not unified, state is recurrent, or a sliding
                window has moved on.
            ValueError: a sequence id is out of range.
        """
        src, dst = self._seq(src), self._seq(dst)
        part = _Part(p0, p1)
        with self._use("copying a sequence") as memory:
            span = self._span(memory, src)
            if src == dst or not part.overlaps(span):
                return
            if shares_no_cells(self._context.model):
                raise UnsupportedError("sequences of this model share no cells: copy with state.seq_get and seq_set")
            if part.covers(span):
                lib.llama_memory_seq_cp(memory, src, dst, -1, -1)
                return
            if whole_only(self._context.model):
                raise _refused(f"positions {part} of sequence {src} cannot be taken out of recurrent state")
            if not self._context.kv_unified:
                raise _refused(f"only all of sequence {src} can be copied, not {part}, without kv_unified=True")
            if part.stop <= span[1] and not self._window_complete(memory, src, part.stop):
                raise _refused(f"positions {part} of sequence {src} cannot be copied: the window is incomplete")
            lib.llama_memory_seq_cp(memory, src, dst, part.p0, part.p1)

    def seq_keep(self, seq: int) -> None:
        """Forget every other sequence (llama_memory_seq_keep)."""
        seq = self._seq(seq)
        with self._use("keeping one sequence") as memory:
            # llama.cpp looks only at cells of the same stream, which is one sequence's own where they are not unified.
            for other in range(self._context.n_seq_max):
                if other != seq and lib.llama_memory_seq_pos_max(memory, other) >= 0:
                    lib.llama_memory_seq_rm(memory, other, -1, -1)
            lib.llama_memory_seq_keep(memory, seq)

    def seq_add(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Move the positions [p0, p1) by delta (llama_memory_seq_add). Cells shared with other sequences move too.

        Raises:
            UnsupportedError: this memory cannot shift (`can_shift`).
            ValueError: a position would leave 0..2**31-1, or an argument is out of range.
        """
        seq = self._seq(seq)
        part = _Part(p0, p1)
        delta = uint("delta", delta, _POS_MIN, _POS_MAX)
        with self._use("shifting a sequence") as memory:
            self._shiftable(memory)
            first = max(part.start, lib.llama_memory_seq_pos_min(memory, seq))
            last = min(part.stop - 1, lib.llama_memory_seq_pos_max(memory, seq))
            if first <= last and (first + delta < 0 or last + delta > _POS_MAX):
                raise ValueError(f"delta {delta} would move positions {first}..{last} out of 0..{_POS_MAX}")
            lib.llama_memory_seq_add(memory, seq, part.p0, part.p1, delta)

    def seq_div(self, seq: int, p0: int, p1: int, d: int) -> None:
        """Divide the positions [p0, p1) by d > 1, rounding down (llama_memory_seq_div). As `seq_add` for shared cells.

        Raises:
            UnsupportedError: this memory cannot shift.
            ValueError: an argument is out of range.
        """
        seq = self._seq(seq)
        part = _Part(p0, p1)
        d = uint("d", d, 2, _POS_MAX)
        with self._use("dividing positions") as memory:
            self._shiftable(memory)
            lib.llama_memory_seq_div(memory, seq, part.p0, part.p1, d)

    def _can_shift(self, memory: Any) -> bool:
        if not lib.llama_memory_can_shift(memory):
            return False
        return not shifting_aborts(self._context.model, self._context._params.type_k)

    def _shiftable(self, memory: Any) -> None:
        if not self._can_shift(memory):
            raise UnsupportedError("the positions of this memory cannot be shifted: evaluate the sequence anew")

    def seq_pos_min(self, seq: int) -> int:
        """Smallest position held of a sequence, -1 if none (llama_memory_seq_pos_min)."""
        seq = self._seq(seq)
        with self._use("reading a position") as memory:
            return int(lib.llama_memory_seq_pos_min(memory, seq))

    def seq_pos_max(self, seq: int) -> int:
        """Largest position held of a sequence, -1 if none (llama_memory_seq_pos_max)."""
        seq = self._seq(seq)
        with self._use("reading a position") as memory:
            return int(lib.llama_memory_seq_pos_max(memory, seq))

    @property
    def can_shift(self) -> bool:
        """Whether positions can be moved (llama_memory_can_shift)."""
        with self._use("reading the memory's abilities") as memory:
            return self._can_shift(memory)

    @property
    def can_cut(self) -> bool:
        """Whether the end of a sequence can always be removed (`seq_rm`): no recurrent state, no window that moves."""
        context = self._context
        window = context.model.n_swa > 0 and not context._params.swa_full
        return not whole_only(context.model) and not window

    @property
    def can_share(self) -> bool:
        """Whether `seq_cp` lets two sequences hold the same cells or state, instead of copying them."""
        unified = self._context.kv_unified or self._context.model.is_recurrent
        return unified and not shares_no_cells(self._context.model)
