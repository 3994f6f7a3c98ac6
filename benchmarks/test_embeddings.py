"""Embeddings with the primitives, beside llama-cpp-python."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from benchmarks.side_by_side import peers
from benchmarks.side_by_side.workplace import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.side_by_side.workplace import Workplace


def test_64_texts_against_llama_cpp_python(compare: Callable[..., float], place: Workplace) -> None:
    """Texts/s of the mean of the last layer, in batches of 512 tokens."""
    place.installed, missing = peers.find_all(place, install=False, retry=False)
    if "llama-cpp-python" in missing:
        pytest.skip(f"llama-cpp-python: {missing['llama-cpp-python']}")
    first: dict[str, Any] = {}

    def rate(system: str, python: str) -> float:
        printed = json.loads(place.output_of(python, PROGRAMS / "embed.py", system, place.model, place.threads))
        first[system] = np.array(printed["first"])
        return float(printed["rate"])

    theirs = place.installed["llama-cpp-python"].command[0]
    compare(
        lambda: rate("causerie", sys.executable), lambda: rate("llama-cpp-python", theirs), unit="texts/s", rounds=5
    )
    a, b = first.values()
    assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.999
