"""Opens the context of an engine: refuses models that cannot have one, and chooses what was not chosen."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Any

from causerie.errors import UnsupportedError
from causerie.llama.context import Context
from causerie.llama.device import devices

if TYPE_CHECKING:
    import os

    from causerie.llama.model import Model

__all__ = ["open_context", "resolved"]

_N_CTX = 8192
_MANY_RESIDENT = 32
_FEW_RESIDENT = 8  # where each costs a state of its own
_EXACT_UBATCH = 48  # ggml's CPU backend computes attention of 64 tokens and more in tiles, so in another order
# llama.cpp stops at an internal check when it evaluates several sequences of these together.
_ONE_AT_A_TIME = frozenset({"plamo2"})


def resolved(name: str | os.PathLike[str]) -> str:
    """The path of a model by any of its names; fetched if it has to be."""
    from causerie import models

    return fspath(models.resolve(name))


def open_context(
    model: Model,
    *,
    n_ctx: int | None,
    max_resident: int | None,
    n_batch: int,
    n_ubatch: int | None,
    kv_unified: bool,
    **options: Any,
) -> Context:
    """The context for an engine, with the options of `TokenEngine`.

    Raises:
        UnsupportedError: the model does not generate text from text, or not for so many sequences.
        ValueError: an argument is out of range.
        OutOfMemoryError: as `llama.Context`.
    """
    _refuse_unable(model)
    for argument, value in (("n_ctx", n_ctx), ("max_resident", max_resident)):
        if value is not None and value < 1:
            raise ValueError(f"{argument} must be at least 1, not {value}")
    states = model.is_recurrent or model.is_hybrid
    shared = kv_unified and not states
    n_ctx = n_ctx or min(_N_CTX, model.n_ctx_train or _N_CTX)
    # One more, that keeps cells from being used in a wrong order.
    n_seq_max = _resident(model, max_resident, states=states) + shared
    n_batch = max(min(n_batch, n_ctx), n_seq_max)
    return Context(
        model,
        n_ctx=n_ctx,
        n_batch=n_batch,
        # Where each sequence has a part of the memory to itself, llama.cpp wants room for one token of each.
        n_ubatch=max(n_ubatch or _exact_ubatch(n_batch), 1 if shared else n_seq_max),
        n_seq_max=n_seq_max,
        kv_unified=kv_unified,
        **options,
    )


def _refuse_unable(model: Model) -> None:
    if model.has_encoder:
        raise UnsupportedError(f"a {model.architecture} model has an encoder: use causerie.llama to drive it")
    if model.is_diffusion:
        raise UnsupportedError(f"a {model.architecture} model does not write one token after the other")


def _resident(model: Model, chosen: int | None, *, states: bool) -> int:
    """Sequences in the context at the same time."""
    if model.architecture not in _ONE_AT_A_TIME:
        return chosen or (_FEW_RESIDENT if states else _MANY_RESIDENT)
    if chosen not in {None, 1}:
        name = model.architecture
        raise UnsupportedError(f"llama.cpp evaluates one sequence of a {name} model at a time: max_resident=1")
    return 1


def _exact_ubatch(n_batch: int) -> int:
    """Tokens to compute at once: on the CPU so few that company does not change what a sequence gets."""
    on_gpu = any(device.kind in {"gpu", "igpu"} for device in devices())
    return n_batch if on_gpu else min(n_batch, _EXACT_UBATCH)
