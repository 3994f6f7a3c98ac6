"""One model, and one engine for all tests that need none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from talking import EXACT, Oracle

from causerie import Engine
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def engine(model: Model) -> Iterator[Engine]:
    with Engine(model, n_ctx=2048, **EXACT) as made:
        yield made


@pytest.fixture
def make_engine(model: Model) -> Iterator[Callable[..., Engine]]:
    """Makes engines for one test alone."""
    made: list[Engine] = []

    def make(**options: Any) -> Engine:
        made.append(Engine(model, **{"n_ctx": 512, **EXACT, **options}))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="session")
def oracle(model: Model) -> Iterator[Oracle]:
    with Oracle(model) as made:
        yield made


@pytest.fixture
def prompts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The prompts that the engine is given while a test runs."""
    given: list[list[int]] = []
    generate = engine.generate

    def recorded(sequence: Any, prompt: Any, **options: Any) -> Any:
        given.append(list(prompt))
        return generate(sequence, prompt, **options)

    monkeypatch.setattr(engine, "generate", recorded)
    return given
