"""What a model's memory cannot do although llama.cpp says, or lets, it: to be asked before the native call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.llama._lib import lib

if TYPE_CHECKING:
    from causerie.llama.model import Model

__all__ = ["shares_no_cells", "shifting_aborts", "whole_only"]


def shares_no_cells(model: Model) -> bool:
    """Whether llama.cpp spoils a copied sequence when the original is removed."""
    return model.architecture == "deepseek4"


def whole_only(model: Model) -> bool:
    """Whether a sequence is a state that stands for all its positions: parts cannot be taken out."""
    return model.is_recurrent or model.is_hybrid or shares_no_cells(model)


def shifting_aborts(model: Model, key_type: int) -> bool:
    """Whether the next evaluation after a shift would abort, or read wild memory, on a worker thread.

    ggml's CPU kernels rotate neither keys in bf16 nor parts of quantised keys; and of the two caches of a hybrid model
    with a sliding window one may have no layers.
    """
    if model.is_recurrent:
        return False
    if key_type == lib.GGML_TYPE_BF16 or (model.is_hybrid and model.n_swa > 0):
        return True
    block = lib.ggml_blck_size(key_type)
    if block == 1 or model.rope_type == "none":
        return False
    head = _number(model, "attention.key_length", model.n_embd // max(model.n_head, 1))
    rotated = _number(model, "rope.dimension_count", head)
    heads = {head, _number(model, "attention.key_length_swa", head)}
    whole = rotated == head and _number(model, "rope.dimension_count_swa", rotated) in heads
    return not whole or bool(_number(model, "attention.kv_lora_rank", 0)) or any(h % block for h in heads)


def _number(model: Model, key: str, default: int) -> int:
    text: Any = model.metadata.get(f"{model.architecture}.{key}", default)
    try:
        return int(text)
    except ValueError:  # one number per layer
        return -1
