"""Turns typed keyword arguments into llama.h's parameter structs, with the memory those point into."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from causerie.llama._lib import ffi, lib
from causerie.llama.device import buffer_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causerie.llama.device import Device

__all__ = ["FLOAT_MAX", "choice", "ggml_types", "kv_overrides", "set_devices", "set_overrides", "uint"]

FLOAT_MAX = (2 - 2**-23) * 2.0**127  # the largest float32; numpy.finfo costs 0.7 MB of memory
_UINT32_MAX = 2**32 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_KEY_BYTES = 127


def choice(name: str, value: str, table: Mapping[str, int]) -> int:
    """The enum value that `value` names.

    Raises:
        ValueError: not one of the table's names.
    """
    if value not in table:
        raise ValueError(f"{name} must be one of {', '.join(table)}, not {value!r}")
    return table[value]


def uint(name: str, value: SupportsIndex, low: int = 0, high: int = _UINT32_MAX) -> int:
    """`value` as an int, if it is one (numpy's count too) in low..high.

    Raises:
        TypeError: not an int.
        ValueError: out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    number = operator.index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} must be in {low}..{high}, not {number}")
    return number


def ggml_types() -> dict[str, int]:
    """Tensor types by ggml's name ("f16", "q8_0", ...)."""
    found = {}
    for i in range(lib.GGML_TYPE_COUNT):
        name = lib.ggml_type_name(i)
        if name != ffi.NULL and lib.ggml_blck_size(i) > 0:
            found[ffi.string(name).decode()] = i
    return found


def kv_overrides(values: Mapping[str, int | float | bool | str]) -> Any:
    """A terminated llama_model_kv_override[] for metadata keys that shall read as something else."""
    array = ffi.new("struct llama_model_kv_override[]", len(values) + 1)
    for entry, (key, value) in zip(array, values.items(), strict=False):
        raw = key.encode()
        if not raw or len(raw) > _KEY_BYTES or b"\0" in raw:
            raise ValueError(f"kv_overrides key must have 1 to {_KEY_BYTES} bytes: {key!r}")
        ffi.memmove(entry.key, raw + b"\0", len(raw) + 1)
        if isinstance(value, bool):
            entry.tag = lib.LLAMA_KV_OVERRIDE_TYPE_BOOL
            entry.val_bool = value
        elif isinstance(value, int):
            entry.tag = lib.LLAMA_KV_OVERRIDE_TYPE_INT
            entry.val_i64 = uint(f"kv_overrides[{key!r}]", value, _INT64_MIN, _INT64_MAX)
        elif isinstance(value, float):
            entry.tag = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT
            entry.val_f64 = value
        elif isinstance(value, str):
            text = value.encode()
            if len(text) > _KEY_BYTES or b"\0" in text:
                raise ValueError(f"kv_overrides[{key!r}] may have at most {_KEY_BYTES} bytes")
            entry.tag = lib.LLAMA_KV_OVERRIDE_TYPE_STR
            ffi.memmove(entry.val_str, text + b"\0", len(text) + 1)
        else:
            raise TypeError(f"kv_overrides[{key!r}] must be int, float, bool or str, not {type(value).__name__}")
    return array


def set_devices(params: Any, devices: Sequence[Device] | None, tensor_split: Sequence[float] | None) -> list[Any]:
    """Set devices and their shares; returns the memory that must outlive the call."""
    keep: list[Any] = []
    if devices is not None:
        # llama.cpp counts the CPU as always there and wants only what work can be moved to.
        pointers = [d._pointer for d in devices if d.kind != "cpu"]
        params.devices = array = ffi.new("ggml_backend_dev_t[]", [*pointers, ffi.NULL])
        keep.append(array)
    if tensor_split is not None:
        room = lib.llama_max_devices()
        shares = [float(x) for x in tensor_split]
        if len(shares) > room or any(not 0 <= x < float("inf") for x in shares):
            raise ValueError(f"tensor_split must hold at most {room} finite shares >= 0, not {shares}")
        params.tensor_split = split = ffi.new("float[]", room)
        for i, share in enumerate(shares):
            split[i] = share
        keep.append(split)
    return keep


def set_overrides(
    params: Any, metadata: Mapping[str, int | float | bool | str] | None, buffers: Mapping[str, str] | None
) -> list[Any]:
    """Set metadata and tensor placement overrides; returns the memory that must outlive the model."""
    keep: list[Any] = []
    if metadata:
        params.kv_overrides = array = kv_overrides(metadata)
        keep.append(array)
    if buffers:
        room = lib.llama_max_tensor_buft_overrides() - 1
        if len(buffers) > room:
            raise ValueError(f"tensor_buft_overrides may have at most {room} entries, not {len(buffers)}")
        table = ffi.new("struct llama_model_tensor_buft_override[]", len(buffers) + 1)
        for entry, (pattern, name) in zip(table, buffers.items(), strict=False):
            text = ffi.new("char[]", pattern.encode())
            entry.pattern, entry.buft = text, buffer_type(name)
            keep.append(text)
        params.tensor_buft_overrides = table
        keep.append(table)
    return keep
