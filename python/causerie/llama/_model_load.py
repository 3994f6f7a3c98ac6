"""Loading a model: which of llama.cpp's functions opens it, and what its failures mean."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from causerie.errors import ModelLoadError, NativeError, OutOfMemoryError
from causerie.llama._denied import denied, out_of_memory
from causerie.llama._errors import call_log, check
from causerie.llama._lib import drain_log, ffi, lib, path_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from causerie.llama._callbacks import Callback
    from causerie.llama._model_file import ModelFile

__all__ = ["load", "metadata", "read_text"]

# Warnings about the vocabulary, and that the whole has failed because a part has.
_NOISE = re.compile(
    r"(load: |llama_model_load_from_file_impl: |(llama_model_load: )?error loading model: llama_model_loader: ).*"
)
_STOPPED = "the progress callback stopped it"


def load(what: ModelFile, params: Any, callback: Callback | None, overrides: Mapping[str, object]) -> Any:
    """The llama_model of a file.

    Raises:
        ModelLoadError: with llama.cpp's reason.
        OutOfMemoryError: llama.cpp could not allocate its memory.
        BaseException: what the progress callback raised.
    """
    with what.opened() as (paths, stream):
        pointer = _open(paths, stream, params)
        log = call_log()
        try:
            check("loading a model", ModelLoadError)
        except OutOfMemoryError:
            raise
        except (ModelLoadError, NativeError) as error:  # an assertion about the file: nothing else was touched
            log = f"{log}; {error}" if log else str(error)
    drain_log()
    if callback is not None and callback.error is not None:
        if pointer != ffi.NULL:  # raised at 1.0, when nothing was left to stop
            lib.llama_model_free(pointer)
        callback.reraise()
    if pointer == ffi.NULL:
        reason = _STOPPED if callback is not None and callback.stopped else _reason(log)
        if out_of_memory(log):
            raise denied(f"cannot load {what.name} ({what.size} bytes)", reason, what.size)
        raise _error(what, reason)
    if reason := _unusable({**dict(metadata(pointer)), **overrides}) or _unusable_weight(pointer):
        lib.llama_model_free(pointer)
        raise _error(what, reason)
    return pointer


def _open(paths: tuple[Any, ...], stream: Any, params: Any) -> Any:
    if stream is not None:
        return lib.llama_model_load_from_file_ptr(stream, params[0])
    if len(paths) == 1:
        return lib.llama_model_load_from_file(path_bytes(paths[0]), params[0])
    raw = [ffi.new("char[]", path_bytes(p)) for p in paths]
    return lib.llama_model_load_from_splits(ffi.new("char *[]", raw), len(raw), params[0])


def _error(what: ModelFile, reason: str) -> ModelLoadError:
    message = f"cannot load {what.name} ({what.size} bytes): {reason}"
    return ModelLoadError(message, path=what.name, size=what.size, reason=reason)


def _reason(log: str) -> str:
    """What of llama.cpp's log tells why."""
    lines = [line for line in log.split("; ") if not _NOISE.fullmatch(line)]
    return "; ".join(lines).removeprefix("llama_model_load: ").removeprefix("error loading model: ") or log


def _unusable(facts: Mapping[str, object]) -> str:
    """Why llama.cpp would load a model and then abort when it computes; empty if it would not."""
    for key, value in facts.items():
        if key.endswith("_epsilon") and not 0 <= _number(value) < math.inf:
            return f"{key} is {value}"
    return ""


def _unusable_weight(pointer: Any) -> str:
    """Which tensor llama.cpp would abort on when it computes; empty if none."""
    weight = ffi.new("struct causerie_weight *")
    if lib.causerie_weights_usable(pointer, weight):
        return ""
    if weight.name == ffi.NULL:
        return ffi.string(lib.causerie_error_message()).decode("utf-8", "replace")
    name = ffi.string(weight.name).decode("utf-8", "replace")
    if weight.out_of_range:
        return f"tensor {name} holds ids that are out of range"
    kind = ffi.string(lib.ggml_type_name(weight.type)).decode()
    return f"tensor {name} is of type {kind}, which llama.cpp cannot compute with there"


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0


def read_text(read: Callable[[Any, int], int]) -> str | None:
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


def metadata(model: Any) -> Iterator[tuple[str, str]]:
    """The keys and values of a llama_model's metadata (llama_model_meta_*)."""
    for i in range(lib.llama_model_meta_count(model)):
        key = read_text(partial(lib.llama_model_meta_key_by_index, model, i))
        value = read_text(partial(lib.llama_model_meta_val_str_by_index, model, i))
        if key is not None and value is not None:
            yield key, value
