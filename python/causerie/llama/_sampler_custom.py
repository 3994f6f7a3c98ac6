"""Samplers written in Python: what native code calls, and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from causerie.errors import UnsupportedError
from causerie.llama._callbacks import CustomSampler
from causerie.llama._lib import ffi
from causerie.llama._sampler_options import finite_or_minus_inf
from causerie.llama._sampler_part import TOKEN_DATA, Candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causerie.llama._sampler_base import SamplerBase

__all__ = ["CustomFunction", "build"]

CustomFunction = Callable[[Candidates], Union[int, "NDArray[Any]", Sequence[float], None]]


def build(
    function: CustomFunction,
    accept: Callable[[int], object] | None,
    reset: Callable[[], object] | None,
    clone: Callable[[], SamplerBase] | None,
) -> CustomSampler:
    """What answers native calls with these functions."""
    for name, value in (("function", function), ("accept", accept), ("reset", reset), ("clone", clone)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {type(value).__name__}")
    if function is None:
        raise TypeError("function must be callable, not None")
    copy: Callable[[], CustomSampler] | None = None
    if clone is not None:
        copy = partial(_clone, clone)
    elif accept is not None or reset is not None:
        copy = _refuse_clone
    return CustomSampler(partial(_apply, function), _discard(accept), _discard(reset), copy)


def _discard(function: Callable[..., object] | None) -> Callable[..., None] | None:
    return None if function is None else partial(_call, function)


def _call(function: Callable[..., object], *args: Any) -> None:
    function(*args)


def _view(array: Any) -> NDArray[Any]:
    """The native candidates, valid only as long as native code waits."""
    return np.frombuffer(ffi.buffer(array.data, array.size * TOKEN_DATA.itemsize), TOKEN_DATA)


def _apply(function: CustomFunction, array: Any) -> None:
    """Call the function with copies, so that nothing it keeps can outlive native memory; write back what it answers."""
    if not array.size:
        return
    data = _view(array)
    ids, logits = data["id"].copy(), data["logit"].copy()
    del data  # a traceback may keep this frame, and show its variables later
    ids.flags.writeable = False
    selected = int(ids[array.selected]) if 0 <= array.selected < array.size else None
    answer = function(Candidates(ids, logits, selected))
    index = None
    if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
        (found,) = np.nonzero(ids == answer)
        if not found.size:
            raise ValueError(f"a custom sampler chose token {answer}, which is not among its {ids.size} candidates")
        index = int(found[0])
    elif answer is not None:
        logits = _row(answer, ids.size)
    finite_or_minus_inf(logits, "the logits that a custom sampler left")
    _write_back(array, logits.reshape(ids.size), index)


def _row(answer: Any, size: int) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            row = np.asarray(answer, np.float32)
    except (TypeError, ValueError):
        row = None
    if row is None or isinstance(answer, bool) or row.ndim != 1:
        raise TypeError(
            f"a custom sampler must return None, a token id, or logits as a flat array, not {type(answer).__name__}"
        )
    if row.size != size:
        raise ValueError(f"a custom sampler returned {row.size} logits for {size} candidates")
    return row


def _write_back(array: Any, logits: NDArray[np.float32], index: int | None) -> None:
    data = _view(array)
    if (data["logit"] != logits).any():
        data["logit"] = logits
        array.sorted = False
    if index is not None:
        array.selected = index


def _clone(clone: Callable[[], SamplerBase]) -> CustomSampler:
    copy = clone()
    part = getattr(copy, "_part", None)
    if part is None or part.kind != "custom" or part.custom is None or copy.closed or copy._running:
        raise TypeError(f"clone() of a custom sampler must return a new Sampler.custom(...), not {copy!r}")
    functions: CustomSampler = part.custom
    copy.close()
    return functions


def _refuse_clone() -> CustomSampler:
    raise UnsupportedError(
        "this custom sampler has accept or reset, so it keeps state that a copy must not share: give it clone="
    )
