"""One evaluation of a batch: checked before, repaired after a failure (llama_decode, llama_encode)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import CacheFullError, CauserieError, NativeError, OutOfMemoryError, UnsupportedError
from causerie.llama import _at_exit as at_exit
from causerie.llama._denied import denied, out_of_memory
from causerie.llama._errors import call_log, check_decode
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._memory_kinds import whole_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from causerie.llama.batch import Batch
    from causerie.llama.context import Context
    from causerie.llama.model import Model

__all__ = ["evaluate"]

# Encoders whose input is wider than n_embd_inp, by a width that llama.h does not tell.
_WIDE_ENCODERS = frozenset({"eagle3", "dflash"})


def evaluate(
    context: Context,
    operation: str,
    batch: Batch,
    native_call: Callable[[Any, Any], int] | None = None,
    *,
    again: bool = False,
) -> None:
    """`Context.decode`, `Context.encode` and `Step.run`.

    Args:
        context: evaluates.
        operation: "decode" or "encode".
        batch: what is evaluated.
        native_call: decodes a batch that needs no check, called with the native context and batch; None: llama.cpp's
            function of that name, after all checks.
        again: the batch asks for the same rows of output as the one before.
    """
    encode = operation == "encode"
    with context._exclusive() as pointer, batch._lock:
        n = len(batch)
        _check_order(context, encode=encode)
        if native_call is None:
            _check_batch(context, batch, n, pointer, encode=encode)
            native_call = lib.llama_encode if encode else lib.llama_decode
        if again:
            context._outputs.has_logits = False  # until this one has succeeded
        else:
            _prepare_outputs(context, batch, n, encode=encode)
        before = _Before(context, batch, n, pointer)
        native = batch._ready(n)
        callback = context._eval
        if callback is not None:
            callback.stopped = False
        context._running = True
        lib.causerie_cancel_set(context._cancel, at_exit.stopping())
        try:
            code = native_call(pointer, native)
        finally:
            context._running = False
        if code != 0 or lib.causerie_error_code() or (callback is not None and callback.stopped):
            _fail(context, operation, code, before)
        context._threads.end_former()
        context._encoded |= encode
        context._outputs.commit(logits=not encode and (context._has_memory or context.model.is_diffusion))
        if lib.causerie_log_pending():
            drain_log()


def _prepare_outputs(context: Context, batch: Batch, n: int, *, encode: bool) -> None:
    every = context._embeddings or encode or not context._has_memory
    context._outputs.prepare(batch, n, every=every, embeddings=context._embeddings)


def _fail(context: Context, operation: str, code: int, before: _Before) -> None:
    """Raise what happened, after the memory was put in order."""
    context._outputs.forget()
    log = call_log()
    error: BaseException | None = None
    try:
        context._check(operation)
        check_decode(operation, code or 2)  # 0: the callback stopped it when nothing was left to do
    except CauserieError as failure:
        error = failure
    if not context._broken:
        before.repair(thrown=isinstance(error, (NativeError, OutOfMemoryError)), code=code, log=log)
        context._check("putting the memory in order")
        # A full cache is no lack of memory, whatever a backend warned of meanwhile.
        if not isinstance(error, (OutOfMemoryError, CacheFullError)) and out_of_memory(str(error)):
            error = denied(operation, str(error).removeprefix(f"{operation}: "))
    if context._eval is not None:
        context._eval.reraise()
    assert error is not None  # noqa: S101 - check_decode raises for every code but 0
    try:
        raise error
    finally:
        del error  # its traceback holds this frame: a cycle, and with it the context, would wait for the collector


def _check_order(context: Context, *, encode: bool) -> None:
    model = context.model
    if encode and context._has_memory and not model.has_encoder:
        raise UnsupportedError("this model has no encoder: use decode()")
    if not encode and model.has_encoder and model.has_decoder and not context._encoded:
        raise UnsupportedError("this model decodes what it has encoded: call encode() first")


def _check_batch(context: Context, batch: Batch, n: int, pointer: Any, *, encode: bool) -> None:
    """What llama.cpp would assert, or read out of bounds."""
    model = context.model
    if n == 0:
        raise ValueError("the batch is empty")
    if n > context.n_batch:
        raise ValueError(f"the batch has {n} entries, more than n_batch={context.n_batch}")
    if n > context.n_ubatch:
        if encode:
            raise ValueError(f"an encoder takes at most n_ubatch={context.n_ubatch} entries at once, not {n}")
        if not context._has_memory or not lib.llama_get_causal_attn(pointer):
            raise ValueError(f"without causal attention a batch may have n_ubatch={context.n_ubatch} entries, not {n}")
    if batch.token is None:
        _check_embeddings(model, batch, encode=encode)
    elif batch.token[:n].min() < 0 or batch.token[:n].max() >= model.n_vocab:
        raise ValueError(f"token ids must be in 0..{model.n_vocab - 1}")
    _check_sequences(context, batch, n)
    positions = batch.pos[..., :n]
    if positions.min() < 0:
        raise ValueError("positions must not be negative")
    if model.n_positions is not None and positions.max() >= model.n_positions:
        last = model.n_positions - 1
        raise ValueError(f"a {model.architecture} model has positions 0..{last}, not {positions.max()}")


def _check_sequences(context: Context, batch: Batch, n: int) -> None:
    counts = batch.n_seq_id[:n]
    if counts.min() < 1 or counts.max() > batch.n_seq_max:
        raise ValueError(f"every entry needs 1..{batch.n_seq_max} sequence ids")
    used = _sequences(batch, n)
    if used.min() < 0 or used.max() >= context.n_seq_max:
        raise ValueError(f"sequence ids must be in 0..{context.n_seq_max - 1} (n_seq_max={context.n_seq_max})")


def _check_embeddings(model: Model, batch: Batch, *, encode: bool) -> None:
    if encode and model.architecture in _WIDE_ENCODERS:
        raise UnsupportedError(f"the encoder of a {model.architecture} model takes no embeddings here")
    if batch.n_embd != model.n_embd_inp:
        raise ValueError(f"embeddings must have width n_embd_inp={model.n_embd_inp}, not {batch.n_embd}")
    if batch.n_pos != model.n_pos_embd:
        raise ValueError(
            f"embeddings for this model have n_pos_embd={model.n_pos_embd} positions each, not {batch.n_pos}: "
            "Batch(..., n_pos=model.n_pos_embd)"
        )


def _sequences(batch: Batch, n: int) -> NDArray[np.int32]:
    """The sequence ids that the first n entries use."""
    ids = batch.seq_id[:n]
    if batch.n_seq_max == 1:
        return ids.ravel()
    return ids[np.arange(batch.n_seq_max) < batch.n_seq_id[:n, None]]


class _Before:
    """What the memory held of a batch's sequences before it was evaluated.

    llama.cpp removes what it could not evaluate, with gaps: an entry of several sequences is removed from one of them
    only, recurrent state cannot be taken back, and after a C++ exception nothing is removed.
    """

    def __init__(self, context: Context, batch: Batch, n: int, pointer: Any) -> None:
        self._memory = lib.llama_get_memory(pointer)
        self._whole_only = whole_only(context.model)
        self._rolls_back = bool(context._params.n_rs_seq)
        self._batch = batch
        self._n = n
        self._held: dict[int, int] = {}
        if self._whole_only and self._memory != ffi.NULL:
            self._held = {s: self._end(s) for s in np.unique(_sequences(batch, n)).tolist()}

    def _end(self, seq: int) -> int:
        return int(lib.llama_memory_seq_pos_max(self._memory, seq))

    def _cut(self, seq: int, position: int) -> None:
        if self._end(seq) >= position and not lib.llama_memory_seq_rm(self._memory, seq, position, -1):
            lib.llama_memory_seq_rm(self._memory, seq, -1, -1)

    def repair(self, *, thrown: bool, code: int, log: str) -> None:
        """Let the memory hold only what was really evaluated."""
        if self._memory == ffi.NULL or (not thrown and code in {1, -1}):
            return
        if "K-shift" in log:  # some layers were shifted, others not
            lib.llama_memory_clear(self._memory, True)
        elif self._whole_only:
            for seq, held in self._held.items():
                if self._rolls_back or self._end(seq) != held:
                    lib.llama_memory_seq_rm(self._memory, seq, -1, -1)
        else:
            shared = range(self._n) if thrown else np.flatnonzero(self._batch.n_seq_id[: self._n] > 1).tolist()
            for i in shared:
                ids = self._batch.seq_id[i, : self._batch.n_seq_id[i]].tolist()
                evaluated = -1 if thrown else min(self._end(seq) for seq in ids)
                for seq in ids:
                    self._cut(seq, int(self._batch.pos[..., i].min()) if thrown else evaluated + 1)
