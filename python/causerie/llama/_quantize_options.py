"""The options of quantisation, checked and turned into llama_model_quantize_params.

llama.cpp quantises on threads of its own, where a failed check ends the process: what could fail there is refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.llama._context_params import default_threads
from causerie.llama._gguf import Tensor, weight_types
from causerie.llama._lib import ffi, lib
from causerie.llama._params import choice, ggml_types, kv_overrides, uint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["QuantizeOptions", "build", "ftypes"]

_UNQUANTIZED = frozenset({"F32", "F16", "BF16"})
# Tensors that llama.cpp does not check for missing importance, and quantises to any type that was asked for.
_SPECIAL = ("token_embd.weight", "per_layer_token_embd.weight", "output.weight")
_MAX_PATTERN = 1000
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """How to quantise (llama_model_quantize_params).

    Attributes:
        ftype: mixture of tensor types by its name, for example "Q8_0", "Q4_K_M", "F16".
        output_tensor_type: type of the output matrix, for example "q6_K"; None: as the mixture says.
        token_embedding_type: type of the token embeddings; None: as the mixture says.
        tensor_types: ECMAScript regular expression on tensor names -> type; the first that matches counts.
        imatrix: tensor name -> importance of each column, float32 (row length x number of experts,), none negative.
        kv_overrides: metadata that the new file shall have.
        prune_layers: layers to leave out.
        n_threads: threads to work with; None: the processors there are.
        allow_requantize: quantise what is quantised already, at a loss.
        quantize_output_tensor: also the output matrix.
        only_copy: change no tensor (merges split files, writes `kv_overrides`).
        pure: the mixture's base type for all tensors.
        keep_split: as many files as the source has.
        dry_run: only work out the size; writes nothing.
        max_buf_size: bytes of a tensor's rows to have in memory at once; 0: llama.cpp's default (8 GiB).
    """

    ftype: str = "Q8_0"
    output_tensor_type: str | None = None
    token_embedding_type: str | None = None
    tensor_types: Mapping[str, str] = field(default_factory=dict)
    imatrix: Mapping[str, ArrayLike] | None = None
    kv_overrides: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    prune_layers: Sequence[int] = ()
    n_threads: int | None = None
    allow_requantize: bool = False
    quantize_output_tensor: bool = True
    only_copy: bool = False
    pure: bool = False
    keep_split: bool = False
    dry_run: bool = False
    max_buf_size: int = 0


@cache
def ftypes() -> dict[str, int]:
    """Names of mixtures that llama.cpp can write -> llama_ftype."""
    names = {n: n.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_") for n in dir(lib)}
    return {
        short: getattr(lib, name)
        for name, short in names.items()
        if name.startswith("LLAMA_FTYPE_") and short not in {"GUESSED", "NVFP4"}
    }


def _weight_type(name: str, value: str) -> int:
    return choice(name, value, {n: i for n, i in ggml_types().items() if n in weight_types()})


def build(options: QuantizeOptions, tensors: Mapping[str, Tensor]) -> tuple[Any, list[Any]]:
    """A llama_model_quantize_params for a model with these tensors, and the memory it points into.

    Raises:
        TypeError: an option is of another type.
        ValueError: an option is unknown, out of range, or does not fit the model.
    """
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype = choice("ftype", options.ftype, ftypes())
    params.nthread = (
        min(default_threads(), lib.GGML_MAX_N_THREADS)
        if options.n_threads is None
        else uint("n_threads", options.n_threads, 1, lib.GGML_MAX_N_THREADS)
    )
    if options.output_tensor_type is not None:
        params.output_tensor_type = _weight_type("output_tensor_type", options.output_tensor_type)
    if options.token_embedding_type is not None:
        params.token_embedding_type = _weight_type("token_embedding_type", options.token_embedding_type)
    for name in ("allow_requantize", "quantize_output_tensor", "only_copy", "pure", "keep_split", "dry_run"):
        setattr(params, name, bool(getattr(options, name)))
    params.max_buf_size = uint("max_buf_size", options.max_buf_size, 0, 2**62)
    keep: list[Any] = []
    _set_tensor_types(params, options, keep)
    importance = _set_imatrix(params, options, tensors, keep)
    if options.kv_overrides:
        for key, value in options.kv_overrides.items():
            if isinstance(value, int) and not isinstance(value, bool):
                uint(f"kv_overrides[{key!r}]", value)  # written as uint32
        params.kv_overrides = overrides = kv_overrides(options.kv_overrides)
        keep.append(overrides)
    if options.prune_layers:
        params.prune_layers = pruned = ffi.new("int32_t[]", [*_pruned(options.prune_layers, tensors), -1])
        keep.append(pruned)
    if not options.only_copy:
        _check_special(options, tensors, importance)
    return params, keep


def _set_tensor_types(params: Any, options: QuantizeOptions, keep: list[Any]) -> None:
    if not options.tensor_types:
        return
    if options.only_copy or options.ftype in _UNQUANTIZED:
        raise ValueError("tensor_types count only where ftype is a quantised one and tensors are not only copied")
    table = ffi.new("struct llama_model_tensor_override[]", len(options.tensor_types) + 1)
    for entry, (pattern, kind) in zip(table, options.tensor_types.items(), strict=False):
        raw = pattern.encode()
        if not 0 < len(raw) <= _MAX_PATTERN or b"\0" in raw:
            raise ValueError(f"a pattern of tensor_types must have 1 to {_MAX_PATTERN} bytes: {pattern!r}")
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"tensor_types: {pattern!r} is not a regular expression: {error}") from None
        text = ffi.new("char[]", raw)
        entry.pattern, entry.type = text, _weight_type(f"tensor_types[{pattern!r}]", kind)
        keep.append(text)
    params.tt_overrides = table
    keep.append(table)


def _set_imatrix(
    params: Any, options: QuantizeOptions, tensors: Mapping[str, Tensor], keep: list[Any]
) -> dict[str, NDArray[np.float32]]:
    importance: dict[str, NDArray[np.float32]] = {}
    if options.imatrix is None:
        return importance
    table = ffi.new("struct llama_model_imatrix_data[]", len(options.imatrix) + 1)
    for entry, (name, values) in zip(table, options.imatrix.items(), strict=False):
        array = importance[name] = np.ascontiguousarray(values, np.float32)
        if array.ndim != 1 or not array.size or not np.isfinite(array).all() or array.min() < 0:
            raise ValueError(f"imatrix[{name!r}] must be a flat array of finite numbers >= 0")
        tensor = tensors.get(name)
        if tensor is not None and array.size != _columns(tensor):
            raise ValueError(f"imatrix[{name!r}] has {array.size} values, the tensor needs {_columns(tensor)}")
        text, data = ffi.new("char[]", name.encode()), ffi.from_buffer("float[]", array)
        entry.name, entry.data, entry.size = text, data, array.size
        keep += [text, data]
    params.imatrix = table
    keep.append(table)
    return importance


def _columns(tensor: Tensor) -> int:
    return tensor.shape[0] * tensor.shape[2]


def _pruned(layers: Sequence[int], tensors: Mapping[str, Tensor]) -> list[int]:
    found = {int(match[1]) for match in (re.match(r"blk\.(\d+)\.", name) for name in tensors) if match}
    chosen = sorted({uint("prune_layers", int(layer), 0, _INT32_MAX) for layer in layers})
    if not found.issuperset(chosen) or len(chosen) == len(found):
        raise ValueError(f"prune_layers must name some, not all, of the {len(found)} layers, not {chosen}")
    return chosen


def _check_special(
    options: QuantizeOptions, tensors: Mapping[str, Tensor], importance: Mapping[str, NDArray[np.float32]]
) -> None:
    """Tensors for which llama.cpp takes the type that was asked for as it is."""
    types = ggml_types()
    for name in _SPECIAL:
        tensor = tensors.get(name)
        if tensor is None:
            continue
        explicit = options.output_tensor_type if name == "output.weight" else options.token_embedding_type
        if explicit is not None and tensor.shape[0] % lib.ggml_blck_size(types[explicit]):
            raise ValueError(f"{name} has rows of {tensor.shape[0]} numbers, which type {explicit} cannot hold")
        asked = {options.output_tensor_type, options.token_embedding_type} - {None}
        asked |= {kind for pattern, kind in options.tensor_types.items() if re.search(pattern, name)}
        low = any(lib.ggml_quantize_requires_imatrix(types[kind]) for kind in asked if kind is not None)
        low |= options.pure and options.ftype.startswith(("IQ1", "IQ2"))
        if low and name not in importance:
            raise ValueError(f"so few bits need an imatrix entry for {name}: give one, or another type for this tensor")
