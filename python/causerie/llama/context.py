"""A context: the model's working memory, and the calls that evaluate batches (the llama_context part of llama.h)."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import BusyError, NativeError, UnsupportedError
from causerie.llama import _at_exit as at_exit
from causerie.llama import _context_params as options
from causerie.llama._attached import Attached, adapters_stay, set_adapters, set_control_vector
from causerie.llama._context_perf import ContextPerf, read_perf
from causerie.llama._errors import check
from causerie.llama._evaluation import evaluate
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._outputs import Outputs
from causerie.llama._params import uint
from causerie.llama._threads import Threads
from causerie.llama.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from causerie.llama.adapter import LoraAdapter
    from causerie.llama.batch import Batch
    from causerie.llama.control_vector import ControlVector
    from causerie.llama.model import Model
    from causerie.llama.state import State

__all__ = ["Context", "ContextPerf"]


class Context(Handle):
    """Evaluates batches with a model (llama_init_from_model). One call at a time: others wait for its lock.

    Args:
        model: a loaded `Model`; it must outlive nothing: the context pins it.
        n_ctx: tokens of memory for all sequences together; 0: the length the model was trained with. llama.cpp rounds
            up to a multiple of 256 (per sequence, unless kv_unified).
        n_batch: most entries of one `decode`.
        n_ubatch: most entries computed at once; some models want a multiple of n_seq_max.
        n_seq_max: sequence ids 0 <= seq < n_seq_max.
        n_rs_seq: snapshots of recurrent state kept per sequence to roll back to.
        kv_unified: one pool of cells for all sequences, which can then share them; else n_ctx is divided.
        type_k, type_v: tensor types of the cache: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1.
        n_threads, n_threads_batch: threads for single tokens and for prompts; None: one for each core.
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
        if model.vocab_only or model.no_alloc:
            raise UnsupportedError("this model was loaded with vocab_only or no_alloc: it has no weights to evaluate")
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
        self._params = params
        self._lock = threading.RLock()
        self._running, self._encoded, self._broken = False, False, ""
        self._embeddings = bool(embeddings)
        self._attached = Attached()
        self._threads = Threads()
        self._cancel = cancel = ffi.gc(lib.causerie_cancel_new(), lib.causerie_cancel_free)
        if self._eval is not None:
            self._eval.on_stop = lambda: lib.causerie_cancel_set(cancel, True)
        with model._resource as parent, adapters_stay(model):
            if check_memory:
                options.require_memory(model, params)
            pointer = options.create(parent, params)
            lib.causerie_cancel_attach(cancel, pointer)
            self._has_memory = lib.llama_get_memory(pointer) != ffi.NULL
            self._pooled = lib.llama_pooling_type(pointer) != lib.LLAMA_POOLING_TYPE_NONE
            self.n_ctx, self.n_ctx_seq = int(lib.llama_n_ctx(pointer)), int(lib.llama_n_ctx_seq(pointer))
            self.n_batch, self.n_ubatch = int(lib.llama_n_batch(pointer)), int(lib.llama_n_ubatch(pointer))
            self.n_seq_max: int = lib.llama_n_seq_max(pointer)
            self.kv_unified, self.type_k, self.type_v = bool(kv_unified), type_k, type_v
            self.flash_attn = bool(lib.causerie_flash_attn(pointer))  # what "auto" became
            self._outputs = Outputs(model, self.n_seq_max)
            keep = (params, self._eval, cancel)
            self._own(Resource("context", pointer, self._threads.free, model._resource, keep), model)
            self._threads.attach(pointer)
        at_exit.remember(self)
        drain_log()

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
            self._broken = self._broken or (str(error) if error.aborted else "")
            raise

    @property
    def memory(self) -> Memory:
        """What this context remembers, per sequence."""
        return Memory(self)

    def close(self) -> None:
        """Stop a running evaluation, wait for it to end, and free the context. Idempotent."""
        self.cancel()
        with self._lock:
            super().close()
            self._attached.replace(())

    def decode(self, batch: Batch) -> None:
        """Evaluate a batch and remember it (llama_decode).

        Raises:
            CacheFullError: no free cells; nothing of the batch was evaluated.
            DecodeError: `.code` is llama.cpp's: 2 after `cancel`, -1 for a batch that it refuses (positions that do
                not continue the sequence, ...), below -1 for a failure. After 2 and below -1 finished parts of the
                batch stay in memory: ask `memory.seq_pos_max`. Recurrent state cannot be taken back: there, sequences
                of the batch that had advanced are removed.
            OutOfMemoryError: memory was denied; as below -1 otherwise, and a smaller batch can be tried.
            ValueError: the batch is empty, too large, or holds ids out of range; nothing was evaluated.
            UnsupportedError: nothing was encoded yet, by a model that decodes what it has encoded.
        """
        self._evaluate("decode", batch)

    def encode(self, batch: Batch) -> None:
        """Evaluate a batch with the model's encoder (llama_encode).

        What the decoder remembers stays; for another source at the same positions, clear it first.

        Raises:
            UnsupportedError: the model has no encoder.
            DecodeError, OutOfMemoryError, ValueError: as for `decode`.
        """
        self._evaluate("encode", batch)

    def _evaluate(self, operation: str, batch: Batch) -> None:
        try:
            evaluate(self, operation, batch)
        finally:
            at_exit.gate()

    def cancel(self) -> None:
        """Stop the evaluation that runs now, from any thread; it raises `DecodeError` with code 2. Idle: no-op."""
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
            UnsupportedError: the last evaluation gave embeddings only (an encoder, an embedding model).
        """
        with self._exclusive() as pointer:
            i = self._outputs.logits_index(i)
            row = lib.llama_get_logits_ith(pointer, i)
            self._check("reading logits")
            return self._outputs.view(row, self.model.n_vocab, self._resource, "logits")

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
            return np.array(np.frombuffer(ffi.buffer(row, 4 * width), np.float32))

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
            self._threads.attach(pointer)

    def set_embeddings(self, value: bool) -> None:
        """Whether evaluations give embeddings (llama_set_embeddings)."""
        with self._exclusive() as pointer:
            lib.llama_set_embeddings(pointer, bool(value))
            self._embeddings = bool(value)
            self._outputs.forget()

    @property
    def state(self) -> State:
        """Saving and restoring what this context remembers."""
        from causerie.llama.state import State

        return State(self)

    @property
    def adapters(self) -> tuple[tuple[LoraAdapter, float], ...]:
        """The attached LoRA adapters and their scales."""
        return self._attached.pairs

    def set_adapters(self, adapters: Sequence[tuple[LoraAdapter, float]]) -> None:
        """Attach exactly these (adapter, scale) pairs, or none, from the next evaluation on (llama_set_adapters_lora).

        What is in memory already was computed without them: it is for the caller to clear what shall not be mixed.

        Raises:
            ClosedError: an adapter is closed.
            ValueError: an adapter of another model or twice, or a scale that is not finite.
        """
        set_adapters(self, adapters)

    def set_control_vector(self, vector: ControlVector | None, *, layer_range: tuple[int, int] | None = None) -> None:
        """Add the vector's directions to the layers' outputs from the next evaluation on (llama_set_adapter_cvec).

        Args:
            vector: replaces the one before; None: none.
            layer_range: first and last layer to apply it to, both included, from 1; None: all.

        Raises:
            ValueError: the vector does not fit the model, or the range is not within it.
        """
        set_control_vector(self, vector, layer_range)

    def set_causal_attn(self, value: bool) -> None:
        """Whether tokens attend to earlier ones only (llama_set_causal_attn)."""
        with self._exclusive() as pointer:
            lib.llama_set_causal_attn(pointer, bool(value))

    def perf(self) -> ContextPerf:
        """llama.cpp's counters since creation or `perf_reset`; zeros unless created with no_perf=False."""
        with self._exclusive() as pointer:
            return read_perf(pointer)

    def perf_reset(self) -> None:
        """Start the counters anew (llama_perf_context_reset)."""
        with self._exclusive() as pointer:
            lib.llama_perf_context_reset(pointer)

    def __repr__(self) -> str:
        return f"<Context n_ctx={self.n_ctx} n_seq_max={self.n_seq_max} {'closed' if self.closed else 'open'}>"
