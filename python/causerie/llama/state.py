"""What a context remembers, as bytes and files (the state part of llama.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.errors import CacheFullError, CauserieError, NativeError, StateError, UnsupportedError
from causerie.llama import _state_file as files
from causerie.llama import _state_format as form
from causerie.llama._errors import call_log
from causerie.llama._handle import Uncopyable
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._params import uint

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from mmap import mmap

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from causerie.llama.context import Context

__all__ = ["State"]


class State(Uncopyable):
    """`context.state`: save what the memory holds and restore it, here, in another context or in another process.

    State is bytes in a container of ours (`_state_format`) with a version, checksums, and what it belongs to; it fits
    only a context of the same model with the same cache types, division of cells (`kv_unified`, and `n_seq_max`
    where that divides them), position encoding and llama.cpp. Logits and embeddings are no part of it, nor are
    adapters. Data that does not fit or is damaged raises `StateError` before anything is changed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def size(self) -> int:
        """Bytes that `get` would return now (llama_state_get_size)."""
        return self._size("context", -1, partial=False)

    def get(self, *, checksum: bool = True) -> bytes:
        """All sequences of the context (llama_state_get_data).

        Args:
            checksum: protect the payload against damage; not needed for bytes that stay in this process.
        """
        return bytes(self._get("context", -1, form.tokens(), partial=False, checksum=checksum))

    def set(self, data: Buffer) -> None:
        """Replace all sequences by saved ones (llama_state_set_data). There is no output until the next decode.

        Raises:
            StateError: damaged, or of another model or configuration; nothing changed. (Only llama.cpp can tell whether
                flash_attn="auto" became the same in both contexts: if not, every sequence is gone.)
            CacheFullError: there are too few cells for it; every sequence of this context is gone.
        """
        self._set("context", -1, form.parse(data))

    def save_file(self, path: str | os.PathLike[str], tokens: Sequence[int] | NDArray[Any] = ()) -> None:
        """Write `get` and the tokens it was made of to a file, which is replaced atomically (llama_state_save_file).

        Raises:
            OSError: the file cannot be written; the old one stays.
            ValueError: tokens are no flat sequence of ids.
        """
        files.write(path, self._get("context", -1, form.tokens(tokens), partial=False, checksum=True))

    def load_file(self, path: str | os.PathLike[str]) -> NDArray[np.int32]:
        """Restore from a file and return its tokens, int32 (n,) (llama_state_load_file).

        Raises:
            OSError: the file cannot be read.
            StateError, CacheFullError: as for `set`.
        """
        blob = form.parse(files.read(path))
        self._set("context", -1, blob)
        return blob.tokens

    def seq_size(self, seq: int, *, partial: bool = False) -> int:
        """Bytes that `seq_get` would return now (llama_state_seq_get_size_ext)."""
        return self._size("sequence", self._seq(seq), partial=partial)

    def seq_get(self, seq: int, *, partial: bool = False, checksum: bool = True) -> bytes:
        """One sequence, to be restored under any id (llama_state_seq_get_data_ext).

        Args:
            seq: its id.
            partial: only what cannot be rolled back, that is recurrent state and sliding windows
                (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY): a small checkpoint of a sequence that goes on. Where a model has
                nothing of that kind, or nothing else, this is the same as the full state.
            checksum: as for `get`.
        """
        return bytes(self._get("sequence", self._seq(seq), form.tokens(), partial=partial, checksum=checksum))

    def seq_buffer(self, seq: int) -> memoryview:
        """As `seq_get`, read-only, without a checksum and in memory that large states get to quickly.

        For states that are kept in this process, or written to a file that has checksums of its own.
        """
        return memoryview(
            self._get("sequence", self._seq(seq), form.tokens(), partial=False, checksum=False, mapped=True)
        ).toreadonly()

    def seq_check(self, data: Buffer) -> tuple[int, int]:
        """Whether `seq_set` may take a full state; the smallest and the largest position in it (-1: it is empty).

        Raises:
            StateError: damaged, or of another model or configuration; `.expected` and `.found` tell where it can.
        """
        header = form.parse(data).header
        if header.partial:
            raise StateError("this is only a part of a sequence's state")
        with self._context._exclusive() as pointer:
            self._check_fits("sequence", 0, header, self._memory(pointer, "checking state"))
        return (-1, -1) if not header.sequences else header.sequences[0][1:]

    def seq_set(self, seq: int, data: Buffer) -> None:
        """Replace a sequence by a saved one (llama_state_seq_set_data_ext). Outputs of the last batch stay readable.

        A partial state takes the sequence back to where it was saved: later positions are removed, earlier ones must
        still be there.

        Raises:
            StateError: damaged, of another model or configuration, or partial and the rest is gone; nothing changed
                (with the exception that `set` has).
            CacheFullError: there are too few cells for it; the sequence is empty, others are untouched.
        """
        self._set("sequence", self._seq(seq), form.parse(data))

    def seq_save_file(self, path: str | os.PathLike[str], seq: int, tokens: Sequence[int] | NDArray[Any] = ()) -> None:
        """As `save_file`, for one sequence (llama_state_seq_save_file)."""
        files.write(path, self._get("sequence", self._seq(seq), form.tokens(tokens), partial=False, checksum=True))

    def seq_load_file(self, path: str | os.PathLike[str], seq: int) -> NDArray[np.int32]:
        """As `load_file`, for one sequence (llama_state_seq_load_file)."""
        seq = self._seq(seq)
        blob = form.parse(files.read(path))
        self._set("sequence", seq, blob)
        return blob.tokens

    def _seq(self, seq: int) -> int:
        return uint("sequence id", seq, 0, self._context.n_seq_max - 1)

    @property
    def _params(self) -> Any:
        return self._context._params

    @staticmethod
    def _memory(pointer: Any, operation: str) -> Any:
        memory = lib.llama_get_memory(pointer)
        if memory == ffi.NULL:
            raise UnsupportedError(f"{operation}: a context of this model has no memory (it only encodes)")
        return memory

    def _payload(self, pointer: Any, seq: int, *, partial: bool) -> tuple[int, bool]:
        """Size of what llama.cpp would write, and whether it really is a part only."""
        if seq < 0:
            size = lib.llama_state_get_size(pointer)
        else:
            size = lib.llama_state_seq_get_size_ext(pointer, seq, lib.LLAMA_STATE_SEQ_FLAGS_NONE)
        log = call_log()
        self._context._check("working out the size of the state")
        if size == 0:
            if "shared recurrent state" in log:
                drain_log()
                raise UnsupportedError(
                    "sequences that share recurrent state and were rolled back differently cannot be saved together: "
                    "use seq_get for each"
                )
            raise NativeError(f"llama.cpp could not work out the size of the state: {log}")
        if partial:
            part = lib.llama_state_seq_get_size_ext(pointer, seq, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
            self._context._check("working out the size of the state")
            return int(part), part < size
        return int(size), False

    def _header(self, memory: Any, kind: Any, seq: int, *, partial: bool, checksum: bool) -> form.Header:
        ids = range(self._context.n_seq_max) if seq < 0 else (seq,)
        spans = ((s, lib.llama_memory_seq_pos_min(memory, s), lib.llama_memory_seq_pos_max(memory, s)) for s in ids)
        return form.Header(
            kind=kind,
            partial=partial,
            checked=checksum,
            sequences=tuple(span for span in spans if span[2] >= 0),
            flash_attn=self._flash_attn(),
            facts=form.facts(self._context, self._params),
        )

    def _flash_attn(self) -> str:
        return str(ffi.string(lib.llama_flash_attn_type_name(self._params.flash_attn_type)).decode())

    def _size(self, kind: str, seq: int, *, partial: bool) -> int:
        with self._context._exclusive() as pointer:
            memory = self._memory(pointer, "measuring state")
            size, partial = self._payload(pointer, seq, partial=partial)
            header = self._header(memory, kind, seq, partial=partial, checksum=True)
            return form.PREFIX_SIZE + len(header.encode()) + size

    def _get(
        self, kind: str, seq: int, tokens: NDArray[np.int32], *, partial: bool, checksum: bool, mapped: bool = False
    ) -> bytes | mmap:
        with self._context._exclusive() as pointer:
            memory = self._memory(pointer, "saving state")
            size, partial = self._payload(pointer, seq, partial=partial)
            header = self._header(memory, kind, seq, partial=partial, checksum=checksum)
            writer = form.Writer(header, tokens, size, mapped=mapped)
            if seq < 0:
                written = lib.llama_state_get_data(pointer, writer.payload, size)
            else:
                written = lib.llama_state_seq_get_data_ext(pointer, writer.payload, size, seq, _flags(header))
            log = call_log()
            self._context._check("saving state")
            drain_log()
            if written != size:
                raise NativeError(f"saving state: llama.cpp wrote {written} of {size} bytes: {log}")
        return writer.finish()

    def _set(self, kind: str, seq: int, blob: form.Blob) -> None:
        with self._context._exclusive() as pointer:
            memory = self._memory(pointer, "restoring state")
            self._check_fits(kind, seq, blob.header, memory)
            if seq < 0:
                self._context._outputs.forget()
                self._restore(
                    blob,
                    lambda p, n: lib.llama_state_set_data(pointer, p, n),
                    lambda: lib.llama_memory_clear(memory, True),
                    "every sequence of this context",
                )
                return
            flags = _flags(blob.header)
            if not blob.header.partial:
                # llama.cpp skips what was empty when it was saved, and would leave the old sequence there.
                lib.llama_memory_seq_rm(memory, seq, -1, -1)
            self._restore(
                blob,
                lambda p, n: lib.llama_state_seq_set_data_ext(pointer, p, n, seq, flags),
                lambda: lib.llama_memory_seq_rm(memory, seq, -1, -1),
                f"sequence {seq}",
            )
            if blob.header.partial:
                end = blob.header.sequences[0][2] + 1
                if not lib.llama_memory_seq_rm(memory, seq, end, -1):
                    self._context._check("restoring state")
                    lib.llama_memory_seq_rm(memory, seq, -1, -1)
                    raise StateError(f"positions from {end} cannot be removed; sequence {seq} is empty now")

    def _restore(
        self, blob: form.Blob, read: Callable[[Any, int], int], undo: Callable[[], object], victim: str
    ) -> None:
        """Let llama.cpp read the payload; if it cannot, leave nothing half-restored behind."""
        size = len(blob.payload)
        count = read(ffi.from_buffer("uint8_t[]", blob.payload), size)
        log = call_log()
        if count == size and lib.causerie_error_code() == lib.CAUSERIE_ERROR_NONE:
            drain_log()
            return
        try:
            self._context._check("restoring state")
        except CauserieError:
            if not self._context._broken:
                undo()
            raise
        undo()
        drain_log()
        reason = log or f"it read {count} of {size} bytes"
        message = f"llama.cpp could not restore the state ({reason}); {victim} is gone"
        if "cells" in log:
            raise CacheFullError(f"{message}: too few free cells, remove sequences or use a larger n_ctx")
        raise StateError(message)

    def _check_fits(self, kind: str, seq: int, header: form.Header, memory: Any) -> None:
        """What llama.cpp does not check, or checks only when the old content is already gone."""
        if header.kind != kind:
            other = {"context": "set() or load_file()", "sequence": "seq_set() or seq_load_file()"}.get(header.kind)
            raise StateError(f"this is the state of a {header.kind}: use {other}")
        mine = form.facts(self._context, self._params)
        for name in sorted(mine.keys() | header.facts.keys()):
            if mine.get(name) != header.facts.get(name):
                raise StateError(
                    f"state was saved with {name}={header.facts.get(name)!r}, this context has {mine.get(name)!r}",
                    expected=mine.get(name),
                    found=header.facts.get(name),
                )
        asked, saved = self._flash_attn(), header.flash_attn
        if asked != saved and "auto" not in {asked, saved}:
            raise StateError(
                f"state was saved with flash_attn={saved!r}, this context has {asked!r}", expected=asked, found=saved
            )
        if kind == "context":
            highest, n_seq_max = max((s for s, _, _ in header.sequences), default=0), self._context.n_seq_max
            if highest >= n_seq_max:
                raise StateError(f"state holds sequence {highest}, this context has n_seq_max={n_seq_max}")
        elif header.partial:
            end = header.sequences[0][2] if header.sequences else -1
            if end < 0 or lib.llama_memory_seq_pos_max(memory, seq) < end:
                raise StateError(f"a partial state needs the rest of sequence {seq}, up to position {end}, in place")


def _flags(header: form.Header) -> int:
    return int(lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if header.partial else lib.LLAMA_STATE_SEQ_FLAGS_NONE)
