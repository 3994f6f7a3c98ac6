"""A context: the model's working memory, and the calls that evaluate batches (the llama_context part of llama.h)."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import BusyError, DecodeError, NativeError, UnsupportedError
from causerie.llama import _context_params as options
from causerie.llama._errors import call_log, check, check_decode
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._outputs import Outputs
from causerie.llama._params import uint
from causerie.llama.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causerie.llama.batch import Batch
    from causerie.llama.model import Model

__all__ = ["Context", "ContextPerf"]

_open_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


@dataclass(frozen=True)
class ContextPerf:
    """llama.cpp's own counters (llama_perf_context): times in milliseconds, counts of tokens."""

    load_ms: float
    prompt_ms: float
    eval_ms: float
    n_prompt: int
    n_eval: int
    n_reused: int


class Context(Handle):
    """Evaluates batches with a model (llama_init_from_model). One call at a time: others wait for its lock.

    Args:
        model: a loaded `Model`; it must outlive nothing: the context pins it.
        n_ctx: tokens of memory for all sequences together; 0: the length the model was trained with.
        n_batch: most entries of one `decode`.
        n_ubatch: most entries computed at once.
        n_seq_max: sequence ids 0 <= seq < n_seq_max.
        n_rs_seq: snapshots of recurrent state kept per sequence to roll back to.
        kv_unified: one pool of cells for all sequences, which can then share them; else n_ctx is divided.
        type_k, type_v: tensor types of the cache, for example "f16", "q8_0".
        n_threads, n_threads_batch: threads for single tokens and for prompts; None: the processors there are.
        embeddings: give embeddings besides logits.
        pooling: how embeddings of a sequence are pooled: "unspecified" (as the model says), "none", "mean", ...
        attention: "causal" or "non_causal" for embeddings; "unspecified": as the model says.
        flash_attn: "auto", "disabled", "enabled".
        rope_scaling, rope_freq_base, rope_freq_scale, yarn_*: position encoding; 0 or None: as the model says.
        offload_kqv, op_offload: keep the cache, and host operations, on devices.
        swa_full: keep a full-size cache for sliding windows, so that parts can be removed.
        no_perf: do not count times.
        eval_callback: called as f(tensor, ask) for graph nodes (ggml_backend_sched_eval_callback); an exception or,
            when told (ask false), False stops the evaluation.
        check_memory: refuse a context that is larger than the memory that is free.

    Raises:
        OutOfMemoryError: `.needed` and `.available` in bytes.
        ValueError: an option is out of range, unknown, or refused by llama.cpp.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int = 0,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        n_seq_max: int = 1,
        n_rs_seq: int = 0,
        kv_unified: bool = False,
        type_k: str = "f16",
        type_v: str = "f16",
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        embeddings: bool = False,
        pooling: options.Pooling = "unspecified",
        attention: options.Attention = "unspecified",
        flash_attn: options.FlashAttention = "auto",
        rope_scaling: options.RopeScaling = "unspecified",
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float | None = None,
        yarn_attn_factor: float | None = None,
        yarn_beta_fast: float | None = None,
        yarn_beta_slow: float | None = None,
        yarn_orig_ctx: int = 0,
        offload_kqv: bool = True,
        op_offload: bool = True,
        swa_full: bool = True,
        no_perf: bool = True,
        eval_callback: Callable[[Any, bool], object] | None = None,
        check_memory: bool = True,
    ) -> None:
        if model.vocab_only:
            raise UnsupportedError("this model was loaded with vocab_only=True: it has no weights to evaluate")
        params, self._eval = options.build(
            n_ctx=n_ctx, n_batch=n_batch, n_ubatch=n_ubatch, n_seq_max=n_seq_max, n_rs_seq=n_rs_seq,
            n_threads=n_threads, n_threads_batch=n_threads_batch, kv_unified=kv_unified, type_k=type_k, type_v=type_v,
            embeddings=embeddings, pooling=pooling, attention=attention, flash_attn=flash_attn,
            rope_scaling=rope_scaling, rope_freq_base=rope_freq_base, rope_freq_scale=rope_freq_scale,
            yarn_ext_factor=yarn_ext_factor, yarn_attn_factor=yarn_attn_factor, yarn_beta_fast=yarn_beta_fast,
            yarn_beta_slow=yarn_beta_slow, yarn_orig_ctx=yarn_orig_ctx, offload_kqv=offload_kqv,
            op_offload=op_offload, swa_full=swa_full, no_perf=no_perf, eval_callback=eval_callback,
        )  # fmt: skip
        self.model = model
        self._lock = threading.RLock()
        self._running = False
        self._broken = ""
        self._encoded = False
        self._cancel = ffi.gc(lib.causerie_cancel_new(), lib.causerie_cancel_free)
        with model._resource as parent:
            if check_memory:
                options.require_memory(model, params)
            pointer = lib.llama_init_from_model(parent, params[0])
            log = call_log()
            check("creating a context")
            drain_log()
            if pointer == ffi.NULL:
                raise ValueError(f"llama.cpp refused the context: {log or 'no reason given'}")
            lib.causerie_cancel_attach(self._cancel, pointer)
            keep = (params, self._eval, self._cancel)
            self._own(Resource("context", pointer, lib.llama_free, model._resource, keep), model)
        self._has_memory = lib.llama_get_memory(pointer) != ffi.NULL
        self.n_ctx: int = lib.llama_n_ctx(pointer)
        self.n_ctx_seq: int = lib.llama_n_ctx_seq(pointer)
        self.n_batch: int = lib.llama_n_batch(pointer)
        self.n_ubatch: int = lib.llama_n_ubatch(pointer)
        self.n_seq_max: int = lib.llama_n_seq_max(pointer)
        self.kv_unified = bool(kv_unified)
        self._pooled = lib.llama_pooling_type(pointer) != lib.LLAMA_POOLING_TYPE_NONE
        self._embeddings = bool(embeddings)
        self._outputs = Outputs(model, self.n_seq_max)
        self.memory = Memory(self)
        _open_contexts.add(self)


    @contextmanager
    def _exclusive(self) -> Iterator[Any]:
        """The native pointer, with nobody else inside this context."""
        with self._lock, self._resource as pointer:
            if self._running:
                raise BusyError("this context is evaluating: its callbacks must not call into it")
            if self._broken:
                raise NativeError(f"this context is no longer usable: {self._broken}; close it", aborted=True)
            yield pointer

    def _check(self, operation: str) -> None:
        """As `check`, and no further use of this context if llama.cpp stopped at an internal check."""
        try:
            check(operation)
        except NativeError as error:
            if error.aborted:
                self._broken = str(error)
            raise

    def close(self) -> None:
        """Stop a running evaluation, wait for it to end, and free the context. Idempotent."""
        self.cancel()
        with self._lock:
            super().close()


    def decode(self, batch: Batch) -> None:
        """Evaluate a batch and remember it (llama_decode).

        Raises:
            CacheFullError: no free cells; nothing of the batch was evaluated.
            DecodeError: `.code` is llama.cpp's: 2 after `cancel`, -1 for a batch that it refuses (positions that do
                not continue the sequence, ...), below -1 for a failure. After 2 and below -1 finished parts of the
                batch stay in memory: ask `memory.seq_pos_max`.
            ValueError: the batch is empty, too large, or holds ids out of range; nothing was evaluated.
        """
        if self.model.has_encoder and self.model.has_decoder and not self._encoded:
            raise UnsupportedError("this model decodes what it has encoded: call encode() first")
        self._evaluate("decode", lib.llama_decode, batch)

    def encode(self, batch: Batch) -> None:
        """Evaluate a batch with the model's encoder, without memory (llama_encode).

        Raises:
            UnsupportedError: the model has no encoder.
            DecodeError, ValueError: as for `decode`.
        """
        if self._has_memory and not self.model.has_encoder:
            raise UnsupportedError("this model has no encoder: use decode()")
        if len(batch) > self.n_ubatch:
            raise ValueError(f"an encoder takes at most n_ubatch={self.n_ubatch} entries at once, not {len(batch)}")
        self._evaluate("encode", lib.llama_encode, batch)
        self._encoded = True

    def _evaluate(self, operation: str, function: Callable[[Any, Any], int], batch: Batch) -> None:
        with self._exclusive() as pointer, batch._lock:
            n = len(batch)
            self._check_batch(batch, n, pointer)
            self._outputs.prepare(batch, n, every=self._embeddings)
            batch._native.n_tokens = n
            lib.causerie_cancel_set(self._cancel, False)
            self._running = True
            try:
                code = function(pointer, batch._native[0])
            finally:
                self._running = False
            if self._eval is not None:
                self._eval.reraise()
            if code != 0 or lib.causerie_error_code():
                self._check(operation)
                check_decode(operation, code)
            self._outputs.commit()
            if lib.causerie_log_pending():
                drain_log()

    def _check_batch(self, batch: Batch, n: int, pointer: Any) -> None:
        """What llama.cpp would assert, or read out of bounds."""
        if n == 0:
            raise ValueError("the batch is empty")
        if n > self.n_batch:
            raise ValueError(f"the batch has {n} entries, more than n_batch={self.n_batch}")
        causal = lib.llama_get_causal_attn(pointer)
        if (not causal or not self._has_memory) and n > self.n_ubatch:
            raise ValueError(f"without causal attention a batch may have n_ubatch={self.n_ubatch} entries, not {n}")
        if batch.token is not None:
            tokens = batch.token[:n]
            if tokens.min() < 0 or tokens.max() >= self.model.vocab.n_tokens:
                raise ValueError(f"token ids must be in 0..{self.model.vocab.n_tokens - 1}")
        elif batch.n_embd != self.model.n_embd_inp:
            raise ValueError(f"embeddings must have width n_embd_inp={self.model.n_embd_inp}, not {batch.n_embd}")
        counts = batch.n_seq_id[:n]
        if counts.min() < 1 or counts.max() > batch.n_seq_max:
            raise ValueError(f"every entry needs 1..{batch.n_seq_max} sequence ids")
        used = batch.seq_id[:n] if batch.n_seq_max == 1 else batch.seq_id[:n][
            np.arange(batch.n_seq_max) < counts[:, None]
        ]
        if used.min() < 0 or used.max() >= self.n_seq_max:
            raise ValueError(f"sequence ids must be in 0..{self.n_seq_max - 1} (n_seq_max={self.n_seq_max})")
        if batch.pos[:n].min() < 0:
            raise ValueError("positions must not be negative")

    def cancel(self) -> None:
        """Stop the evaluation that runs right now, from any thread; it raises `DecodeError` with code 2. Idle: no-op."""
        lib.causerie_cancel_set(self._cancel, True)

    def synchronize(self) -> None:
        """Wait until all computation is done (llama_synchronize)."""
        with self._exclusive() as pointer:
            lib.llama_synchronize(pointer)
            self._check("synchronising")


    def logits(self, i: int = -1) -> NDArray[np.float32]:
        """Logits of one entry of the last batch (llama_get_logits_ith), float32 of shape (n_vocab,), not a copy.

        The array is a view of the context's own buffer: the next `decode` overwrites it, and it stays readable after
        `close`. A `decode` that must enlarge the buffer is refused (`BusyError`) while such a view is alive.

        Args:
            i: index in the batch, of an entry with output; negative: counted from the last output.

        Raises:
            IndexError: no output was asked for that entry, or the last evaluation failed.
        """
        with self._exclusive() as pointer:
            i = self._outputs.index(i)
            row = lib.llama_get_logits_ith(pointer, i)
            self._check("reading logits")
            return self._outputs.view(row, self.model.vocab.n_tokens, self._resource, "logits")

    def embeddings(self, i: int = -1) -> NDArray[np.float32]:
        """Embedding of one entry (llama_get_embeddings_ith), float32 of shape (n_embd_out,); a view, as `logits`.

        Raises:
            IndexError: no output was asked for that entry.
            UnsupportedError: the context gives no embeddings per token (`embeddings=True`, `pooling="none"`).
        """
        with self._exclusive() as pointer:
            if not self._embeddings:
                raise UnsupportedError("create the context with embeddings=True")
            if self._pooled:
                raise UnsupportedError("embeddings are pooled per sequence here: use embeddings_seq()")
            i = self._outputs.index(i)
            row = lib.llama_get_embeddings_ith(pointer, i)
            self._check("reading embeddings")
            return self._outputs.view(row, self.model.n_embd_out, self._resource, "embeddings")

    def embeddings_seq(self, seq: int) -> NDArray[np.float32]:
        """Pooled embedding of a sequence of the last batch (llama_get_embeddings_seq), a float32 copy.

        Shape (n_embd_out,); with pooling "rank" (number of classifier outputs,).

        Raises:
            UnsupportedError: embeddings are not pooled in this context.
            IndexError: the last batch held nothing of that sequence.
        """
        seq = uint("sequence id", seq, 0, self.n_seq_max - 1)
        with self._exclusive() as pointer:
            if not self._embeddings or not self._pooled:
                raise UnsupportedError("create the context with embeddings=True and a pooling other than 'none'")
            row = lib.llama_get_embeddings_seq(pointer, seq)
            self._check("reading embeddings")
            if row == ffi.NULL:
                raise IndexError(f"the last batch held nothing of sequence {seq}")
            rank = lib.llama_pooling_type(pointer) == lib.LLAMA_POOLING_TYPE_RANK
            width = len(self.model.classifier_labels) if rank else self.model.n_embd_out
            return np.frombuffer(ffi.buffer(row, 4 * width), np.float32).copy()


    @property
    def n_threads(self) -> int:
        """Threads for single tokens (llama_n_threads)."""
        with self._exclusive() as pointer:
            return int(lib.llama_n_threads(pointer))

    @property
    def n_threads_batch(self) -> int:
        """Threads for prompts (llama_n_threads_batch)."""
        with self._exclusive() as pointer:
            return int(lib.llama_n_threads_batch(pointer))

    def set_n_threads(self, n_threads: int, n_threads_batch: int | None = None) -> None:
        """Set both (llama_set_n_threads); `n_threads_batch` None: the same."""
        n = uint("n_threads", n_threads, 1, lib.GGML_MAX_N_THREADS)
        m = n if n_threads_batch is None else uint("n_threads_batch", n_threads_batch, 1, lib.GGML_MAX_N_THREADS)
        with self._exclusive() as pointer:
            lib.llama_set_n_threads(pointer, n, m)

    def set_embeddings(self, value: bool) -> None:
        """Whether evaluations give embeddings (llama_set_embeddings)."""
        with self._exclusive() as pointer:
            lib.llama_set_embeddings(pointer, bool(value))
            self._embeddings = bool(value)
            self._outputs.forget()

    def set_causal_attn(self, value: bool) -> None:
        """Whether tokens attend to earlier ones only (llama_set_causal_attn)."""
        with self._exclusive() as pointer:
            lib.llama_set_causal_attn(pointer, bool(value))

    def perf(self) -> ContextPerf:
        """llama.cpp's counters since creation or `perf_reset`; zeros unless created with no_perf=False."""
        with self._exclusive() as pointer:
            p = lib.llama_perf_context(pointer)
            return ContextPerf(p.t_load_ms, p.t_p_eval_ms, p.t_eval_ms, p.n_p_eval, p.n_eval, p.n_reused)

    def perf_reset(self) -> None:
        """Start the counters anew (llama_perf_context_reset)."""
        with self._exclusive() as pointer:
            lib.llama_perf_context_reset(pointer)

    def __repr__(self) -> str:
        return f"<Context n_ctx={self.n_ctx} n_seq_max={self.n_seq_max} {'closed' if self.closed else 'open'}>"


@atexit.register
def _stop_all() -> None:
    """Let no daemon thread be inside llama.cpp while the process tears down."""
    contexts = list(_open_contexts)
    for context in contexts:
        context.cancel()
    for context in contexts:
        if context._lock.acquire(timeout=2):
            context._broken = "the interpreter is exiting"
            context._lock.release()
