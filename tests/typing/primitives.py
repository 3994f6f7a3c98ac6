"""Read by mypy --strict and never run: what the types of the primitives promise to a user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import causerie
from causerie import llama, models


def primitives(path: Path) -> None:
    assert_type(models.resolve("smollm2"), Path)
    with llama.Model(path, n_gpu_layers=0, load_mode="mmap", progress=lambda fraction: fraction < 1) as model:
        assert_type(model, llama.Model)
        assert_type(model.metadata, Mapping[str, str])
        assert_type(model.vocab.tokenize("text"), NDArray[np.int32])
        assert_type(model.vocab.piece(1), bytes)
        assert_type(model.vocab.bos, int | None)
        with llama.Context(model, n_ctx=128, type_k="q8_0", flash_attn="auto") as context:
            batch = llama.Batch(8)
            assert_type(batch.add(1, 0, seqs=(0,), output=True), int)
            context.decode(batch)
            assert_type(context.logits(), NDArray[np.float32])
            assert_type(context.memory.seq_pos_max(0), int)
            assert_type(context.state.seq_get(0), bytes)
            chain = llama.Sampler.chain([llama.Sampler.top_k(40), llama.Sampler.dist(seed=1)])
            assert_type(chain.sample(context), int)
    assert_type(llama.lib.llama_time_us(), int)
    assert_type(llama.lib.LLAMA_TOKEN_NULL, int)
    assert_type(causerie.build_info().backends, tuple[str, ...])


def wrong_uses(model: llama.Model) -> None:
    llama.Model("x", load_mode="fast")  # type: ignore[arg-type]
    llama.Context(model, pooling="sum")  # type: ignore[arg-type]
    model.vocab.tokenize(1)  # type: ignore[arg-type]
