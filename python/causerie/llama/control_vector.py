"""Control vectors: directions added to what a model's layers put out, per context (llama_set_adapter_cvec)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from causerie.errors import ModelLoadError
from causerie.llama import _model_file as files
from causerie.llama._gguf import read_tensors
from causerie.llama._params import uint

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike, NDArray

__all__ = ["ControlVector"]

_DIRECTION = re.compile(r"^direction\.([1-9][0-9]*)$")


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
                raw = file.read(tensor.size)
                if len(raw) != tensor.size:
                    raise _vector_error(what, f"tensor {tensor.name} is cut off: the file is truncated")
                rows[int(layer[1])] = np.frombuffer(raw, "<f4") * np.float32(scale)
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
