"""What is in a GGUF file: its tensors and where their data lies (gguf.h)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from causerie.errors import ModelLoadError
from causerie.llama._errors import call_log, check
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._params import ggml_types

__all__ = ["Tensor", "read_tensors", "weight_types"]


@cache
def weight_types() -> frozenset[str]:
    """Tensor types that weights can have: those that ggml can multiply with, and quantise to.

    Others (integers, and formats of intermediate results) abort on a worker thread, where nothing catches it.
    """
    return frozenset(
        name for name, i in ggml_types().items() if name == "f32" or lib.ggml_get_type_traits(i).to_float != ffi.NULL
    )


@dataclass(frozen=True)
class Tensor:
    """One tensor of a GGUF file.

    Attributes:
        name: its name.
        type: ggml's name of its type, for example "f32".
        shape: ggml's `ne`: four lengths, the first one that of a row.
        offset: where its data begins, in bytes from the start of the file.
        size: bytes of data.
    """

    name: str
    type: str
    shape: tuple[int, int, int, int]
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Where its data ends, in bytes from the start of the file."""
        return self.offset + self.size


def read_tensors(stream: Any, *, path: str, size: int) -> list[Tensor]:
    """The tensors of the GGUF that starts at the position of a C stream (FILE *), which moves.

    Args:
        stream: FILE *.
        path: named in errors.
        size: bytes of the GGUF, told in errors.

    Raises:
        ModelLoadError: not a GGUF file, or damaged; `.path`, `.size`, `.reason`.
    """
    params = ffi.new("struct gguf_init_params *")
    params.no_alloc = True
    context = lib.gguf_init_from_file_ptr(stream, params[0])
    log = call_log()
    try:
        check(f"cannot read {path}", ModelLoadError, path=path, size=size, reason=log)
        drain_log()
        if context == ffi.NULL:
            reason = log or "not a GGUF file"
            raise ModelLoadError(f"cannot read {path}: {reason}", path=path, size=size, reason=reason)
        found = [_tensor(context, i) for i in range(lib.gguf_get_n_tensors(context))]
        check(f"cannot read the tensors of {path}", ModelLoadError, path=path, size=size, reason=call_log())
    finally:
        if context != ffi.NULL:
            lib.gguf_free(context)
    return found


def _tensor(context: Any, i: int) -> Tensor:
    ne = lib.gguf_get_tensor_ne(context, i)
    return Tensor(
        name=ffi.string(lib.gguf_get_tensor_name(context, i)).decode("utf-8", "replace"),
        type=ffi.string(lib.ggml_type_name(lib.gguf_get_tensor_type(context, i))).decode(),
        shape=(int(ne[0]), int(ne[1]), int(ne[2]), int(ne[3])),
        offset=int(lib.gguf_get_data_offset(context) + lib.gguf_get_tensor_offset(context, i)),
        size=int(lib.gguf_get_tensor_size(context, i)),
    )
