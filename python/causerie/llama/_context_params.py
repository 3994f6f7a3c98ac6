"""The options of a context, checked and turned into llama_context_params, and the memory they would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from causerie.errors import OutOfMemoryError
from causerie.llama._callbacks import Callback
from causerie.llama._denied import denied, out_of_memory
from causerie.llama._errors import call_log, check
from causerie.llama._lib import drain_log, ffi, lib, path_bytes
from causerie.llama._memory_check import available_memory, format_bytes
from causerie.llama._params import choice, uint
from causerie.llama.placement import read_uses
from causerie.llama.processors import processors

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.llama.model import Model

__all__ = [
    "Attention", "FlashAttention", "Pooling", "RopeScaling", "build", "create", "default_threads", "require_memory",
]  # fmt: skip

Pooling = Literal["unspecified", "none", "mean", "cls", "last", "rank"]
Attention = Literal["unspecified", "causal", "non_causal"]
FlashAttention = Literal["auto", "disabled", "enabled"]
RopeScaling = Literal["unspecified", "none", "linear", "yarn", "longrope"]

_POOLING = {
    m: getattr(lib, f"LLAMA_POOLING_TYPE_{m.upper()}") for m in ("unspecified", "none", "mean", "cls", "last", "rank")
}
_ATTENTION = {m: getattr(lib, f"LLAMA_ATTENTION_TYPE_{m.upper()}") for m in ("unspecified", "causal", "non_causal")}
_FLASH = {m: getattr(lib, f"LLAMA_FLASH_ATTN_TYPE_{m.upper()}") for m in ("auto", "disabled", "enabled")}
_ROPE_SCALING = {
    m: getattr(lib, f"LLAMA_ROPE_SCALING_TYPE_{m.upper()}")
    for m in ("unspecified", "none", "linear", "yarn", "longrope")
}
# Those that llama.cpp's own programs offer. Others are accepted, and then abort or read wild memory.
_CACHE_TYPES = {
    t: getattr(lib, f"GGML_TYPE_{t.upper()}")
    for t in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
}
_INT32_MAX = 2**31 - 1
# A context whose cache is surely smaller than this share of free memory is not simulated first.
_SMALL_SHARE = 0.25
_BYTES_PER_CELL = 128  # position, sequence ids, and the same again for a sliding window
_CTX_PAD = 256  # llama.cpp rounds the cells of a stream up to a multiple


def default_threads() -> int:
    """Threads to compute with: one for each physical core this process may use."""
    return min(processors().threads, lib.GGML_MAX_N_THREADS)


def build(
    *, n_ctx: int, n_batch: int, n_ubatch: int, n_seq_max: int, n_rs_seq: int, n_threads: int | None,
    n_threads_batch: int | None, kv_unified: bool, type_k: str, type_v: str, embeddings: bool, pooling: Pooling,
    attention: Attention, flash_attn: FlashAttention, rope_scaling: RopeScaling, rope_freq_base: float,
    rope_freq_scale: float, yarn_ext_factor: float | None, yarn_attn_factor: float | None, yarn_beta_fast: float | None,
    yarn_beta_slow: float | None, yarn_orig_ctx: int, offload_kqv: bool, op_offload: bool, swa_full: bool,
    no_perf: bool, eval_callback: Callable[[Any, bool], object] | None,
) -> tuple[Any, Callback | None]:  # fmt: skip
    """A llama_context_params and the callback it refers to.

    Raises:
        ValueError: an option is out of range or unknown.
    """
    params = ffi.new("struct llama_context_params *", lib.llama_context_default_params())
    params.n_ctx = uint("n_ctx", n_ctx, 0, _INT32_MAX)
    params.n_batch = uint("n_batch", n_batch, 1, _INT32_MAX)
    params.n_ubatch = uint("n_ubatch", n_ubatch, 1, _INT32_MAX)
    params.n_seq_max = uint("n_seq_max", n_seq_max, 1, lib.llama_max_parallel_sequences())
    params.n_rs_seq = uint("n_rs_seq", n_rs_seq, 0, _INT32_MAX)
    threads = default_threads() if n_threads is None else uint("n_threads", n_threads, 1, lib.GGML_MAX_N_THREADS)
    params.n_threads = threads
    params.n_threads_batch = (
        threads if n_threads_batch is None else uint("n_threads_batch", n_threads_batch, 1, lib.GGML_MAX_N_THREADS)
    )
    params.kv_unified, params.embeddings = bool(kv_unified), bool(embeddings)
    params.type_k, params.type_v = choice("type_k", type_k, _CACHE_TYPES), choice("type_v", type_v, _CACHE_TYPES)
    params.pooling_type = choice("pooling", pooling, _POOLING)
    params.attention_type = choice("attention", attention, _ATTENTION)
    params.flash_attn_type = choice("flash_attn", flash_attn, _FLASH)
    params.rope_scaling_type = choice("rope_scaling", rope_scaling, _ROPE_SCALING)
    params.rope_freq_base, params.rope_freq_scale = float(rope_freq_base), float(rope_freq_scale)
    for name, value in (
        ("yarn_ext_factor", yarn_ext_factor), ("yarn_attn_factor", yarn_attn_factor),
        ("yarn_beta_fast", yarn_beta_fast), ("yarn_beta_slow", yarn_beta_slow),
    ):  # fmt: skip
        if value is not None:
            setattr(params, name, float(value))
    params.yarn_orig_ctx = uint("yarn_orig_ctx", yarn_orig_ctx)
    params.offload_kqv, params.op_offload = bool(offload_kqv), bool(op_offload)
    params.swa_full, params.no_perf = bool(swa_full), bool(no_perf)
    callback = None
    if eval_callback is not None:
        if not callable(eval_callback):
            raise TypeError(f"eval_callback must be callable, not {type(eval_callback).__name__}")
        callback = Callback(eval_callback)
        params.cb_eval = lib.causerie_eval_callback()
        params.cb_eval_user_data = callback.handle
    return params, callback


def create(model: Any, params: Any) -> Any:
    """The llama_context of a llama_model.

    Raises:
        OutOfMemoryError: llama.cpp could not allocate its buffers.
        ValueError: with llama.cpp's reason.
    """
    pointer = lib.llama_init_from_model(model, params[0])
    log = call_log()
    check("creating a context")
    if pointer != ffi.NULL:
        lib.causerie_give_back_cache(pointer)
        return pointer
    drain_log()
    if out_of_memory(log):
        raise denied(f"creating a context of n_ctx={params.n_ctx}", log)
    if "GGML_ASSERT" in log and params.n_ubatch % params.n_seq_max:
        log += f" (n_ubatch={params.n_ubatch} must be a multiple of n_seq_max={params.n_seq_max} here)"
    raise ValueError(f"llama.cpp refused the context: {log or 'no reason given'}")


def _cells(model: Model, params: Any) -> int:
    """Cells of the key-value cache, as llama.cpp rounds them up."""
    streams = 1 if params.kv_unified else params.n_seq_max
    per_stream = -(-(params.n_ctx or model.n_ctx_train) // streams)
    return int(streams * -(-per_stream // _CTX_PAD) * _CTX_PAD)


def _cache_bound(model: Model, params: Any) -> int:
    """Bytes that a full key-value cache can take at most: every layer, every head, nothing windowed."""
    width = max(model.n_embd, model.n_embd_out)
    per_token = sum(-(-width // lib.ggml_blck_size(t)) * lib.ggml_type_size(t) for t in (params.type_k, params.type_v))
    return int(_cells(model, params) * model.n_layer * per_token)


def require_memory(model: Model, params: Any) -> None:
    """Refuse a context that would not fit into free memory, by llama.cpp's own account of its buffers.

    Raises:
        OutOfMemoryError: with `.needed` and `.available` in bytes.
    """
    available = available_memory()
    bound = _cache_bound(model, params)
    if available is None or bound < available * _SMALL_SHARE:
        return
    needed = bound * max(model.n_head_kv, 1) // max(model.n_head, 1)  # a good guess, where there is no file to simulate
    # llama.cpp's account leaves out what it notes about each cell, and the simulation itself allocates that.
    notes = 0 if model.is_recurrent else _cells(model, params) * _BYTES_PER_CELL
    if notes < available * _SMALL_SHARE and model.path is not None and model.path.is_file():
        simulated = ffi.new("struct llama_context_params *", params[0])
        simulated.cb_eval = ffi.NULL
        name = path_bytes(model.path)
        uses = read_uses(lambda out, room: lib.causerie_devices_needed(name, model._params, simulated, out, room))
        needed = sum(use.cache_bytes + use.compute_bytes for use in uses if use.kind == "cpu")
    needed += notes
    drain_log()
    if needed > available:
        raise OutOfMemoryError(
            f"a context of n_ctx={params.n_ctx or model.n_ctx_train} needs {format_bytes(needed)}, but only "
            f"{format_bytes(available)} of memory are free; use a smaller n_ctx or a smaller cache type "
            "(type_k, type_v), or check_memory=False",
            needed=needed,
            available=available,
        )
