"""What an engine was opened with, and why: what was asked for, and what was chosen where nothing was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from causerie.engine._opening import N_CTX, ONE_AT_A_TIME, on_gpu
from causerie.llama.processors import processors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causerie.llama.context import Context
    from causerie.llama.model import Model

__all__ = ["Setting", "settings"]

_ASKED = "as it was asked for"
_WHY_F16 = "rounds little on every device; what is quickest depends on the processor (docs/performance.md)"


class Setting(NamedTuple):
    """One of an engine's settings.

    Attributes:
        value: what it is.
        reason: why.
    """

    value: int | bool | str
    reason: str


def settings(context: Context, asked: Mapping[str, Any]) -> dict[str, Setting]:
    """The settings of an engine's context.

    Args:
        context: as it was opened.
        asked: options of the engine; None, or absent: nobody chose.
    """
    gpu = on_gpu(context.model)
    states = context.model.is_recurrent or context.model.is_hybrid
    chosen = {
        "n_threads": (context.n_threads, processors().reason),
        "n_ctx": (context.n_ctx, _why_n_ctx(context)),
        "n_batch": (context.n_batch, "so many tokens, or sequences, go into one step at most"),
        "n_ubatch": (context.n_ubatch, _why_n_ubatch(gpu=gpu)),
        "max_resident": (
            context.n_seq_max - (context.kv_unified and not states),
            _why_max_resident(context.model, states=states),
        ),
        "kv_unified": (
            context.kv_unified,
            "no matter: states are not shared" if states else "sequences that begin alike hold the same cells",
        ),
        "flash_attn": (
            "enabled" if context.flash_attn else "disabled",
            "each layer's device can" if context.flash_attn else "not every layer's device can, or the model cannot",
        ),
        "type_k": (context.type_k, _WHY_F16),
        "type_v": (context.type_v, _WHY_F16),
    }
    return {name: Setting(value, _why(name, value, reason, asked)) for name, (value, reason) in chosen.items()}


def _why(name: str, value: object, reason: str, asked: Mapping[str, Any]) -> str:
    wanted = asked.get(name)
    if wanted is None or (name == "flash_attn" and wanted == "auto"):
        return reason
    return _ASKED if wanted == value else f"{wanted} was asked for, as near as it can be"


def _why_n_ctx(context: Context) -> str:
    trained = context.model.n_ctx_train
    if trained and context.n_ctx == trained:
        return "what the model was trained with"
    if context.n_ctx < min(N_CTX, trained or N_CTX):
        return "what fits beside the layers that are on devices"
    return f"the default, as there has to be memory for all of it; the model was trained with {trained}"


def _why_max_resident(model: Model, *, states: bool) -> str:
    if model.architecture in ONE_AT_A_TIME:
        return f"llama.cpp evaluates one sequence of a {model.architecture} model at a time"
    return "each has a state of its own" if states else "sequences in the context at a time; others are parked"


def _why_n_ubatch(*, gpu: bool) -> str:
    if gpu:
        return "all of a step at once, as layers are on a GPU"
    return "equal logits in any company: the CPU computes attention of 64 tokens and more in another order"
