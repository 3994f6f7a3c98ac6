"""Each architecture that llama.cpp's generator writes runs in an engine, or is refused with a typed error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from engine_oracle import WIDE, Program, Reference, check_slots, watch

from causerie.engine import TokenEngine
from causerie.errors import UnsupportedError
from causerie.llama import Model

if TYPE_CHECKING:
    from pathlib import Path

# One or two of each kind: dense, experts, latent attention, sliding windows, recurrent, hybrid, and what is refused.
CHOSEN = (
    "bloom-dense", "chatglm-dense", "cohere2-dense", "deepseek2-moe", "deepseek4-moe", "dream-dense",
    "exaone4-dense", "falcon-h1-dense", "gemma2-dense", "gemma3-dense", "gpt-oss-moe", "gpt2-dense",
    "granitehybrid-dense", "jamba-dense", "lfm2-dense", "llama-dense", "llama4-moe", "mamba-dense", "mamba2-dense",
    "minimax-m3-moe", "phi3-dense", "plamo2-dense", "qwen2vl-dense", "qwen35-dense", "qwen3next-moe",
)  # fmt: skip

REFUSED = {"dream-dense", "llada-dense", "llada-moe-moe", "rnd1-moe"}  # diffusion
ONE_AT_A_TIME = {"plamo2-dense"}
# llama.cpp gives other logits for the same tokens in other batches, in a context with one sequence too.
UNSTEADY = {"cogvlm-dense"}

ENGINES: tuple[dict[str, Any], ...] = (
    {"n_ctx": 256, "max_resident": 3},
    {"n_ctx": 256, "max_resident": 2, "parking_bytes": 0, "swa_full": False},
    {"n_ctx": 512, "max_resident": 2, "kv_unified": False},
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", [*CHOSEN, *(["others"] if os.environ.get("CAUSERIE_ALL_ARCHITECTURES") else [])])


# ggml looks GELU up in a table of f16, where the last bit of the input makes a step.
GELU = {
    "bloom", "codeshell", "falcon", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "gpt2", "gptneox", "grok", "mpt",
    "phi2", "pockettts", "spark2_5", "starcoder", "starcoder2",
}  # fmt: skip


def limit(name: str) -> float:
    """How far logits may be from those of a fresh context."""
    return float("inf") if name in UNSTEADY else 2e-8 if name.rpartition("-")[0] in GELU else 1e-10


def judge(path: Path) -> None:
    name = path.stem
    with Model(path) as model:
        if name in REFUSED:
            with pytest.raises(UnsupportedError):
                TokenEngine(model)
            return
        for number, options in enumerate(ENGINES):
            if name in ONE_AT_A_TIME:
                with pytest.raises(UnsupportedError):
                    TokenEngine(model, **options)
                options = {**options, "max_resident": 1}
            reference = Reference(model, limit(name), n_ctx=256, **WIDE)
            with watch(TokenEngine(model, n_batch=64, n_ubatch=32, n_threads=1, **WIDE, **options)) as engine:
                Program(engine, reference, number, list(range(3, model.n_vocab)), longest=100).run(6)
                check_slots(engine, idle=True)
            reference.close()


def test_an_architecture(tiny_models: dict[str, Path], name: str) -> None:
    if name != "others":
        judge(tiny_models[name])
        return
    failed = {}
    for other in sorted(tiny_models.keys() - set(CHOSEN)):
        try:
            judge(tiny_models[other])
        except Exception as error:  # noqa: PERF203 - all are tried
            failed[other] = repr(error)
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())
