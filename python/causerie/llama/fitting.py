"""What of a model fits where: llama.cpp's own fitting of layers and context to the memory that devices have free."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from causerie.errors import ModelLoadError
from causerie.llama import _context_params, _model_params
from causerie.llama._errors import call_log, check
from causerie.llama._lib import drain_log, ffi, lib, path_bytes
from causerie.llama._memory_check import format_bytes
from causerie.llama._params import uint
from causerie.llama.context import Context
from causerie.llama.placement import read_uses

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from causerie.llama.placement import DeviceUse

__all__ = ["CONTEXT_OPTIONS", "Fit", "fit"]

MARGIN = 1 << 30
"""Bytes to leave free on each device: what llama.cpp's own programs leave."""
N_CTX_MIN = 4096
_LONGEST = 2**32 - 1
_one_at_a_time = threading.Lock()
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(Context).parameters.items()
    if parameter.default is not inspect.Parameter.empty
}
CONTEXT_OPTIONS = frozenset(_DEFAULTS) - {"check_memory"}


@dataclass(frozen=True)
class Fit:
    """What was found to fit, as options for `Model` and `Context`.

    Attributes:
        fits: whether llama.cpp expects it to fit; otherwise the rest is what was asked for.
        reason: why not.
        n_gpu_layers: layers to move to devices; -1: all.
        n_ctx: tokens of context.
        tensor_split: share of each device; empty: by free memory.
        tensor_buft_overrides: what is left in host memory of layers that are moved (experts, mostly).
        devices: what would be where.
    """

    fits: bool
    reason: str
    n_gpu_layers: int
    n_ctx: int
    tensor_split: tuple[float, ...]
    tensor_buft_overrides: Mapping[str, str]
    devices: tuple[DeviceUse, ...]

    @property
    def model_options(self) -> dict[str, Any]:
        """Those for `Model`."""
        return {
            "n_gpu_layers": self.n_gpu_layers,
            "tensor_split": self.tensor_split or None,
            "tensor_buft_overrides": dict(self.tensor_buft_overrides) or None,
        }


def fit(
    path: str | os.PathLike[str],
    *,
    margin: int = MARGIN,
    n_ctx_min: int = N_CTX_MIN,
    model: Mapping[str, Any] | None = None,
    **context: Any,
) -> Fit:
    """Fit layers and context to what is free now (common_fit_params). Loads metadata, no weights.

    What is not at its default is left as it is. First the context is made smaller, if `n_ctx` is 0, then layers, or
    the experts of layers, stay in host memory, which is taken to be unlimited unless there is nothing but the CPU.

    Args:
        path: the model's file; the first one of a split model.
        margin: bytes to leave free on each device.
        n_ctx_min: the smallest context.
        model: options of `Model`: devices, rpc, split_mode, ...
        **context: options of `Context`; n_ctx=0: what the model was trained with, or less.

    Raises:
        ModelLoadError: the file cannot be read, or llama.cpp refuses these options; `.reason`.
        TypeError, ValueError: an option is unknown or out of range.
        DeviceError, UnsupportedError: as `Model`.
    """
    if unknown := set(context) - CONTEXT_OPTIONS:
        raise TypeError(f"Context has no option {min(unknown)!r}")
    margin = uint("margin", margin, 0, 2**62)
    n_ctx_min = uint("n_ctx_min", n_ctx_min, 0, _LONGEST)
    name = path_bytes(path)
    params, keep = _model_params.build(**(model or {}))
    wanted = {name: value for name, value in _DEFAULTS.items() if name != "check_memory"}
    ctx, callback = _context_params.build(**{**wanted, **context, "eval_callback": None})
    split = ffi.new("float[]", lib.llama_max_devices())
    overrides = ffi.new("struct llama_model_tensor_buft_override[]", lib.llama_max_tensor_buft_overrides())
    with _one_at_a_time:  # it redirects llama.cpp's log for a while
        found = lib.causerie_fit(name, params, ctx, split, overrides, margin, n_ctx_min)
    log = call_log()
    drain_log()
    reason = ""
    if found == lib.CAUSERIE_FIT_NONE:  # llama.cpp tells why in a log that only its own programs have
        reason = (
            log or f"llama.cpp finds no way to leave {format_bytes(margin)} free, and changes nothing that was given"
        )
    if found not in {lib.CAUSERIE_FIT_FOUND, lib.CAUSERIE_FIT_NONE}:
        check(f"fitting {path}", ModelLoadError, path=str(path), reason=log)
    if ctx.n_ctx == 0:
        ctx.n_ctx = n_ctx_min
    uses = read_uses(lambda out, room: lib.causerie_devices_needed(name, params, ctx, out, room))
    drain_log()
    del keep, callback
    return Fit(
        fits=not reason,
        reason=reason,
        n_gpu_layers=params.n_gpu_layers,
        n_ctx=ctx.n_ctx,
        tensor_split=_shares(split, len(uses) - 1),
        tensor_buft_overrides=MappingProxyType(dict(_overridden(overrides))),
        devices=uses,
    )


def _shares(split: Any, count: int) -> tuple[float, ...]:
    shares = tuple(split[i] for i in range(min(count, len(split))))
    return shares if any(shares) else ()


def _overridden(overrides: Any) -> list[tuple[str, str]]:
    found = []
    for entry in overrides:
        if entry.pattern == ffi.NULL:
            break
        name = ffi.string(lib.ggml_backend_buft_name(entry.buft)).decode("utf-8", "replace")
        found.append((ffi.string(entry.pattern).decode(), name))
    return found
