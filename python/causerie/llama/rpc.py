"""Devices of other machines, by llama.cpp's RPC backend: using them, and offering those of this machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from causerie.errors import DeviceError, UnsupportedError
from causerie.llama._lib import drain_log, ffi, lib, path_bytes
from causerie.llama.device import describe, devices, require_cpu

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from causerie.llama.device import Device

__all__ = ["rpc_devices", "rpc_endpoint", "rpc_serve"]

_ENDPOINT = re.compile(r"([^:\[\]\s/]+):([0-9]{1,5})")
_NAME = re.compile(r"RPC\[(.*)\]")


def rpc_endpoint(name: str) -> str | None:
    """The "host:port" of a device name "RPC[host:port]"; None: it is another kind of name."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1]


def _checked(endpoint: str) -> bytes:
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match[2]) < 2**16:
        raise ValueError(f'an RPC server is named "host:port", not {endpoint!r}')
    if not lib.llama_supports_rpc():
        raise UnsupportedError("causerie was built without the RPC backend: pip install . -C cmake.define.GGML_RPC=ON")
    return endpoint.encode()


def _reason() -> str:
    drain_log()
    message: str = ffi.string(lib.causerie_error_message()).decode("utf-8", "replace")
    return message.partition(": ")[2].strip() or message


def rpc_devices(endpoint: str) -> list[Device]:
    """The devices that a server offers (ggml_backend_rpc_add_server).

    llama.cpp ends the process if a server that is in use goes away; `causerie.Engine(isolate=True)` keeps that from
    this process. A server has one client at a time: a second one waits until the first has closed its models.

    Args:
        endpoint: "host:port".

    Raises:
        UnsupportedError: this build has no RPC backend.
        DeviceError: no server answers there, or it speaks another version; `.device`.
        ValueError: that is no endpoint.
    """
    registry = lib.causerie_rpc_add_server(_checked(endpoint))
    if registry == ffi.NULL:
        raise DeviceError(f"no RPC server can be used at {endpoint}: {_reason()}", device=f"RPC[{endpoint}]")
    drain_log()
    count = lib.ggml_backend_reg_dev_count(registry)
    return [describe(lib.ggml_backend_reg_dev_get(registry, i)) for i in range(count)]


def rpc_serve(
    endpoint: str,
    *,
    devices: Sequence[Device] = (),
    n_threads: int = 1,
    cache_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Offer devices of this machine to one client after the other; does not return (ggml_backend_rpc_start_server).

    There is no authentication and no encryption: whoever reaches the port can read and write this process' memory.
    llama.cpp writes to stdout what it does.

    Args:
        endpoint: the numeric IPv4 address to listen at, and the port, "127.0.0.1:50052".
        devices: none: all but the CPU, or the CPU where there is nothing else.
        n_threads: for the CPU.
        cache_dir: an existing folder where large tensors are kept, so that they are sent once.

    Raises:
        UnsupportedError: this build has no RPC backend.
        DeviceError: the port cannot be used, the server stopped, or there is no device.
        ValueError: that is no endpoint.
    """
    where = _checked(endpoint)
    pointers = [device._pointer for device in devices or served_devices()]
    if not pointers:
        require_cpu()
    folder: Any = ffi.NULL if cache_dir is None else path_bytes(cache_dir)
    lib.causerie_rpc_serve(where, folder, n_threads, ffi.new("ggml_backend_dev_t[]", pointers), len(pointers))
    raise DeviceError(f"cannot serve at {endpoint}: {_reason()}", device=f"RPC[{endpoint}]")


def served_devices() -> list[Device]:
    """What is offered where nothing is chosen."""
    found = devices()
    return [d for d in found if d.kind in {"gpu", "igpu"}] or [d for d in found if d.kind == "cpu"]
