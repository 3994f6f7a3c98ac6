"""What it costs that a reply has to follow a schema. See docs/structured-output.md for figures."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "constrained.py"


@pytest.mark.parametrize("sampling", ["greedy", "default"])
def test_a_realistic_schema_against_free_decoding(model_path: Path, benchmark: Any, sampling: str) -> None:
    """Bar: 1.25 times the time per token, once the schema has been used; the first reply is told beside it."""
    command = [sys.executable, str(PROGRAM), str(model_path), "--sampling", sampling]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ratios = [each["constrained_ms"] / each["free_ms"] for each in found["rounds"]]
    figures = {
        "ratio": statistics.median(ratios),
        "free_ms": statistics.median(each["free_ms"] for each in found["rounds"]),
        "constrained_ms": statistics.median(each["constrained_ms"] for each in found["rounds"]),
        "first_ratio": found["first"]["constrained_ms"] / found["first"]["free_ms"],
        "schema_ms": found["schema_ms"],
        "begin_ms": found["begin_ms"],
        "tokens": [each["tokens"] for each in found["rounds"]],
    }
    benchmark.pedantic(lambda: None)
    benchmark.extra_info.update(figures, ratios=ratios)
    print(f"\n{sampling}: {figures}, ratios {min(ratios):.3f} to {max(ratios):.3f}")
    assert figures["ratio"] <= 1.25
