"""An allocation that llama.cpp was denied: on which device, how much, and what is free there."""

from __future__ import annotations

import re

from causerie.errors import OutOfMemoryError
from causerie.llama._lib import ffi, lib
from causerie.llama._memory_check import available_memory, format_bytes
from causerie.llama.device import Device, devices

__all__ = ["denied", "out_of_memory"]

_NO_MEMORY = re.compile(
    r"insufficient memory|(failed|unable) to allocate|cannot allocate memory|out of memory|ErrorOutOf\w+Memory",
    re.IGNORECASE,
)
# Without a type it is the CPU's.
_BUFFER = re.compile(r"failed to allocate (?:(?P<type>\S+) )?buffer of size (?P<size>\d+)(?![\d.])")


def out_of_memory(log: str) -> bool:
    """Whether llama.cpp's log says that an allocation failed."""
    return _NO_MEMORY.search(log) is not None


def denied(operation: str, log: str, needed: int | None = None) -> OutOfMemoryError:
    """The error for a log of which `out_of_memory` is true.

    Args:
        operation: what failed.
        log: llama.cpp's words.
        needed: bytes in all, where they are known; otherwise, and of another device than the CPU, those that were
            denied at once are told.
    """
    match = _BUFFER.search(log)
    size = None if match is None else int(match["size"])
    kind = None if match is None else match["type"]
    device = None if kind is None else _device_of(kind)
    if size is None or kind is None or (device is not None and device.kind == "cpu"):
        return OutOfMemoryError(f"{operation}: {log}", needed=needed or size, available=available_memory())
    name = kind if device is None else device.name
    free = "" if device is None else f", {format_bytes(device.memory_free)} of whose memory are free"
    return OutOfMemoryError(
        f"{operation}: {format_bytes(size)} at once were denied by {name}{free}; leave layers to the CPU "
        f"(n_gpu_layers), or use a smaller n_ctx, cache type or model ({log})",
        needed=size,
        available=None if device is None else device.memory_free,
    )


def _device_of(buffer_type: str) -> Device | None:
    """The device that allocates buffers of a type of that name."""
    for device in devices():
        for function in (lib.ggml_backend_dev_buffer_type, lib.ggml_backend_dev_host_buffer_type):
            buft = function(device._pointer)
            if buft != ffi.NULL and ffi.string(lib.ggml_backend_buft_name(buft)).decode() == buffer_type:
                return device
    return None
