"""One model and one engine for all tests of the facade, and a facade on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causerie import Engine
from causerie.chat_model import ChatModel
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# What makes logits equal to the last bit, whatever else a step evaluates.
EXACT: dict[str, Any] = {"n_threads": 1, "flash_attn": "enabled", "n_ubatch": 32}


@pytest.fixture(scope="session")
def llama_model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def engine(llama_model: Model) -> Iterator[Engine]:
    with Engine(llama_model, n_ctx=1024, **EXACT) as made:
        yield made


@pytest.fixture
def model(engine: Engine) -> ChatModel:
    return ChatModel(engine)


@pytest.fixture
def make_model(llama_model: Model) -> Iterator[Callable[..., ChatModel]]:
    """Makes facades with an engine of their own."""
    made: list[ChatModel] = []

    def make(**options: Any) -> ChatModel:
        made.append(ChatModel(llama_model, **{"n_ctx": 512, **EXACT, **options}))
        return made[-1]

    yield make
    for each in made:
        each.close()
