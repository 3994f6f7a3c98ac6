"""Random call sequences over the whole low-level API end with exit code 0, whatever they ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "programs" / "fuzz_api.py"
VOCAB = ROOT / "vendor/llama.cpp/models/ggml-vocab-llama-spm.gguf"
ARCHITECTURES = ("llama-dense", "gemma3-dense", "mamba-dense", "jamba-dense", "qwen2vl-dense", "deepseek2-moe")
# Seeds that once found something, and how many new ones a run tries: CAUSERIE_FUZZ_SEEDS=2000 for a long one.
KEPT_SEEDS: tuple[int, ...] = ()
NEW_SEEDS = int(os.environ.get("CAUSERIE_FUZZ_SEEDS", "60"))


def run(first: int, count: int, tiny_models: dict[str, Path]) -> None:
    models = [str(tiny_models[name]) for name in ARCHITECTURES if name in tiny_models]
    assert len(models) == len(ARCHITECTURES), sorted(tiny_models)
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", PROGRAM, str(first), str(count), VOCAB, *models],
        capture_output=True, text=True, timeout=580 + 10 * count,
    )  # fmt: skip
    last = result.stdout.splitlines()[-1] if result.stdout else "nothing"
    assert result.returncode == 0, f"exit code {result.returncode} after {last}\n{result.stderr[-4000:]}"
    assert last.startswith("done"), last


@pytest.mark.timeout(0)
def test_random_call_sequences_never_end_the_process(tiny_models: dict[str, Path]) -> None:
    run(0, NEW_SEEDS, tiny_models)


@pytest.mark.parametrize("seed", KEPT_SEEDS or [0])
def test_sequences_that_once_found_something(tiny_models: dict[str, Path], seed: int) -> None:
    run(seed, 1, tiny_models)
