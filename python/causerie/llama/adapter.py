"""LoRA adapters: changes to a model's weights, per context (the adapter part of llama.h)."""

from __future__ import annotations

from contextlib import ExitStack
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from causerie.errors import ModelLoadError, NativeError
from causerie.llama import _model_file as files
from causerie.llama._attached import registry_of
from causerie.llama._errors import call_log, check
from causerie.llama._gguf import Tensor, read_tensors, weight_types
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from causerie.llama.model import Model

__all__ = ["LoraAdapter"]


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
        fingerprint: 32 hex digits of its content's SHA-256.

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
            fingerprint = _digest(file)
            registry = registry_of(model)
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
        self.fingerprint = fingerprint
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


def _digest(file: IO[bytes]) -> str:
    """Of all that is behind the position, which stays. Adapters differ where samples, as of a model, may not look."""
    import hashlib  # loads OpenSSL

    position, digest = file.tell(), hashlib.sha256(usedforsecurity=False)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    file.seek(position)
    return digest.hexdigest()[:32]


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
