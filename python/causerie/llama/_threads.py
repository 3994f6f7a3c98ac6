"""The threads that a context computes with, where ggml brings its own (GGML_OPENMP=OFF).

They belong to the context, whoever calls it. OpenMP instead keeps a team for each thread that ever computed: with a
second one in the process there are more threads than cores, and its barriers then sleep where they would spin.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib

__all__ = ["attach_threads", "free_with_threads"]

# Addresses of contexts, and of what is freed behind them.
_attached: dict[int, Any] = {}


@cache
def _functions() -> tuple[Any, Any] | None:
    """ggml_threadpool_new and ggml_threadpool_free of the CPU backend; None where OpenMP does the work."""
    info = json.loads(ffi.string(lib.causerie_build_info()))
    if info["flags"].get("GGML_OPENMP") == "ON":
        return None
    new, free = getattr(lib, "ggml_threadpool_new", None), getattr(lib, "ggml_threadpool_free", None)
    if new is not None and free is not None:
        return new, free
    device = lib.ggml_backend_dev_by_type(lib.GGML_BACKEND_DEVICE_TYPE_CPU)
    if device == ffi.NULL:
        return None
    registry = lib.ggml_backend_dev_backend_reg(device)
    found = [
        ffi.cast(kind, lib.ggml_backend_reg_get_proc_address(registry, name))
        for kind, name in (
            ("struct ggml_threadpool *(*)(struct ggml_threadpool_params *)", b"ggml_threadpool_new"),
            ("void (*)(struct ggml_threadpool *)", b"ggml_threadpool_free"),
        )
    ]
    return None if ffi.NULL in found else (found[0], found[1])


def attach_threads(context: Any) -> None:
    """Give a native context as many threads as it computes with; without, ggml makes new ones for every evaluation."""
    n_threads = max(lib.llama_n_threads(context), lib.llama_n_threads_batch(context))
    functions = _functions()
    if functions is None or n_threads < 2:
        return
    new, free = functions
    params = ffi.new("struct ggml_threadpool_params *")
    lib.ggml_threadpool_params_init(params, n_threads)
    pool = new(params)
    check("starting threads")
    if pool == ffi.NULL:
        return
    lib.llama_attach_threadpool(context, pool, ffi.NULL)
    key = int(ffi.cast("uintptr_t", context))
    before = _attached.pop(key, None)
    _attached[key] = pool
    if before is not None:
        free(before)


def free_with_threads(context: Any) -> None:
    """Free a native context, then its threads."""
    key = int(ffi.cast("uintptr_t", context))
    pool = _attached.pop(key, None)
    lib.llama_free(context)
    functions = _functions()
    if pool is not None and functions is not None:
        functions[1](pool)
