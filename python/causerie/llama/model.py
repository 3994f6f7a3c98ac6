"""A loaded model file (the llama_model part of llama.h)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Literal

from causerie.errors import ModelLoadError
from causerie.llama import _model_file as files
from causerie.llama._callbacks import Callback
from causerie.llama._errors import call_log, check
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib, path_bytes
from causerie.llama._memory_check import require
from causerie.llama._params import choice, set_devices, set_overrides, uint
from causerie.llama.vocab import Vocab

if TYPE_CHECKING:
    from causerie.llama.device import Device

__all__ = ["Model"]

SplitMode = Literal["none", "layer", "row", "tensor"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap_mlock", "direct_io"]
LazyMode = Literal["off", "auto", "on"]

_SPLIT_MODES = {m: getattr(lib, f"LLAMA_SPLIT_MODE_{m.upper()}") for m in ("none", "layer", "row", "tensor")}
_LOAD_MODES = {
    m: getattr(lib, f"LLAMA_LOAD_MODE_{m.upper()}")
    for m in ("auto", "none", "mmap", "mlock", "mmap_mlock", "direct_io")
}
_LAZY_MODES = {m: getattr(lib, f"LLAMA_LAZY_MODE_{m.upper()}") for m in ("off", "auto", "on")}
_ROPE_TYPES = {
    getattr(lib, f"LLAMA_ROPE_TYPE_{m.upper()}"): m for m in ("none", "norm", "neox", "mrope", "imrope", "vision")
}
_INT32_MAX = 2**31 - 1
_SAMPLING_KEYS = (
    "sequence", "top_k", "top_p", "min_p", "xtc_probability", "xtc_threshold", "temp", "penalty_last_n",
    "penalty_repeat", "mirostat", "mirostat_tau", "mirostat_eta",
)  # fmt: skip


class Model(Handle):
    """A model in memory (llama_model_load_from_file and its kin). Thread-safe.

    Args:
        source: a path; several paths of one split model in order (the first of a set named
            `<name>-00001-of-0000N.gguf` is enough); or a binary file object, read from its position.
        n_gpu_layers: layers to keep on devices other than the CPU; -1: all.
        devices: names or `Device` objects to use; None: all there are; an empty list: the CPU alone.
        split_mode: how to split over several devices: "none", "layer", "row", "tensor".
        tensor_split: share of each device, any scale.
        main_gpu: index of the device to use alone with split_mode "none".
        load_mode: "auto", "none" (read), "mmap", "mlock", "mmap_mlock", "direct_io".
        lazy_mode: reading rows of marked tensors on demand: "off", "auto", "on".
        kv_overrides: metadata keys that shall read as another value.
        tensor_buft_overrides: regular expression on tensor names -> buffer type name.
        vocab_only: load metadata and vocabulary, no weights; such a model cannot have a context.
        check_tensors: validate the tensor data while loading.
        use_extra_bufts: repack weights for faster kernels.
        no_host: do not use host buffers of devices.
        load_mtp: load multi-token-prediction layers.
        check_memory: refuse a model whose weights are larger than the memory that is free.
        progress: called with 0.0 ... 1.0 while loading; returning False stops it, an exception too.

    Attributes:
        path: the first file's path, None for a file object.
        vocab: the model's `Vocab`.

    Raises:
        ModelLoadError: missing, empty, damaged or unknown file; `.path`, `.size`, `.reason`.
        OutOfMemoryError: the weights do not fit into free memory; `.needed`, `.available` in bytes.
        ValueError: an option is out of range or unknown.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | IO[bytes],
        *,
        n_gpu_layers: int = -1,
        devices: Sequence[str | Device] | None = None,
        split_mode: SplitMode = "layer",
        tensor_split: Sequence[float] | None = None,
        main_gpu: int = 0,
        load_mode: LoadMode = "auto",
        lazy_mode: LazyMode = "auto",
        kv_overrides: Mapping[str, int | float | bool | str] | None = None,
        tensor_buft_overrides: Mapping[str, str] | None = None,
        vocab_only: bool = False,
        check_tensors: bool = False,
        use_extra_bufts: bool = True,
        no_host: bool = False,
        load_mtp: bool = False,
        check_memory: bool = True,
        progress: Callable[[float], object] | None = None,
    ) -> None:
        self._params = params = ffi.new("struct llama_model_params *", lib.llama_model_default_params())
        params.n_gpu_layers = uint("n_gpu_layers", n_gpu_layers, -1, _INT32_MAX)
        params.split_mode = choice("split_mode", split_mode, _SPLIT_MODES)
        params.load_mode = choice("load_mode", load_mode, _LOAD_MODES)
        params.lazy_mode = choice("lazy_mode", lazy_mode, _LAZY_MODES)
        params.main_gpu = uint("main_gpu", main_gpu, 0, _INT32_MAX)
        params.vocab_only, params.check_tensors = bool(vocab_only), bool(check_tensors)
        params.use_extra_bufts, params.no_host, params.load_mtp = bool(use_extra_bufts), bool(no_host), bool(load_mtp)
        keep = set_devices(params, devices, tensor_split) + set_overrides(params, kv_overrides, tensor_buft_overrides)
        callback = Callback(progress) if progress is not None else None
        if callback is not None:
            params.progress_callback = lib.causerie_progress_callback()
            params.progress_callback_user_data = callback.handle

        self.vocab_only = bool(vocab_only)
        what = files.inspect(source)
        self.path = what.path
        if check_memory and not vocab_only and not files.may_offload(params):
            require(f"the model {what.name}", what.size, "use a smaller quantisation, or check_memory=False")
        pointer = self._load(what, params, callback)
        params.progress_callback = ffi.NULL
        self._own(Resource("model", pointer, lib.llama_model_free, keep=(params, keep)))
        self.vocab = Vocab(self)
        self._read_facts(pointer)
        drain_log()

    @staticmethod
    def _load(what: files.ModelFile, params: Any, callback: Callback | None) -> Any:
        facts = {"path": what.name, "size": what.size}
        with what.opened() as (paths, stream):
            if stream is not None:
                pointer = lib.llama_model_load_from_file_ptr(stream, params[0])
            elif len(paths) > 1:
                raw = [ffi.new("char[]", path_bytes(p)) for p in paths]
                pointer = lib.llama_model_load_from_splits(ffi.new("char *[]", raw), len(raw), params[0])
            else:
                pointer = lib.llama_model_load_from_file(path_bytes(paths[0]), params[0])
            log = call_log()
            operation = f"cannot load {what.name} ({what.size} bytes)"
            if callback is not None and pointer == ffi.NULL:
                callback.reraise()
            check(operation, ModelLoadError, reason=log, **facts)
        if pointer == ffi.NULL:
            drain_log()
            reason = log or "the progress callback stopped it"
            raise ModelLoadError(f"{operation}: {reason}", reason=reason, **facts)
        if callback is not None and callback.error is not None:  # raised at 1.0, when nothing was left to stop
            lib.llama_model_free(pointer)
            callback.reraise()
        return pointer

    def _read_facts(self, p: Any) -> None:
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(p)
        self.n_embd: int = lib.llama_model_n_embd(p)
        self.n_embd_inp: int = lib.llama_model_n_embd_inp(p)
        self.n_embd_out: int = lib.llama_model_n_embd_out(p)
        self.n_layer: int = lib.llama_model_n_layer(p)
        self.n_layer_nextn: int = lib.llama_model_n_layer_nextn(p)
        self.n_head: int = lib.llama_model_n_head(p)
        self.n_head_kv: int = lib.llama_model_n_head_kv(p)
        self.n_swa: int = lib.llama_model_n_swa(p)
        self.size: int = lib.llama_model_size(p)
        self.n_params: int = lib.llama_model_n_params(p)
        self.has_encoder: bool = lib.llama_model_has_encoder(p)
        self.has_decoder: bool = lib.llama_model_has_decoder(p)
        self.is_recurrent: bool = lib.llama_model_is_recurrent(p)
        self.is_hybrid: bool = lib.llama_model_is_hybrid(p)
        self.is_diffusion: bool = lib.llama_model_is_diffusion(p)
        self.rope_type: str = _ROPE_TYPES.get(lib.llama_model_rope_type(p), "unknown")
        self.rope_freq_scale_train: float = lib.llama_model_rope_freq_scale_train(p)
        start = lib.llama_model_decoder_start_token(p)
        self.decoder_start_token: int | None = None if start == lib.LLAMA_TOKEN_NULL else start
        name = lib.llama_ftype_name(lib.llama_model_ftype(p))
        self.ftype: str = "" if name == ffi.NULL else ffi.string(name).decode("utf-8", "replace")
        self.desc: str = self._string(lambda buf, size: lib.llama_model_desc(p, buf, size)) or ""
        self._metadata = MappingProxyType(dict(self._read_metadata(p)))
        labels = (lib.llama_model_cls_label(p, i) for i in range(lib.llama_model_n_cls_out(p)))
        self.classifier_labels: tuple[str | None, ...] = tuple(
            None if label == ffi.NULL else ffi.string(label).decode("utf-8", "replace") for label in labels
        )
        check("reading the model's facts")

    @staticmethod
    def _string(read: Callable[[Any, int], int]) -> str | None:
        """What a function with (buffer, size) -> length writes; llama.cpp's length excludes the final zero."""
        size = 256
        while True:
            buf = ffi.new("char[]", size)
            length = read(buf, size)
            if length < 0:
                return None
            if length < size:
                return bytes(ffi.buffer(buf, length)).decode("utf-8", "replace")
            size = length + 1

    def _read_metadata(self, p: Any) -> list[tuple[str, str]]:
        found = []
        for i in range(lib.llama_model_meta_count(p)):
            key = self._string(lambda buf, size, i=i: lib.llama_model_meta_key_by_index(p, i, buf, size))
            value = self._string(lambda buf, size, i=i: lib.llama_model_meta_val_str_by_index(p, i, buf, size))
            if key is not None and value is not None:
                found.append((key, value))
        return found

    @property
    def metadata(self) -> Mapping[str, str]:
        """The file's metadata, as llama.cpp renders the values (llama_model_meta_*)."""
        with self._resource:
            return self._metadata

    def chat_template(self, name: str | None = None) -> str | None:
        """The Jinja source of a chat template (llama_model_chat_template); None if the file has none of that name.

        Args:
            name: a named template such as "tool_use"; None: the default one.
        """
        raw = ffi.NULL if name is None else name.encode()
        with self._resource as pointer:
            text = lib.llama_model_chat_template(pointer, raw)
            check("reading the chat template")
            return None if text == ffi.NULL else ffi.string(text).decode("utf-8", "replace")

    @property
    def sampling_defaults(self) -> Mapping[str, str]:
        """Sampling settings that the model's file recommends, by llama.h's short names ("temp", "top_k", ...)."""
        found = {}
        for name in _SAMPLING_KEYS:
            key = lib.llama_model_meta_key_str(getattr(lib, f"LLAMA_MODEL_META_KEY_SAMPLING_{name.upper()}"))
            value = self.metadata.get(ffi.string(key).decode())
            if value is not None:
                found[name] = value
        return MappingProxyType(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one GGUF file (llama_model_save_to_file).

        Raises:
            OSError: the file cannot be written.
        """
        with open(path, "ab"):  # noqa: PTH123 - llama.cpp does not tell why it could not write: this does
            pass
        with self._resource as pointer:
            lib.llama_model_save_to_file(pointer, path_bytes(path))
            check(f"saving the model to {os.fspath(path)}")
        drain_log()

    def __repr__(self) -> str:
        return f"<Model {self.desc} {'closed' if self.closed else 'open'}>"
