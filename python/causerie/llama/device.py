"""Devices and buffer types by name (ggml-backend.h)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from causerie.errors import CauserieError, DeviceError
from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib, plugins

__all__ = [
    "Device",
    "buffer_type",
    "buffer_types",
    "default_devices",
    "describe",
    "devices",
    "find_device",
    "require_cpu",
]

_KINDS = {
    lib.GGML_BACKEND_DEVICE_TYPE_CPU: "cpu",
    lib.GGML_BACKEND_DEVICE_TYPE_GPU: "gpu",
    lib.GGML_BACKEND_DEVICE_TYPE_IGPU: "igpu",
    lib.GGML_BACKEND_DEVICE_TYPE_ACCEL: "accel",
}


@dataclass(frozen=True)
class Device:
    """A device that a compiled backend found on this machine.

    Attributes:
        name: ggml's name, for example "CPU", "CUDA0", "Vulkan0".
        description: the device's own name.
        kind: "cpu", "gpu", "igpu" or "accel".
        backend: name of the backend that drives it.
        memory_free: bytes free when the device was listed (0 if the backend does not tell).
        memory_total: bytes in all.
    """

    name: str
    description: str
    kind: str
    backend: str
    memory_free: int
    memory_total: int
    _pointer: Any = field(repr=False, compare=False)


def _text(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")


def describe(pointer: Any) -> Device:
    """The device behind a ggml_backend_dev_t."""
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    lib.ggml_backend_dev_memory(pointer, free, total)
    with suppress(CauserieError):  # of another machine, which is gone: it has no memory to offer
        check("reading a device's memory")
    return Device(
        name=_text(lib.ggml_backend_dev_name(pointer)),
        description=_text(lib.ggml_backend_dev_description(pointer)),
        kind=_KINDS.get(lib.ggml_backend_dev_type(pointer), "unknown"),
        backend=_text(lib.ggml_backend_reg_name(lib.ggml_backend_dev_backend_reg(pointer))),
        memory_free=int(free[0]),
        memory_total=int(total[0]),
        _pointer=pointer,
    )


def devices() -> list[Device]:
    """All devices of all compiled backends, in ggml's order (ggml_backend_dev_get)."""
    return [describe(lib.ggml_backend_dev_get(i)) for i in range(lib.ggml_backend_dev_count())]


def default_devices() -> list[Device]:
    """Those that work is moved to where none are named: GPUs, each once, or integrated ones where there is no other."""
    found = devices()
    gpus: dict[str, Device] = {}
    for device in found:
        if device.kind == "gpu":
            props = ffi.new("struct ggml_backend_dev_props *")
            lib.ggml_backend_dev_get_props(device._pointer, props)
            gpus.setdefault(_text(props.device_id) or device.name, device)  # two backends may drive the same one
    return list(gpus.values()) or [device for device in found if device.kind == "igpu"]


def find_device(name: str) -> Device:
    """The device of that name (ggml_backend_dev_by_name).

    Raises:
        ValueError: no such device; the message lists those there are.
    """
    if "\0" not in name:
        pointer = lib.ggml_backend_dev_by_name(name.encode())
        if pointer != ffi.NULL:
            return describe(pointer)
    raise ValueError(f"no device named {name!r}; found: {', '.join(d.name for d in devices()) or 'none'}")


def require_cpu() -> None:
    """llama.cpp needs the CPU's backend for every model, also where all layers are elsewhere.

    Raises:
        DeviceError: there is none, as its plugins are missing or cannot be used here.
    """
    if lib.ggml_backend_dev_by_type(lib.GGML_BACKEND_DEVICE_TYPE_CPU) == ffi.NULL:
        problems = [p.problem for p in plugins() if p.backend == "cpu" and p.problem]
        reason = problems[0] if problems else "no plugin for it was found"
        raise DeviceError(f"there is no CPU backend: {reason}; `causerie doctor` tells more", device="CPU")


def buffer_types() -> dict[str, Any]:
    """Buffer types by name: where tensors can be placed (`Model(tensor_buft_overrides=...)`)."""
    found: dict[str, Any] = {}
    for device in devices():
        for function in (lib.ggml_backend_dev_buffer_type, lib.ggml_backend_dev_host_buffer_type):
            buft = function(device._pointer)
            if buft != ffi.NULL:
                found.setdefault(_text(lib.ggml_backend_buft_name(buft)), buft)
    return found


def buffer_type(name: str) -> Any:
    """The buffer type of that name, as a raw pointer.

    Raises:
        ValueError: no such buffer type; the message lists those there are.
    """
    known = buffer_types()
    if name not in known:
        raise ValueError(f"no buffer type named {name!r}; found: {', '.join(known)}")
    return known[name]
