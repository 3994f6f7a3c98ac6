"""Tokens on their way into a context (llama_batch), in numpy arrays that are allocated once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.llama._handle import Uncopyable
from causerie.llama._lib import ffi, lib
from causerie.llama._memory_check import require
from causerie.llama._params import uint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Batch"]

_INT32_MAX = 2**31 - 1
_MAX_SEQS = lib.llama_max_parallel_sequences()


def _listed(value: Any) -> tuple[Any, ...]:
    """One number as a tuple, or several."""
    return (value,) if hasattr(value, "__index__") else tuple(value)


class Batch(Uncopyable):
    """Up to `capacity` entries: a token id or an embedding, its position, its sequences, and whether it gives output.

    The arrays may be read and written directly; the first `len(batch)` rows count. `Context.decode` checks them.
    Methods may be called from any thread.

    Args:
        capacity: entries there is room for; at most the context's n_batch can be decoded at once.
        n_seq_max: sequences one entry can belong to.
        n_embd: 0 for token ids; else entries are embeddings of this width (`Model.n_embd_inp`).
        n_pos: positions of one embedding (`Model.n_pos_embd`); tokens have one.

    Attributes:
        token: int32 (capacity,), or None in a batch of embeddings.
        embd: float32 (capacity, n_embd), or None in a batch of tokens.
        pos: int32 (capacity,); (n_pos, capacity) where n_pos is not 1.
        n_seq_id: int32 (capacity,), how many columns of seq_id count.
        seq_id: int32 (capacity, n_seq_max).
        output: int8 (capacity,), nonzero where logits or embeddings are wanted.

    Raises:
        ValueError: an argument is out of range.
        OutOfMemoryError: the arrays do not fit into free memory.
    """

    def __init__(self, capacity: int, *, n_seq_max: int = 1, n_embd: int = 0, n_pos: int = 1) -> None:
        self.capacity = capacity = uint("capacity", capacity, 1, _INT32_MAX)
        self.n_seq_max = n_seq_max = uint("n_seq_max", n_seq_max, 1, _MAX_SEQS)
        self.n_embd = n_embd = uint("n_embd", n_embd, 0, _INT32_MAX)
        self.n_pos = uint("n_pos", n_pos, 1, 4)
        if n_pos != 1 and not n_embd:
            raise ValueError("a token has one position: n_pos is for batches of embeddings (n_embd)")
        require(f"a batch of {capacity} entries", capacity * (4 * n_embd + 4 * n_seq_max + 32), "use a smaller one")
        self.token: NDArray[np.int32] | None = None if n_embd else np.zeros(capacity, np.int32)
        self.embd: NDArray[np.float32] | None = np.zeros((capacity, n_embd), np.float32) if n_embd else None
        self.pos = np.zeros(capacity if n_pos == 1 else (n_pos, capacity), np.int32)
        self.n_seq_id = np.ones(capacity, np.int32)
        self.seq_id = np.zeros((capacity, n_seq_max), np.int32)
        self.output = np.zeros(capacity, np.int8)
        self._n = 0
        self._lock = threading.RLock()
        self._native = self._build()

    def _build(self) -> Any:
        """The llama_batch that points into the arrays; they are never reallocated."""
        native = ffi.new("struct llama_batch *")
        rows = ffi.from_buffer("llama_seq_id[]", self.seq_id)
        addresses = np.arange(self.capacity, dtype=np.uintp) * (4 * self.n_seq_max)
        addresses += int(ffi.cast("uintptr_t", rows))
        pointers = ffi.from_buffer("llama_seq_id *[]", addresses)
        self._buffers = [rows, pointers]

        def pointer(ctype: str, array: NDArray[Any]) -> Any:
            buffer = ffi.from_buffer(ctype, array)
            self._buffers.append(buffer)
            return buffer

        if self.token is not None:
            native.token = pointer("llama_token[]", self.token)
        if self.embd is not None:
            native.embd = pointer("float[]", self.embd)
        native.pos = pointer("llama_pos[]", self.pos)
        native.n_seq_id = pointer("int32_t[]", self.n_seq_id)
        native.seq_id = pointers
        native.logits = pointer("int8_t[]", self.output)
        return native

    def _ready(self, n: int) -> Any:
        """The llama_batch of the first n entries."""
        self._native.n_tokens = n
        if self.n_pos != 1:  # llama.cpp wants all first positions, then all second ones, ...
            self._packed = np.ascontiguousarray(self.pos[:, :n])
            self._native.pos = ffi.from_buffer("llama_pos[]", self._packed)
        return self._native[0]

    def __setattr__(self, name: str, value: object) -> None:
        if name in {"token", "embd", "pos", "n_seq_id", "seq_id", "output"} and name in self.__dict__:
            raise AttributeError(f"write into batch.{name}[...]: the array itself is part of the native batch")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return self._n

    def clear(self) -> None:
        """Forget all entries; the arrays stay."""
        with self._lock:
            self._n = 0

    def _reserve(self, count: int) -> int:
        start = self._n
        if start + count > self.capacity:
            raise ValueError(f"batch is full: {start} of {self.capacity} entries used, {count} more do not fit")
        return start

    def _check_seqs(self, seqs: Iterable[int]) -> tuple[int, ...]:
        ids = _listed(seqs)
        if not 1 <= len(ids) <= self.n_seq_max:
            raise ValueError(f"an entry needs 1..{self.n_seq_max} sequence ids (n_seq_max), not {len(ids)}")
        if len(set(ids)) != len(ids):
            raise ValueError(f"sequence ids of an entry must differ: {ids}")
        return tuple(uint("sequence id", s, 0, _MAX_SEQS - 1) for s in ids)

    def add(self, token: int, pos: int, seqs: Iterable[int] = (0,), output: bool = False) -> int:
        """Append one token; returns its index (for `Context.logits(i)`).

        Args:
            token: its id; `Context.decode` checks it against the vocabulary.
            pos: its position in its sequences, from 0.
            seqs: ids of the sequences it belongs to.
            output: whether its logits (or embeddings) are wanted.

        Raises:
            ValueError: the batch is full, or an argument is out of range.
        """
        if self.token is None:
            raise TypeError("this batch holds embeddings: use add_embedding()")
        token = uint("token", token, 0, _INT32_MAX)
        pos = uint("pos", pos, 0, _INT32_MAX)
        ids = self._check_seqs(seqs)
        with self._lock:
            i = self._reserve(1)
            self.token[i] = token
            self._set(i, pos, ids, output)
            return i

    def add_embedding(
        self, vector: ArrayLike, pos: int | Sequence[int], seqs: Iterable[int] = (0,), output: bool = False
    ) -> int:
        """Append one embedding, float32 of shape (n_embd,), with n_pos positions; otherwise as `add`."""
        if self.embd is None:
            raise TypeError("this batch holds token ids: use add(), or Batch(..., n_embd=model.n_embd_inp)")
        row = np.asarray(vector, np.float32)
        if row.shape != (self.n_embd,):
            raise ValueError(f"the embedding must have shape ({self.n_embd},), not {row.shape}")
        positions = tuple(uint("pos", p, 0, _INT32_MAX) for p in _listed(pos))
        if len(positions) != self.n_pos:
            raise ValueError(f"the embedding needs {self.n_pos} positions (n_pos), not {len(positions)}")
        ids = self._check_seqs(seqs)
        with self._lock:
            i = self._reserve(1)
            self.embd[i] = row
            self._set(i, positions, ids, output)
            return i

    def _set(self, i: int, pos: int | tuple[int, ...], ids: tuple[int, ...], output: bool) -> None:
        self.pos[..., i] = pos[0] if isinstance(pos, tuple) and self.n_pos == 1 else pos
        self.n_seq_id[i] = len(ids)
        self.seq_id[i, : len(ids)] = ids
        self.output[i] = bool(output)
        self._n = i + 1

    def add_sequence(self, tokens: Sequence[int] | NDArray[Any], pos0: int, seq: int, output_last: bool = True) -> int:
        """Append consecutive tokens of one sequence, vectorised; returns the index of the last one.

        Args:
            tokens: ids, flat, at least one.
            pos0: position of the first.
            seq: the sequence's id.
            output_last: whether the last one's logits are wanted.

        Raises:
            ValueError: they do not fit, or an argument is out of range.
        """
        if self.token is None:
            raise TypeError("this batch holds embeddings: use add_embedding()")
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise ValueError(f"tokens must be a flat, non-empty sequence of ints, not {ids.dtype} of shape {ids.shape}")
        if ids.min() < 0 or ids.max() > _INT32_MAX:
            raise ValueError(f"token ids must be in 0..{_INT32_MAX}")
        pos0 = uint("pos0", pos0, 0, _INT32_MAX - ids.size)
        (seq,) = self._check_seqs((seq,))
        with self._lock:
            start = self._reserve(ids.size)
            stop = start + ids.size
            self.token[start:stop] = ids
            self.pos[start:stop] = np.arange(pos0, pos0 + ids.size, dtype=np.int32)
            self.n_seq_id[start:stop] = 1
            self.seq_id[start:stop, 0] = seq
            self.output[start:stop] = 0
            self.output[stop - 1] = bool(output_last)
            self._n = stop
            return stop - 1

    def __repr__(self) -> str:
        return f"<Batch {self._n} of {self.capacity}>"
