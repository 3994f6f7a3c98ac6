"""Models for the tests of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causerie.engine import TokenEngine
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[Model]:
    """SmolLM2-135M-Instruct, Q4_1."""
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def tiny(tiny_models: dict[str, Path]) -> Iterator[Model]:
    """A llama with random weights: a step takes less than a millisecond."""
    with Model(tiny_models["llama-dense"]) as loaded:
        yield loaded


@pytest.fixture
def engine(tiny: Model) -> Iterator[TokenEngine]:
    """An engine of its own for each test."""
    with TokenEngine(tiny, n_ctx=2048, max_resident=24, n_batch=64, n_threads=1) as made:
        yield made
