"""Every row of the table "Coming from ModelFarm" in docs/chat-model.md, as it stands there."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import about

import causerie.chat_model
from causerie.chat_model import ChatExample, ChatModel, ChatModelResponse, ChatSession

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "chat-model.md"
ROW = re.compile(r"^\| `(?P<theirs>.+?)`.*? \| `(?P<ours>.+?)`(?P<note>.*) \|$", re.MULTILINE)
TABLE = PAGE.read_text(encoding="utf-8").partition("## Coming from ModelFarm")[2]
ROWS = {row["theirs"]: row["ours"] for row in ROW.finditer(TABLE)}


def answers(n: int, candidates: int = 1) -> Callable[[Any], bool]:
    """Whether it is a whole response to n sessions."""

    def check(found: Any) -> bool:
        return [len(each.candidates) for each in found.responses] == [candidates] * n

    return check


def pieces(found: Any) -> bool:
    return len(found) > 1 and all(len(item.responses) == len(item.responses[0].candidates) == 1 for item in found)


# What must be true of the value of each row.
CHECKS: dict[str, Callable[[Any], bool]] = {
    'ChatModel("chat-bison")': lambda found: isinstance(found, ChatModel),
    "model.chat([session])": answers(1),
    "model.chat(sessions, max_output_tokens=5, temperature=0)": lambda found: (
        answers(2)(found) and found.metadata.outputTokenCount.tokens <= 10
    ),
    "model.chat(prompts=sessions)": answers(2),
    "await model.async_chat(sessions)": answers(2),
    "for response in model.stream_chat([session])": pieces,
    "async for response in model.async_stream_chat([session])": pieces,
    "model.chat([session], candidateCount=2)": answers(1, candidates=2),
    "model.chat([session], topP=0.1)": answers(1),
    "model.chat([session], topK=20)": answers(1),
    'model.chat([session], stopSequences=["\\n"])': answers(1),
    "model.chat([session], invalid_parameter=0.5)": lambda found: isinstance(found, TypeError),
    'ChatSession(context="", examples=[], messages=[])': lambda found: found == ChatSession(),
    'ChatExample(input=ChatMessage(content="1 + 1"), output=ChatMessage(content="2"))': lambda found: (
        found == ChatExample("1 + 1", "2")
    ),
    'ChatMessage(content="Hi.", author="USER")': lambda found: (
        found.model_dump() == {"content": "Hi.", "author": "USER"}
    ),
    "response.responses[0].candidates[0].message.content": lambda found: isinstance(found, str),
    "response.responses[0].candidates[0].message.author": lambda found: found == "assistant",
    "response.responses[0].candidates[0].metadata": lambda found: (
        set(found) == {"finish_reason", "tokens", "characters", "stop"}
    ),
    "response.metadata.inputTokenCount.billableTokens": lambda found: found > 0,
    "response.metadata.inputTokenCount.unbilledTokens": lambda found: found >= 0,
    "response.metadata.outputTokenCount.billableCharacters": lambda found: found > 0,
    "response.metadata.outputTokenCount.unbilledCharacters": lambda found: found >= 0,
    "response.model_dump()": lambda found: set(found) == {"metadata", "responses"},
    "session.model_dump()": lambda found: ChatSession(**found) == about("sea"),
}


@pytest.fixture(scope="module")
def names(engine: Any) -> dict[str, Any]:
    """What the rows of the table speak of."""
    engine.sampling = causerie.SamplingOptions(max_tokens=4)
    model = ChatModel(engine)
    sessions = [about("sea"), about("lake")]
    exported = {name: getattr(causerie.chat_model, name) for name in causerie.chat_model.__all__}
    return {**exported, "model": model, "session": sessions[0], "sessions": sessions, "response": model.chat(sessions)}


def test_every_row_is_checked() -> None:
    assert list(ROWS) == list(CHECKS)


@pytest.mark.parametrize("theirs", CHECKS)
def test_row(theirs: str, names: dict[str, Any], smollm2_path: Path) -> None:
    code = ROWS[theirs]
    if "for response in" in code:
        code = f"[response {code}]"
    body = f"async def row():\n{textwrap.indent(f'return {code}', '    ')}"
    space = dict(names)
    exec(body, space)
    try:
        found = asyncio.run(space["row"]())
    except TypeError as error:
        found = error
    assert CHECKS[theirs](found)
    if isinstance(found, ChatModelResponse):
        assert not any(each.error for each in found.responses)
    elif isinstance(found, ChatModel):
        found.close()


def test_all_names_of_the_page_are_there() -> None:
    assert {"ChatExample", "ChatMessage", "ChatModel", "ChatSession"} <= set(causerie.chat_model.__all__)
