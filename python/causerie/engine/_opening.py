"""Opens the context of an engine: refuses models that cannot have one, and chooses what was not chosen."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Any

from causerie.errors import UnsupportedError
from causerie.llama.context import Context
from causerie.llama.model import Model

if TYPE_CHECKING:
    import os

__all__ = ["N_CTX", "ONE_AT_A_TIME", "context_options", "on_gpu", "open_context", "open_model", "resolved"]

N_CTX = 8192
_N_BATCH = 512
_MANY_RESIDENT = 32
_FEW_RESIDENT = 8  # where each costs a state of its own
_EXACT_UBATCH = 48  # ggml's CPU backend computes attention of 64 tokens and more in tiles, so in another order
# Options of an engine that are the model's.
_OF_MODELS = frozenset(
    {
        "devices", "kv_overrides", "load_mode", "main_gpu", "n_gpu_layers", "no_host", "progress", "rpc", "split_mode",
        "strict", "tensor_buft_overrides", "tensor_split", "use_extra_bufts",
    }
)  # fmt: skip
# llama.cpp stops at an internal check when it evaluates several sequences of these together.
ONE_AT_A_TIME = frozenset({"plamo2"})


def resolved(name: str | os.PathLike[str]) -> str:
    """The path of a model by any of its names; fetched if it has to be."""
    from causerie import models

    return fspath(models.resolve(name))


def open_model(
    source: Model | str | os.PathLike[str], model_options: dict[str, Any] | None, options: dict[str, Any]
) -> Model:
    """The model of an engine; what `options` has for models, or for fitting, is taken out of it.

    Raises:
        TypeError: there are such options, and the model is loaded already.
        ModelLoadError, OutOfMemoryError, DeviceError, UnsupportedError, ValueError: as `Model`, and as `fit` for
            n_gpu_layers="auto".
    """
    chosen = {**(model_options or {}), **{name: options.pop(name) for name in _OF_MODELS & set(options)}}
    margin = options.pop("fit_margin", None)
    if isinstance(source, Model):
        if chosen:
            raise TypeError(f"the model is loaded already: give {min(chosen)} to llama.Model, or a path to the engine")
        return source
    path = resolved(source)
    if chosen.get("n_gpu_layers") != "auto":
        return Model(path, **chosen)
    from causerie.llama import fit

    del chosen["n_gpu_layers"]
    with Model(path, **{**chosen, "no_alloc": True, "strict": False, "progress": None}) as planned:
        wanted = context_options(planned, **options)
    fixed = {name: value for name, value in chosen.items() if name not in {"strict", "progress", "check_memory"}}
    wanted.pop("check_memory", None)
    n_ctx = options.get("n_ctx") or 0
    found = fit(path, model=fixed, **({} if margin is None else {"margin": margin}), **{**wanted, "n_ctx": n_ctx})
    options["n_ctx"] = n_ctx or min(found.n_ctx, wanted["n_ctx"])
    return Model(path, **{**chosen, **found.model_options})


def open_context(model: Model, **options: Any) -> Context:
    """The context for an engine, with the options of `TokenEngine`.

    Raises:
        UnsupportedError: the model does not generate text from text, or not for so many sequences.
        ValueError: an argument is out of range.
        OutOfMemoryError: as `llama.Context`.
    """
    return Context(model, **context_options(model, **options))


def context_options(
    model: Model,
    *,
    n_ctx: int | None,
    max_resident: int | None,
    n_batch: int | None,
    n_ubatch: int | None,
    kv_unified: bool,
    **options: Any,
) -> dict[str, Any]:
    """What `Context` is given for an engine.

    Raises:
        UnsupportedError, ValueError: as `open_context`.
    """
    _refuse_unable(model)
    for argument, value in (("n_ctx", n_ctx), ("max_resident", max_resident), ("n_batch", n_batch)):
        if value is not None and value < 1:
            raise ValueError(f"{argument} must be at least 1, not {value}")
    states = model.is_recurrent or model.is_hybrid
    shared = kv_unified and not states
    n_ctx = n_ctx or min(N_CTX, model.n_ctx_train or N_CTX)
    # One more, that keeps cells from being used in a wrong order.
    n_seq_max = _resident(model, max_resident, states=states) + shared
    n_batch = max(min(n_batch or _N_BATCH, n_ctx), n_seq_max)
    # Where each sequence has a part of the memory to itself, llama.cpp wants room for one token of each.
    n_ubatch = max(n_ubatch or _exact_ubatch(model, n_batch), 1 if shared else n_seq_max)
    sizes = {"n_ctx": n_ctx, "n_batch": n_batch, "n_ubatch": n_ubatch, "n_seq_max": n_seq_max}
    return {**options, **sizes, "kv_unified": kv_unified}


def _refuse_unable(model: Model) -> None:
    if model.has_encoder:
        raise UnsupportedError(f"a {model.architecture} model has an encoder: use causerie.llama to drive it")
    if model.is_diffusion:
        raise UnsupportedError(f"a {model.architecture} model does not write one token after the other")


def _resident(model: Model, chosen: int | None, *, states: bool) -> int:
    """Sequences in the context at the same time."""
    if model.architecture not in ONE_AT_A_TIME:
        return chosen or (_FEW_RESIDENT if states else _MANY_RESIDENT)
    if chosen not in {None, 1}:
        name = model.architecture
        raise UnsupportedError(f"llama.cpp evaluates one sequence of a {name} model at a time: max_resident=1")
    return 1


def _exact_ubatch(model: Model, n_batch: int) -> int:
    """Tokens to compute at once: on the CPU so few that company does not change what a sequence gets."""
    return n_batch if on_gpu(model) else min(n_batch, _EXACT_UBATCH)


def on_gpu(model: Model) -> bool:
    """Whether layers of it are on another device than the CPU."""
    return any(use.layers for use in model.devices if use.kind in {"gpu", "igpu"})
