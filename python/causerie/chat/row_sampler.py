"""A user's function of the logits row, as a sampler of a chain."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from causerie.llama.sampler import Sampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causerie.chat.options import RowSampler
    from causerie.llama.sampler import Candidates

__all__ = ["row_sampler"]


def row_sampler(function: RowSampler, n_vocab: int) -> Sampler:
    """A sampler that calls ``function(row)``.

    The row is a copy of the logits, float32 of shape (n_vocab,), -inf for what is excluded. It may be changed in place,
    or the function returns another one of that shape, of any real dtype.

    What the function raises reaches the caller of the sampler, with its own traceback; so does the ValueError for a row
    of another shape or dtype, with NaN or +inf in it, or without any token left.
    """
    name = getattr(function, "__name__", type(function).__name__)
    return Sampler.custom(partial(_apply, function, str(name), n_vocab), name=str(name))


def _apply(function: RowSampler, name: str, n_vocab: int, candidates: Candidates) -> NDArray[np.float32]:
    ids, row = candidates.ids, candidates.logits
    whole = ids.size == n_vocab and bool((ids == np.arange(n_vocab)).all())
    if not whole:  # candidates were left out or sorted before
        row = np.full(n_vocab, -np.inf, np.float32)
        row[ids] = candidates.logits
    answer = function(row)
    row = _checked(row if answer is None else answer, name, n_vocab)
    return row if whole else row[ids]


def _checked(answer: object, name: str, n_vocab: int) -> NDArray[np.float32]:
    try:
        row = np.asarray(answer)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the sampler {name} returned what is no array: {error}") from error
    if row.shape != (n_vocab,):
        raise ValueError(f"the sampler {name} must return None or logits of shape ({n_vocab},), not {row.shape}")
    if row.dtype.kind not in "fiu":
        raise ValueError(f"the sampler {name} must return logits of a real dtype, not {row.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        row = row.astype(np.float32, copy=False)
        top = row.max()
    if np.isnan(top) or top == np.inf:
        raise ValueError(f"the sampler {name} left NaN or +inf in the logits: each must be finite or -inf")
    if top == -np.inf:
        raise ValueError(f"the sampler {name} left no token to choose from: every logit is -inf")
    return row
