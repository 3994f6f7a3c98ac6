"""A loaded model file (the llama_model part of llama.h)."""

from __future__ import annotations

import os
import weakref
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from causerie.errors import UnsupportedError
from causerie.llama import _model_file as files
from causerie.llama._callbacks import Callback
from causerie.llama._errors import check
from causerie.llama._fingerprint import Fingerprint
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib, path_bytes
from causerie.llama._memory_check import require
from causerie.llama._model_load import load, metadata, read_text
from causerie.llama._model_params import LazyMode, LoadMode, SplitMode, build
from causerie.llama.placement import device_uses, require_on_devices
from causerie.llama.vocab import Vocab

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from causerie.llama.device import Device

__all__ = ["Model"]

# These look positions up in a table of n_ctx_train rows; beyond it ggml aborts on a worker thread. (Some MPT models
# have no such table, but llama.h does not tell.)
_TABLE_OF_POSITIONS = frozenset({"bert", "gpt2", "mpt", "starcoder"})
_ROPE_TYPES = {
    getattr(lib, f"LLAMA_ROPE_TYPE_{m.upper()}"): m for m in ("none", "norm", "neox", "mrope", "imrope", "vision")
}
_PAGE = 4096
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
        devices: names or `Device` objects to use, "RPC[host:port]" for those of a server; None: all GPUs there are;
            "cpu", or an empty list: the CPU alone.
        rpc: "host:port" of RPC servers whose devices are used too, before the others.
        strict: refuse to load where fewer layers would be on the devices than `n_gpu_layers` asks for, or a device that
            was not named does not start; otherwise it is left out, with a warning in the log.
        split_mode: how to split over several devices: "none", "layer", "row", "tensor".
        tensor_split: share of each device, any scale.
        main_gpu: index of the device to use alone with split_mode "none".
        load_mode: "auto", "none" (read), "mmap", "mlock", "mmap_mlock", "direct_io".
        lazy_mode: reading rows of marked tensors on demand: "off", "auto", "on".
        kv_overrides: metadata keys that shall read as another value.
        tensor_buft_overrides: regular expression on tensor names -> buffer type name.
        vocab_only: load metadata and vocabulary, no weights; such a model cannot have a context.
        no_alloc: as vocab_only, with all facts: what a model is, and where it would be, without its memory.
        check_tensors: validate the tensor data while loading.
        use_extra_bufts: repack weights for faster kernels.
        no_host: do not use host buffers of devices.
        load_mtp: load multi-token-prediction layers.
        check_memory: refuse a model whose weights are larger than the memory that is free.
        progress: called with 0.0 ... 1.0 while loading; returning False stops it, an exception too.

    Attributes:
        path: the first file's path, None for a file object.
        architecture: llama.cpp's name for it, for example "llama".
        n_vocab: number of token ids.
        n_ctx_train: positions the model was trained with.
        n_positions: positions there are, where the model has a table of them; None: any.
        n_embd, n_embd_inp, n_embd_out: width of the model, of its input and of its output embeddings.
        n_pos_embd: positions that one input embedding has (M-RoPE: 4; else 1).
        n_layer, n_layer_nextn, n_head, n_head_kv: counts of layers and heads.
        n_swa: width of the sliding window, 0 without one.
        size: bytes of all tensors.
        n_params: count of parameters.
        has_encoder, has_decoder, is_recurrent, is_hybrid, is_diffusion: kinds of model.
        rope_type, rope_freq_scale_train: position encoding.
        decoder_start_token: id a decoder starts with, None if the model does not say.
        ftype: name of the quantisation.
        desc: llama.cpp's one-line description.
        classifier_labels: one entry per output of a classifier, None where it has no label.
        devices: which of its layers and weights are on which device (`DeviceUse`).

    Raises:
        ModelLoadError: missing, empty, damaged or unknown file; `.path`, `.size`, `.reason`.
        DeviceError: an RPC server does not answer; or `strict`, and a device does not start; `.device`.
        UnsupportedError: `strict`, and not so many layers are on devices; or RPC is not built.
        OutOfMemoryError: the weights do not fit into free memory; `.needed`, `.available` in bytes.
        ValueError: an option is out of range or unknown.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | IO[bytes],
        *,
        n_gpu_layers: int = -1,
        devices: Sequence[str | Device] | str | None = None,
        rpc: Sequence[str] = (),
        strict: bool = False,
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
        no_alloc: bool = False,
        check_memory: bool = True,
        progress: Callable[[float], object] | None = None,
    ) -> None:
        params, keep = build(
            n_gpu_layers=n_gpu_layers, devices=devices, rpc=rpc, split_mode=split_mode, tensor_split=tensor_split,
            main_gpu=main_gpu, load_mode=load_mode, lazy_mode=lazy_mode, kv_overrides=kv_overrides,
            tensor_buft_overrides=tensor_buft_overrides, vocab_only=vocab_only, check_tensors=check_tensors,
            use_extra_bufts=use_extra_bufts, no_host=no_host, load_mtp=load_mtp, no_alloc=no_alloc, strict=strict,
        )  # fmt: skip
        self._params = params
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be callable, not {type(progress).__name__}")
        callback = Callback(progress) if progress is not None else None
        if callback is not None:
            params.progress_callback = lib.causerie_progress_callback()
            params.progress_callback_user_data = callback.handle

        self.vocab_only, self.no_alloc = bool(vocab_only), bool(no_alloc)
        what = files.inspect(source)
        self.path = what.path
        if what.position % _PAGE and load_mode == "auto":
            params.load_mode = lib.LLAMA_LOAD_MODE_NONE  # llama.cpp maps only what is aligned
        if check_memory and not (vocab_only or no_alloc) and not files.may_offload(params):
            require(f"the model {what.name}", what.size, "use a smaller quantisation, or check_memory=False")
        pointer = load(what, params, callback, kv_overrides or {})
        params.progress_callback = ffi.NULL
        self._own(Resource("model", pointer, lib.llama_model_free, keep=(params, keep)))
        self._vocab: weakref.ref[Vocab] | None = None
        self._read_facts(pointer)
        self._fingerprint = Fingerprint(what, self._metadata, dict(kv_overrides or {}))
        weakref.finalize(self, self._fingerprint.close)
        self.devices = device_uses(self)
        if strict and not vocab_only and not _on_the_cpu_alone(params):
            try:
                require_on_devices(self.devices, params.n_gpu_layers)
            except UnsupportedError:
                self.close()
                raise
        drain_log()

    def _read_facts(self, p: Any) -> None:
        self._metadata = MappingProxyType(dict(metadata(p)))
        self.architecture: str = self._metadata.get("general.architecture", "")
        self.n_vocab: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(p))
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(p)
        self.n_positions: int | None = self.n_ctx_train if self.architecture in _TABLE_OF_POSITIONS else None
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
        self.n_pos_embd: int = lib.GGML_MROPE_SECTIONS if self.rope_type in {"mrope", "imrope"} else 1
        self.rope_freq_scale_train: float = lib.llama_model_rope_freq_scale_train(p)
        start = lib.llama_model_decoder_start_token(p)
        self.decoder_start_token: int | None = None if start == lib.LLAMA_TOKEN_NULL else start
        name = lib.llama_ftype_name(lib.llama_model_ftype(p))
        self.ftype: str = "" if name == ffi.NULL else ffi.string(name).decode("utf-8", "replace")
        self.desc: str = read_text(lambda buf, size: lib.llama_model_desc(p, buf, size)) or ""
        labels = (lib.llama_model_cls_label(p, i) for i in range(lib.llama_model_n_cls_out(p)))
        self.classifier_labels: tuple[str | None, ...] = tuple(
            None if label == ffi.NULL else ffi.string(label).decode("utf-8", "replace") for label in labels
        )
        check("reading the model's facts")

    @property
    def vocab(self) -> Vocab:
        """The model's vocabulary. It pins the model, so the model only remembers it weakly."""
        vocab = None if self._vocab is None else self._vocab()
        if vocab is None:
            vocab = Vocab(self)
            self._vocab = weakref.ref(vocab)
        return vocab

    def close(self) -> None:
        """See `Handle.close`."""
        super().close()
        self._fingerprint.close()

    @property
    def fingerprint(self) -> str:
        """32 hex digits that tell its content (metadata, tensors, samples of their data) from that of other models.

        Computed when it is first asked for, of the files that were loaded, whatever has become of their paths.

        Raises:
            OSError, ModelLoadError: a file has been damaged.
        """
        with self._resource:
            return self._fingerprint.get()

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
        if name is not None and "\0" in name:
            raise ValueError(f"the name of a chat template cannot contain a NUL character: {name!r}")
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
        """Write the model as one GGUF file (llama_model_save_to_file), which replaces an old one only when it is whole.

        Raises:
            OSError: the file cannot be written.
            NativeError: llama.cpp cannot save this architecture.
        """
        path_bytes(path)
        with self._resource as pointer, files.replaced(path) as temporary:
            lib.llama_model_save_to_file(pointer, path_bytes(temporary))
            check(f"saving the model to {os.fspath(path)}")
        drain_log()

    def __repr__(self) -> str:
        return f"<Model {self.desc} {'closed' if self.closed else 'open'}>"


def _on_the_cpu_alone(params: Any) -> bool:
    return bool(params.devices != ffi.NULL and params.devices[0] == ffi.NULL)
