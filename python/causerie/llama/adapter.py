"""LoRA adapters and control vectors: changes to what a model computes, per context (the adapter part of llama.h)."""

from __future__ import annotations

import math
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from causerie.errors import ModelLoadError, NativeError
from causerie.llama import _model_file as files
from causerie.llama._errors import call_log, check
from causerie.llama._gguf import Tensor, read_tensors, weight_types
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._params import uint

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from causerie.llama.context import Context
    from causerie.llama.model import Model

__all__ = ["Attached", "ControlVector", "LoraAdapter"]

_DIRECTION = re.compile(r"^direction\.([1-9][0-9]*)$")


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


class LoraAdapter(Handle):
    """A LoRA adapter, loaded for one model (llama_adapter_lora_init); closed with it. Thread-safe.

    It does nothing until `Context.set_adapters` attaches it. Closing it while it is attached lets the contexts that
    use it go on; its memory is freed when the last one lets go of it.

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
            registry = _registries.setdefault(model, _Registry(model))
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
                found[key] = _text(lambda buf, size, i=i: lib.llama_adapter_meta_val_str_by_index(pointer, i, buf, size))
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
            return np.frombuffer(ffi.buffer(tokens, 4 * count), np.int32).copy()

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
    """Why llama.cpp would accept these tensors and then stop at an assertion during evaluation; empty if it would not."""
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
        if not math.isfinite(scale) or abs(scale) > np.finfo(np.float32).max:
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


class ControlVector:
    """Directions that are added to the output of a model's layers.

    Args:
        data: float32 of shape (layers, n_embd), row i for layer i; or a mapping of layers to vectors of n_embd. Layer
            0 has none in llama.cpp: row 0 of an array is ignored.

    Attributes:
        data: float32 (layers, n_embd), read-only; zeros where there is no direction.

    Raises:
        ValueError: another shape, or values that are not finite.
    """

    def __init__(self, data: ArrayLike | Mapping[int, ArrayLike]) -> None:
        array = _stack(data) if isinstance(data, Mapping) else np.array(data, np.float32)
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"a control vector has shape (layers, n_embd), not {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError("a control vector must hold finite numbers")
        array[0] = 0
        array.flags.writeable = False
        self.data: NDArray[np.float32] = array

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, scale: float = 1.0) -> ControlVector:
        """Read a GGUF file with float32 tensors named `direction.<layer>`, times `scale`.

        Raises:
            ModelLoadError: missing, empty or damaged file, or no control vector; `.path`, `.size`, `.reason`.
        """
        what = files.inspect(path)
        with Path(path).open("rb") as file:
            with files.opened_stream(file) as stream:
                tensors = read_tensors(stream, path=what.name, size=what.size)
            rows = {}
            for tensor in tensors:
                layer = _DIRECTION.match(tensor.name)
                if layer is None or tensor.type != "f32" or tensor.shape[1:] != (1, 1, 1):
                    reason = f"tensor {tensor.name} ({tensor.type} {tensor.shape}) is no direction of a layer"
                    raise _vector_error(what, reason)
                file.seek(tensor.offset)
                rows[int(layer[1])] = np.frombuffer(file.read(tensor.size), "<f4") * np.float32(scale)
        try:
            return cls(rows)
        except ValueError as error:
            raise _vector_error(what, str(error)) from None

    def __repr__(self) -> str:
        return f"<ControlVector {self.data.shape[0]} layers, n_embd={self.data.shape[1]}>"


def _vector_error(what: files.ModelFile, reason: str) -> ModelLoadError:
    message = f"cannot load the control vector {what.name} ({what.size} bytes): {reason}"
    return ModelLoadError(message, path=what.name, size=what.size, reason=reason)


def _stack(rows: Mapping[int, ArrayLike]) -> NDArray[np.float32]:
    vectors = {uint("layer", layer, 1, 2**16): np.asarray(row, np.float32) for layer, row in rows.items()}
    if not vectors:
        raise ValueError("a control vector needs a direction for one layer at least")
    widths = {vector.shape for vector in vectors.values()}
    if len(widths) != 1 or len(next(iter(widths))) != 1:
        raise ValueError(f"all directions must be flat and of one length, not {sorted(widths)}")
    array = np.zeros((max(vectors) + 1, *widths.pop()), np.float32)
    for layer, vector in vectors.items():
        array[layer] = vector
    return array


def set_control_vector(
    context: Context, vector: ControlVector | None, layer_range: tuple[int, int] | None = None
) -> None:
    """`Context.set_control_vector`."""
    n_embd, n_layer = context.model.n_embd, context.model.n_layer
    data = first = last = None
    if vector is not None:
        if vector.data.shape[1] != n_embd:
            raise ValueError(f"the control vector has n_embd={vector.data.shape[1]}, the model {n_embd}")
        if len(vector.data) > n_layer:
            raise ValueError(f"the control vector has {len(vector.data)} layers, the model {n_layer}")
        first, last = layer_range if layer_range is not None else (1, n_layer - 1)
        uint("first layer", first, 1, max(1, n_layer - 1))
        uint("last layer", last, 0 if layer_range is None else first, n_layer - 1)
        # Layers beyond `len` would keep the directions of an earlier vector.
        data = np.zeros((n_layer, n_embd), np.float32)
        data[: len(vector.data)] = vector.data
    with context._exclusive() as pointer:
        if data is None:
            code = lib.llama_set_adapter_cvec(pointer, ffi.NULL, 0, n_embd, -1, -1)
        else:
            below = data[1:]  # llama.cpp's array begins with layer 1
            code = lib.llama_set_adapter_cvec(
                pointer, ffi.from_buffer("float[]", below), below.size, n_embd, first, last
            )
        log = call_log()
        context._check("setting the control vector")
        drain_log()
        if code != 0:
            raise NativeError(f"llama.cpp refused the control vector: {log or code}")
