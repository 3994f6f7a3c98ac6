"""The options of a model, checked and turned into llama_model_params."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from causerie.llama._lib import ffi, lib
from causerie.llama._params import choice, set_devices, set_overrides, uint
from causerie.llama.device import require_cpu
from causerie.llama.placement import chosen_devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causerie.llama.device import Device

__all__ = ["LazyMode", "LoadMode", "SplitMode", "build"]

SplitMode = Literal["none", "layer", "row", "tensor"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap_mlock", "direct_io"]
LazyMode = Literal["off", "auto", "on"]

_SPLIT_MODES = {m: getattr(lib, f"LLAMA_SPLIT_MODE_{m.upper()}") for m in ("none", "layer", "row", "tensor")}
_LOAD_MODES = {
    m: getattr(lib, f"LLAMA_LOAD_MODE_{m.upper()}")
    for m in ("auto", "none", "mmap", "mlock", "mmap_mlock", "direct_io")
}
_LAZY_MODES = {m: getattr(lib, f"LLAMA_LAZY_MODE_{m.upper()}") for m in ("off", "auto", "on")}
_INT32_MAX = 2**31 - 1


def build(
    *, n_gpu_layers: int = -1, devices: Sequence[str | Device] | str | None = None, rpc: Sequence[str] = (),
    split_mode: SplitMode = "layer", tensor_split: Sequence[float] | None = None, main_gpu: int = 0,
    load_mode: LoadMode = "auto", lazy_mode: LazyMode = "auto",
    kv_overrides: Mapping[str, int | float | bool | str] | None = None,
    tensor_buft_overrides: Mapping[str, str] | None = None, vocab_only: bool = False, check_tensors: bool = False,
    use_extra_bufts: bool = True, no_host: bool = False, load_mtp: bool = False, no_alloc: bool = False,
    strict: bool = False,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """A llama_model_params and the memory it points into.

    Raises:
        ValueError: an option is out of range or unknown.
        DeviceError, UnsupportedError: as `rpc_devices` and `require_cpu`.
    """
    if not vocab_only:
        require_cpu()
    params = ffi.new("struct llama_model_params *", lib.llama_model_default_params())
    params.n_gpu_layers = uint("n_gpu_layers", n_gpu_layers, -1, _INT32_MAX)
    params.split_mode = choice("split_mode", split_mode, _SPLIT_MODES)
    params.load_mode = choice("load_mode", load_mode, _LOAD_MODES)
    params.lazy_mode = choice("lazy_mode", lazy_mode, _LAZY_MODES)
    params.main_gpu = uint("main_gpu", main_gpu, 0, _INT32_MAX)
    params.vocab_only, params.check_tensors = bool(vocab_only), bool(check_tensors)
    params.use_extra_bufts, params.no_host, params.load_mtp = bool(use_extra_bufts), bool(no_host), bool(load_mtp)
    params.no_alloc = bool(no_alloc)
    if no_alloc:  # there is nothing to map
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE
    keep = set_devices(params, chosen_devices(devices, rpc, strict=strict), tensor_split)
    return params, keep + set_overrides(params, kv_overrides, tensor_buft_overrides)
