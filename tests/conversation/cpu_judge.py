"""Tells whether the tokens that another device chose are those that the CPU would choose behind the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from causerie import llama

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from causerie.engine import Generation


class CpuJudge:
    """A context on the CPU that is given all ids at once.

    Args:
        model: the same model, on the CPU.
        gap: how much likelier (in logits) the CPU's first choice may be than the one that was made.
    """

    def __init__(self, model: llama.Model, gap: float) -> None:
        self.gap = gap
        self.seen = 0
        self._context = llama.Context(model, n_ctx=1024, n_batch=1024, n_threads=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.close()

    def rows(self, ids: Sequence[int], first: int) -> NDArray[np.float32]:
        """The logits behind ids[:first], ids[:first + 1], ..., float32 of shape (len(ids) - first + 1, n_vocab)."""
        self._context.memory.clear()
        batch = llama.Batch(len(ids))
        for i, token in enumerate(ids):
            batch.add(token, i, [0], output=i + 1 >= first)
        self._context.decode(batch)
        return np.stack([self._context.logits(i).copy() for i in range(first - 1, len(ids))])

    def check(self, generation: Generation) -> None:
        """Every token of a greedy generation is the CPU's choice too, or as good as it."""
        ids: list[Any] = generation.target
        tokens = ids[generation.n_prompt :]
        assert tokens
        for row, token in zip(self.rows(ids, generation.n_prompt), tokens, strict=False):
            behind = float(row.max() - row[token])
            assert behind <= self.gap, f"{token} is {behind} behind {int(row.argmax())}"
            self.seen += 1
