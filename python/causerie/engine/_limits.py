"""What an engine can be with a model: how long sequences are, and how many are in the context at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.errors import UnsupportedError
from causerie.llama.device import devices

if TYPE_CHECKING:
    from causerie.llama.model import Model

__all__ = ["Limits"]

_N_CTX = 8192
_MANY_RESIDENT = 32
_FEW_RESIDENT = 8  # where each costs a state of its own
_EXACT_UBATCH = 48  # ggml's CPU backend computes attention of 64 tokens and more in tiles, so in another order
# llama.cpp stops at an internal check when it evaluates several sequences of these together.
_ONE_AT_A_TIME = frozenset({"plamo2"})
# These look positions up in a table of n_ctx_train rows, and llama.cpp aborts behind its end.
_TABLE_OF_POSITIONS = frozenset({"gpt2", "mpt", "starcoder"})


class Limits:
    """Chooses what was not chosen.

    Args:
        model: what is run.
        n_ctx, max_resident: as for `TokenEngine`.

    Attributes:
        n_ctx: tokens that all sequences together can hold.
        max_resident: sequences in the context at the same time.
        n_positions: tokens that one sequence may have at most.
        states: whether each sequence has a state of its own beside or instead of cells.

    Raises:
        UnsupportedError: the model does not generate text from text, or not for so many sequences.
        ValueError: an argument is out of range.
    """

    def __init__(self, model: Model, *, n_ctx: int | None, max_resident: int | None) -> None:
        name = model.architecture
        if model.has_encoder:
            raise UnsupportedError(f"a {name} model has an encoder: use causerie.llama to drive it")
        if model.is_diffusion:
            raise UnsupportedError(f"a {name} model does not write one token after the other")
        for argument, value in (("n_ctx", n_ctx), ("max_resident", max_resident)):
            if value is not None and value < 1:
                raise ValueError(f"{argument} must be at least 1, not {value}")
        self.states = model.is_recurrent or model.is_hybrid
        self.n_ctx = n_ctx or min(_N_CTX, model.n_ctx_train or _N_CTX)
        alone = name in _ONE_AT_A_TIME
        self.max_resident = max_resident or (1 if alone else _FEW_RESIDENT if self.states else _MANY_RESIDENT)
        if alone and self.max_resident > 1:
            raise UnsupportedError(f"llama.cpp evaluates one sequence of a {name} model at a time: max_resident=1")
        self.n_positions = model.n_ctx_train if name in _TABLE_OF_POSITIONS else self.n_ctx + 256

    @staticmethod
    def n_ubatch(n_batch: int, chosen: int | None, least: int) -> int:
        """Tokens to compute at once; if none are chosen, so few that company does not change what a sequence gets."""
        on_gpu = any(device.kind in {"gpu", "igpu"} for device in devices())
        return max(chosen or (n_batch if on_gpu else min(n_batch, _EXACT_UBATCH)), least)
