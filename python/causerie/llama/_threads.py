"""The threads that a context computes with, where ggml brings its own (GGML_OPENMP=OFF).

They belong to the context, whoever calls it. OpenMP instead keeps a team for each thread that ever computed: with a
second one in the process there are more threads than cores, and its barriers then sleep where they would spin.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib

__all__ = ["Threads"]


@cache
def _functions() -> tuple[Any, Any] | None:
    """ggml_threadpool_new and ggml_threadpool_free of the CPU backend; None where OpenMP does the work."""
    if b'"GGML_OPENMP": "ON"' in ffi.string(lib.causerie_build_info()):
        return None
    new, free = getattr(lib, "ggml_threadpool_new", None), getattr(lib, "ggml_threadpool_free", None)
    if new is not None and free is not None:
        return new, free
    # The backend is a plugin, which can only be asked.
    device = lib.ggml_backend_dev_by_type(lib.GGML_BACKEND_DEVICE_TYPE_CPU)
    if device == ffi.NULL:
        return None
    registry = lib.ggml_backend_dev_backend_reg(device)
    new = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_threadpool_new")
    free = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_threadpool_free")
    if ffi.NULL in {new, free}:
        return None
    return (
        ffi.cast("struct ggml_threadpool *(*)(struct ggml_threadpool_params *)", new),
        ffi.cast("void (*)(struct ggml_threadpool *)", free),
    )


class Threads:
    """Those of one context. Used under its lock."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._former: list[Any] = []

    def attach(self, context: Any) -> None:
        """Give the context as many threads as it computes with, in place of those that it had.

        Without any of its own, ggml makes new ones for every evaluation. Those that it had are kept for now: ggml's
        backend remembers whom it computed with last, and tells them to pause when it first computes with others.

        Raises:
            NativeError: they could not be started.
        """
        functions = _functions()
        if functions is None:
            return
        params = ffi.new("struct ggml_threadpool_params *")
        lib.ggml_threadpool_params_init(params, max(lib.llama_n_threads(context), lib.llama_n_threads_batch(context)))
        pool = functions[0](params)
        check("starting threads")
        lib.llama_attach_threadpool(context, pool, ffi.NULL)
        if self._pool is not None:
            self._former.append(self._pool)
        self._pool = pool

    def end_former(self) -> None:
        """After an evaluation with the present ones: nobody remembers any others."""
        if self._former:
            self._free(self._former)

    def free(self, context: Any) -> None:
        """Free the context (llama_free), then its threads."""
        lib.llama_free(context)
        self._free(self._former)
        if self._pool is not None:
            self._free([self._pool])
            self._pool = None

    def _free(self, pools: list[Any]) -> None:
        functions = _functions()
        while pools and functions is not None:
            functions[1](pools.pop())
