"""The engine's defaults beside the best settings that a sweep finds on this machine; figures: docs/performance.md."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "conversations.py"
DEFAULTS: dict[str, Any] = {}
BEST = 3  # of the sweep, which are compared with the defaults in turn
ROUNDS = 5


def settings() -> list[dict[str, Any]]:
    """All combinations that llama.cpp takes: a quantised cache needs flash attention."""
    threads = sorted({1, max(1, (os.cpu_count() or 1) // 2), os.cpu_count() or 1})
    return [
        {"n_threads": n, "n_ubatch": ubatch, "flash_attn": flash, "type_k": kind, "type_v": kind}
        for n, ubatch, (flash, kind) in product(
            threads,
            (48, 128, 512),
            [("enabled", "f16"), ("disabled", "f16"), ("enabled", "bf16"), ("enabled", "q8_0")],
        )
    ]


@pytest.mark.parametrize(
    ("turns", "prompt"), [(4, 0), (1, 600)], ids=["four turns of 40 and 128 tokens", "a prompt of 600 and 128 tokens"]
)
def test_defaults_against_a_sweep(model_path: Path, benchmark: Any, turns: int, prompt: int) -> None:
    """Bar: within 3 % of the best, for conversations. Long prompts pay for equal logits (n_ubatch=48)."""

    def rate(options: dict[str, Any]) -> float:
        command = [sys.executable, PROGRAM, "chat", model_path, "--n", turns, "--shared", prompt]
        command += ["--options", json.dumps(options)]
        done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
        return float(json.loads(done.stdout)["tokens_per_second"])

    found = sorted(((rate(options), options) for options in settings()), key=lambda pair: -pair[0])
    best = [options for _, options in found[:BEST]]
    rounds: list[list[float]] = []
    benchmark.pedantic(
        lambda: rounds.append([rate(options) for options in (DEFAULTS, *best)]), rounds=ROUNDS, warmup_rounds=0
    )
    ratios = [statistics.median(row[0] / row[k] for row in rounds) for k in range(1, BEST + 1)]
    benchmark.extra_info.update(sweep=found, ratios=list(zip(ratios, best, strict=True)), rounds=rounds)
    for value, options in found:
        print(f"{value:7.1f} tokens/s  {options}")
    print(f"defaults: {statistics.median(row[0] for row in rounds):.1f} tokens/s")
    for ratio, options in zip(ratios, best, strict=True):
        print(f"defaults over it, median of {ROUNDS}: {ratio:.3f}  {options}")
