"""Models and contexts for the tests of the primitives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causerie.llama import Context, Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def model(smollm2_path: Path) -> Iterator[Model]:
    """SmolLM2-135M-Instruct, Q4_1."""
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    """A small context of its own for each test."""
    with Context(model, n_ctx=512, n_batch=512) as ctx:
        yield ctx
