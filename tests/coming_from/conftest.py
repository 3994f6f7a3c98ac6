"""What the rows of docs/coming-from.md speak of, made anew for each row."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from coming_from_rows import Names
from lora_files import write_lora_for

import causerie
from causerie import Engine, Message, ToolCall, llama, models

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES = {"causerie": causerie, "llama": llama, "logging": logging, "models": models, "np": np}
PUBLIC = {
    name: getattr(causerie, name) for name in ("Engine", "KeywordRemover", "Message", "RolePrefix", "transformed")
}
GREEDY = {"max_tokens": 4, "temperature": 0}
MESSAGES = (Message("system", "Be brief."), Message("user", "Hi."), Message("assistant", "Hello."))
TEMPLATES = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "templates"
TOOLED = (TEMPLATES / "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja").read_text("utf-8")
CALLING = Message("assistant", tool_calls=(ToolCall("c1", "weather"),))
JINJA = "{{ mood }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
SCHEMA = {"enum": ["yes", "no"]}


def weather(city: str) -> str:
    """What the weather is like."""
    return city


def function(row: np.ndarray) -> None:
    row[5] = -np.inf


@pytest.fixture(scope="session")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with llama.Model(smollm2_path) as model, Engine(model, n_ctx=1024, n_threads=1, sampling=GREEDY) as made:
        yield made


@pytest.fixture
def names(engine: Engine, smollm2_path: Path, tmp_path: Path) -> Iterator[Names]:
    """Conversations and contexts are made when a row speaks of them."""
    made = Names(
        {
            **MODULES,
            **PUBLIC,
            "engine": engine,
            "file": tmp_path / "talk.causerie",
            "function": function,
            "jinja": JINJA,
            "messages": MESSAGES,
            "model": engine.model,
            "path": smollm2_path,
            "schema": SCHEMA,
            "tooled": TOOLED,
            "weather": weather,
        },
        {
            "aided": lambda: engine.conversation(template=TOOLED),
            "asked": lambda: engine.conversation(messages=MESSAGES[:2]),
            "asking": lambda: engine.conversation(messages=[MESSAGES[1], CALLING]),
            "batch": one_token,
            "blank": engine.conversation,
            "chat": lambda: engine.conversation(messages=MESSAGES),
            "lora": lambda: write_lora_for(smollm2_path, tmp_path / "lora.gguf", strength=0.1),
            "context": lambda: three_tokens(engine.model),
            "saved": lambda: saved(engine, tmp_path / "talk.causerie"),
        },
    )
    yield made
    if "context" in made.values:
        made["context"].close()


def saved(engine: Engine, file: Path) -> Path:
    """A conversation in a file."""
    engine.conversation(messages=MESSAGES).save(file)
    return file


def one_token() -> llama.Batch:
    batch = llama.Batch(8)
    batch.add(13, 3, output=True)
    return batch


def three_tokens(model: llama.Model) -> llama.Context:
    """A context in which three tokens are evaluated."""
    context = llama.Context(model, n_ctx=128, n_threads=1)
    batch = llama.Batch(8)
    batch.add_sequence(np.array([10, 11, 12], np.int32), pos0=0, seq=0)
    context.decode(batch)
    return context
