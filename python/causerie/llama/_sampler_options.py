"""Checks of sampler options: llama.cpp computes with whatever it is given."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from causerie.llama._lib import lib
from causerie.llama._params import FLOAT_MAX, uint

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["INT32_MAX", "LARGE", "MAX_HISTORY", "count", "finite_or_minus_inf", "number", "probability", "seed_value"]

INT32_MAX = 2**31 - 1
# Tokens that penalties and DRY can remember: more than any context, and not gigabytes.
MAX_HISTORY = 2**24
# Penalties and rates beyond this could add up to infinity.
LARGE = 1e6


def number(name: str, value: float, low: float = -FLOAT_MAX, high: float = FLOAT_MAX) -> float:
    """`value` as a float, if it is a finite number in low..high.

    Raises:
        TypeError: not a number.
        ValueError: not finite, or out of range.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not low <= result <= high:  # also for NaN
        bounds = f"in {low:g}..{high:g}" if low > -FLOAT_MAX or high < FLOAT_MAX else "finite"
        raise ValueError(f"{name} must be {bounds}, not {value}")
    return result


def probability(name: str, value: float) -> float:
    """`value` as a float, if it is in 0..1; TypeError or ValueError else."""
    return number(name, value, 0.0, 1.0)


def count(name: str, value: SupportsIndex, low: int = 0, high: int = INT32_MAX) -> int:
    """`value` as an int, if it is one in low..high (numpy's too); TypeError or ValueError else."""
    return uint(name, value, low, high)


def seed_value(seed: int | None) -> int:
    """The seed as llama.h takes it; None: a random one (LLAMA_DEFAULT_SEED)."""
    return int(lib.LLAMA_DEFAULT_SEED) if seed is None else count("seed", seed, 0, 2**32 - 1)


def finite_or_minus_inf(row: NDArray[np.float32], what: str) -> float:
    """The largest of some logits, if a sampler can sort and weigh them.

    Raises:
        ValueError: one is NaN or +inf: llama.cpp would sort by an order that is none, and compute NaN.
    """
    with np.errstate(invalid="ignore"):
        top = float(row.max())
    if math.isnan(top) or top == math.inf:
        raise ValueError(f"{what} hold NaN or +inf: each must be finite or -inf")
    return top
