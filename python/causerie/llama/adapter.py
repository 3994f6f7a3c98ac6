"""LoRA adapters: changes to a model's weights, per context (the adapter part of llama.h)."""

from __future__ import annotations

import math
import threading
import weakref
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from causerie.errors import ModelLoadError, NativeError
from causerie.llama import _model_file as files
from causerie.llama._errors import call_log, check
from causerie.llama._gguf import Tensor, read_tensors, weight_types
from causerie.llama._handle import Handle, Resource, _counts
from causerie.llama._lib import drain_log, ffi, lib

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from causerie.llama.context import Context
    from causerie.llama.model import Model

__all__ = ["Attached", "LoraAdapter", "adapters_stay", "set_adapters"]

_FLOAT_MAX = float(np.finfo(np.float32).max)


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


def _registry(model: Model) -> _Registry:
    with _counts:
        return _registries.setdefault(model, _Registry(model))


def adapters_stay(model: Model) -> threading.RLock:
    """A lock under which no adapter of the model is loaded or freed: a context that is being made walks them too."""
    return _registry(model)._lock


class LoraAdapter(Handle):
    """A LoRA adapter, loaded for one model (llama_adapter_lora_init); closed with it. Thread-safe.

    It does nothing until `Context.set_adapters` attaches it. Closing it while it is attached lets the contexts that
    use it go on; its memory is freed when the last one lets go of it.
    Loading waits for evaluations that contexts of the model are running.

    Args:
        model: the base model.
        source: a GGUF file's path, or a binary file object, read from its position.

    Attributes:
        model: the base model.
        path: the file's path, None for a file object.

    Raises:
        ModelLoadError: missing, empty or damaged file, no LoRA adapter, or made for another model; `.path`, `.size`,
            `.reason`.
    """

    def __init__(self, model: Model, source: str | os.PathLike[str] | IO[bytes]) -> None:
        what = files.inspect(source)
        self.model = model
        self.path = what.path
        with model._resource as parent, ExitStack() as stack:
            file = what.stream or stack.enter_context(what.paths[0].open("rb"))
            with files.opened_stream(file) as stream:
                reason = _unusable(read_tensors(stream, path=what.name, size=what.size), model)
            if reason:
                raise _load_error(what, reason)
            registry = _registry(model)
            with files.opened_stream(file) as stream, registry.quiet(wait=True):
                registry.sweep()
                pointer = lib.llama_adapter_lora_init_from_file_ptr(parent, stream)
                log = call_log()
                try:
                    check("loading a LoRA adapter", ModelLoadError)
                except (ModelLoadError, NativeError) as error:  # an assertion about the file; the model is untouched
                    raise _load_error(what, str(error)) from None
            if pointer == ffi.NULL:
                raise _load_error(what, log or "no reason given")
            self._own(Resource("LoRA adapter", pointer, registry.free, model._resource), model)
        drain_log()

    @property
    def metadata(self) -> Mapping[str, str]:
        """The file's scalar metadata (llama_adapter_meta_*)."""
        with self._resource as pointer:
            found = {}
            for i in range(lib.llama_adapter_meta_count(pointer)):
                key = _text(lambda buf, size, i=i: lib.llama_adapter_meta_key_by_index(pointer, i, buf, size))
                found[key] = _text(
                    lambda buf, size, i=i: lib.llama_adapter_meta_val_str_by_index(pointer, i, buf, size)
                )
            check("reading an adapter's metadata")
            return MappingProxyType(found)

    @property
    def alora_invocation_tokens(self) -> NDArray[np.int32]:
        """Tokens after which an activated LoRA shall be attached, int32 (n,); none in an ordinary one."""
        with self._resource as pointer:
            count = lib.llama_adapter_get_alora_n_invocation_tokens(pointer)
            if not count:
                return np.zeros(0, np.int32)
            tokens = lib.llama_adapter_get_alora_invocation_tokens(pointer)
            found: NDArray[np.int32] = np.frombuffer(ffi.buffer(tokens, 4 * count), np.int32).copy()
            return found

    def __repr__(self) -> str:
        return f"<LoraAdapter {self.path or ''} {'closed' if self.closed else 'open'}>"


def _text(read: Any) -> str:
    """What a function with (buffer, size) -> length writes; llama.cpp's length excludes the final zero."""
    size = 256
    while True:
        buf = ffi.new("char[]", size)
        length = read(buf, size)
        if length < size:
            return bytes(ffi.buffer(buf, max(length, 0))).decode("utf-8", "replace")
        size = length + 1


def _load_error(what: files.ModelFile, reason: str) -> ModelLoadError:
    drain_log()
    message = f"cannot load the LoRA adapter {what.name} ({what.size} bytes): {reason}"
    return ModelLoadError(message, path=what.name, size=what.size, reason=reason)


def _unusable(tensors: Sequence[Tensor], model: Model) -> str:
    """Why llama.cpp would take these tensors and then stop at an assertion during evaluation; empty if it would not."""
    arch = model.metadata.get("general.architecture")
    n_expert = int(model.metadata.get(f"{arch}.expert_count", 1))
    pairs: dict[str, dict[str, Tensor]] = {}
    for tensor in tensors:
        name, _, side = tensor.name.rpartition(".")
        if side not in {"lora_a", "lora_b"}:
            continue  # llama.cpp refuses it, or skips it
        if tensor.type not in weight_types():
            return f"tensor {tensor.name} is of type {tensor.type}, which cannot be multiplied with"
        experts = n_expert if "_exps" in name else 1
        if tensor.shape[3] != 1 or (tensor.shape[2] != experts and not name.endswith("_b.weight")):
            return f"tensor {tensor.name} has shape {tensor.shape}, which does not fit the model's {experts} experts"
        pairs.setdefault(name, {})[side] = tensor
    for name, pair in pairs.items():
        if len(pair) == 2 and name.endswith("token_embd.weight") and pair["lora_a"].shape[0] != pair["lora_b"].shape[0]:
            return f"the two tensors for {name} differ in rank"
    return ""


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
    pairs = [(adapter, float(scale)) for adapter, scale in adapters]
    for adapter, scale in pairs:
        if not isinstance(adapter, LoraAdapter):
            raise TypeError(f"adapters must be (LoraAdapter, scale) pairs, not {type(adapter).__name__}")
        if adapter.model is not context.model:
            raise ValueError(f"{adapter!r} was loaded for another model")
        if not math.isfinite(scale) or abs(scale) > _FLOAT_MAX:
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
