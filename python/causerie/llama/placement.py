"""Which devices a model uses: by name before it is loaded, and what of it is where afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.errors import CauserieError, DeviceError, UnsupportedError
from causerie.llama._errors import call_log, check
from causerie.llama._lib import ffi, lib, logger
from causerie.llama.device import Device, default_devices, describe, find_device
from causerie.llama.rpc import rpc_devices, rpc_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causerie.llama.context import Context
    from causerie.llama.model import Model

__all__ = ["DeviceUse", "chosen_devices", "device_uses", "find_devices", "read_uses", "require_on_devices"]


@dataclass(frozen=True)
class DeviceUse:
    """What of a model is on one device. All host memory is the CPU's.

    Attributes:
        name: ggml's name of the device, for example "CPU", "CUDA0", "RPC0".
        description: the device's own name; of an RPC server, its "host:port".
        kind: "cpu", "gpu", "igpu" or "accel".
        backend: the backend that drives it.
        layers: repeating layers that have most of their weights there.
        model_bytes, cache_bytes, compute_bytes: weights, KV cache or recurrent state, and compute buffers.
    """

    name: str
    description: str
    kind: str
    backend: str
    layers: int
    model_bytes: int
    cache_bytes: int
    compute_bytes: int

    @property
    def nbytes(self) -> int:
        """All bytes there."""
        return self.model_bytes + self.cache_bytes + self.compute_bytes


# ---- before loading ----


def find_devices(name: str) -> list[Device]:
    """The device of that name, or those of the server "RPC[host:port]".

    Raises:
        ValueError: no such device; the message lists those there are.
        DeviceError, UnsupportedError: as `rpc_devices`.
    """
    endpoint = rpc_endpoint(name)
    return [find_device(name)] if endpoint is None else rpc_devices(endpoint)


def chosen_devices(
    devices: Sequence[str | Device] | str | None, rpc: Sequence[str], *, strict: bool
) -> list[Device] | None:
    """What `Model(devices=..., rpc=..., strict=...)` names; None: llama.cpp's own choice. Servers come first.

    Raises:
        DeviceError: with `strict`, a device that nobody named does not start; without it, that one is left out.
        Exception: as `find_devices`.
    """
    if isinstance(rpc, str):
        rpc = (rpc,)
    remote = [device for endpoint in rpc for device in rpc_devices(endpoint)]
    if devices is None:
        found = default_devices()
        usable = [device for device in found if _starts(device, strict=strict)]
        return [*remote, *usable] if remote or len(usable) < len(found) else None
    named = (devices,) if isinstance(devices, str) else devices
    return [*remote, *(found for d in named for found in ([d] if isinstance(d, Device) else find_devices(d)))]


_started: set[Any] = set()


def _starts(device: Device, *, strict: bool) -> bool:
    """Whether a device's backend starts, tried until it has once (ggml_backend_dev_init)."""
    if device._pointer in _started:
        return True
    backend = lib.ggml_backend_dev_init(device._pointer, ffi.NULL)
    try:
        check(f"starting {device.name}")
    except CauserieError as error:
        reason = str(error)
    else:
        if backend != ffi.NULL:
            lib.ggml_backend_free(backend)
            _started.add(device._pointer)
            return True
        reason = f"starting {device.name}: {call_log() or 'no reason given'}"
    if strict:
        raise DeviceError(f"{device.name} ({device.description}) cannot be used: {reason}", device=device.name)
    logger.warning("%s (%s) is left out: %s", device.name, device.description, reason)
    return False


# ---- afterwards ----


def read_uses(read: Callable[[Any, int], int]) -> tuple[DeviceUse, ...]:
    """What a function with (causerie_device_use[], room) -> count writes.

    Raises:
        NativeError: it failed.
    """
    room = lib.llama_max_devices() + 8
    uses = ffi.new("struct causerie_device_use[]", room)
    count = read(uses, room)
    check("reading where a model is")
    return tuple(_use(uses[i]) for i in range(min(count, room)))


def _use(use: Any) -> DeviceUse:
    device = describe(use.device)
    return DeviceUse(
        device.name, device.description, device.kind, device.backend, use.layers, use.model, use.context, use.compute
    )


def device_uses(model: Model, context: Context | None = None) -> tuple[DeviceUse, ...]:
    """What of a model, and of a context, is on which device; the model's own devices first.

    Raises:
        ClosedError: the model, or the context, is closed.
    """
    with model._resource as pointer:
        if context is None:
            return read_uses(lambda uses, room: lib.causerie_devices_used(pointer, ffi.NULL, uses, room))
        with context._exclusive() as ctx:
            return read_uses(lambda uses, room: lib.causerie_devices_used(pointer, ctx, uses, room))


def require_on_devices(uses: Sequence[DeviceUse], n_gpu_layers: int) -> None:
    """UnsupportedError if fewer layers are on devices than were asked for.

    Args:
        uses: of the loaded model.
        n_gpu_layers: as `Model` is given it; llama.cpp counts the output layer as one more, and moves it first.
    """
    layers = sum(use.layers for use in uses)
    wanted = layers if n_gpu_layers < 0 else min(max(n_gpu_layers - 1, 0), layers)
    there = sum(use.layers for use in uses if use.kind != "cpu")
    if there < wanted:
        raise UnsupportedError(
            f"strict: {wanted} of {layers} layers were to be on other devices than the CPU, but {there} are; "
            "`causerie doctor` lists the devices, and says why others are not usable"
        )
