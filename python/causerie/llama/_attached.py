"""What a context has attached, LoRA adapters and a control vector, and when an adapter may be freed."""

from __future__ import annotations

import math
import threading
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import NativeError
from causerie.llama._errors import call_log
from causerie.llama._handle import Resource, _counts
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._params import FLOAT_MAX, uint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from causerie.llama.adapter import LoraAdapter
    from causerie.llama.context import Context
    from causerie.llama.control_vector import ControlVector
    from causerie.llama.model import Model

__all__ = ["Attached", "adapters_stay", "registry_of", "set_adapters", "set_control_vector"]


class _Registry:
    """Frees the adapters of one model only while no context of it evaluates.

    llama.cpp keeps a set of a model's adapters, changes it on load and free, and walks it unlocked in llama_decode.
    """

    def __init__(self, model: Model) -> None:
        self._model = weakref.ref(model)
        self._dead: list[Any] = []
        self._lock = threading.RLock()

    @contextmanager
    def quiet(self, *, wait: bool) -> Iterator[bool]:
        """True while every context of the model is held; without `wait`, False if one is busy."""
        model = self._model()
        with _counts:
            children = [] if model is None else list(model._children)
        locks = [child._lock for child in sorted(children, key=id) if hasattr(child, "_lock")]
        with ExitStack() as held:
            for lock in (self._lock, *locks):
                if not lock.acquire(blocking=wait):
                    yield False
                    return
                held.callback(lock.release)
            yield True

    def free(self, pointer: Any) -> None:
        """Free an adapter now, or with the next one, or with the model (llama_adapter_lora_free, llama_model_free)."""
        self._dead.append(pointer)
        with self.quiet(wait=False) as quiet:  # runs in finalizers, on any thread: it must not wait for anybody
            if quiet:
                self.sweep()

    def sweep(self) -> None:
        """Free what could not be freed before; to be called inside `quiet`."""
        while self._dead:
            lib.llama_adapter_lora_free(self._dead.pop())


_registries: weakref.WeakKeyDictionary[Model, _Registry] = weakref.WeakKeyDictionary()


def registry_of(model: Model) -> _Registry:
    """The one of a model."""
    with _counts:
        return _registries.setdefault(model, _Registry(model))


def adapters_stay(model: Model) -> threading.RLock:
    """A lock under which no adapter of the model is loaded or freed: a context that is being made walks them too."""
    return registry_of(model)._lock


class Attached:
    """The adapters that one context uses, kept alive for it."""

    def __init__(self) -> None:
        self.pairs: tuple[tuple[LoraAdapter, float], ...] = ()
        self._claimed: list[Resource] = []
        weakref.finalize(self, _release, self._claimed).atexit = False

    def replace(self, pairs: Sequence[tuple[LoraAdapter, float]]) -> None:
        """Claim the new ones, then let the old ones go."""
        new = [adapter._resource for adapter, _ in pairs]
        for resource in new:
            resource.claim()
        old = self._claimed[:]
        self._claimed[:] = new
        self.pairs = tuple(pairs)
        _release(old)


def _release(claimed: list[Resource]) -> None:
    while claimed:
        claimed.pop().release()


def set_adapters(context: Context, adapters: Sequence[tuple[LoraAdapter, float]]) -> None:
    """`Context.set_adapters`."""
    from causerie.llama.adapter import LoraAdapter

    pairs = [(adapter, float(scale)) for adapter, scale in adapters]
    for adapter, scale in pairs:
        if not isinstance(adapter, LoraAdapter):
            raise TypeError(f"adapters must be (LoraAdapter, scale) pairs, not {type(adapter).__name__}")
        if adapter.model is not context.model:
            raise ValueError(f"{adapter!r} was loaded for another model")
        if not math.isfinite(scale) or abs(scale) > FLOAT_MAX:
            raise ValueError(f"scale must be a finite float32, not {scale}")
    if len({id(adapter) for adapter, _ in pairs}) != len(pairs):
        raise ValueError("an adapter can be attached only once: add up its scales instead")
    with context._exclusive() as pointer, ExitStack() as stack:
        pointers = [stack.enter_context(adapter._resource) for adapter, _ in pairs]
        lib.llama_set_adapters_lora(
            pointer, ffi.new("struct llama_adapter_lora *[]", pointers), len(pairs),
            ffi.new("float[]", [scale for _, scale in pairs]),
        )  # fmt: skip
        context._check("attaching adapters")
        context._attached.replace(pairs)


def set_control_vector(
    context: Context, vector: ControlVector | None, layer_range: tuple[int, int] | None = None
) -> None:
    """`Context.set_control_vector`."""
    n_embd, n_layer = context.model.n_embd, context.model.n_layer
    if vector is None:
        data, first, last = None, -1, -1
    else:
        if vector.data.shape[1] != n_embd:
            raise ValueError(f"the control vector has n_embd={vector.data.shape[1]}, the model {n_embd}")
        if len(vector.data) > n_layer:
            raise ValueError(f"the control vector has {len(vector.data)} layers, the model {n_layer}")
        first, last = layer_range if layer_range is not None else (1, n_layer - 1)
        uint("first layer", first, 1, n_layer - 1)
        uint("last layer", last, first, n_layer - 1)
        # llama.cpp's array begins with layer 1, and a layer that it does not reach keeps its direction from before.
        data = np.zeros((n_layer - 1, n_embd), np.float32)
        data[: len(vector.data) - 1] = vector.data[1:]
    with context._exclusive() as pointer:
        floats = ffi.NULL if data is None else ffi.from_buffer("float[]", data)
        code = lib.llama_set_adapter_cvec(pointer, floats, 0 if data is None else data.size, n_embd, first, last)
        log = call_log()
        context._check("setting the control vector")
        drain_log()
        if code != 0:
            raise NativeError(f"llama.cpp refused the control vector: {log or code}")
