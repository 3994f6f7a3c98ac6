"""What the tests of tools in plain text share: tools, prompts, and replies with what they say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from prompt_cases import shipped

from causerie import tool
from causerie.chat import Message, ToolCall
from causerie.chat.generic_tools import GenericPrompt, encode_generic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.chat.prompt import PromptEncoder
    from causerie.llama import Model


@tool
def weather(place: str, days: int = 1) -> dict[str, Any]:
    """Tells the weather.

    Args:
        place: name of a place.
    """
    return {"place": place, "days": days}


@tool
def clock() -> str:
    """Tells the time."""
    return "12:00"


TOOLS = [weather.to_dict(), clock.to_dict()]
QUESTION = Message("user", "How is the weather?")
ODD = {"place": 'Łódź, "Poland"}]}\\ 🕰', "days": 3}
BEGUN, POSSIBLE, OFF = "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "HuggingFaceTB-SmolLM3-3B", "google-gemma-2-2b-it"
"""Templates that begin the thinking, leave it to the model, and know none."""

Call = tuple[str, dict[str, Any]]
# What it is, the reply, its text, its calls.
REPLIES: list[tuple[str, str, str, list[Call]]] = [
    ("text", "Just an answer.\n", "Just an answer.\n", []),
    ("nothing", "", "", []),
    ("call", '{"tool_calls": [{"name": "clock", "arguments": {}}]}', "", [("clock", {})]),
    (
        "calls behind text",
        'Let me look 🦙.\n\n{"tool_calls":[{"name":"weather","arguments":' + json.dumps(ODD) + "},\n"
        ' {"name": "clock", "arguments": {}}]}',
        "Let me look 🦙.",
        [("weather", ODD), ("clock", {})],
    ),
    (
        "space everywhere",
        '\n{ \n"tool_calls" : \t[ { "name" : "weather" , "arguments" : {"place": "\\"{["} } ] } \n',
        "",
        [("weather", {"place": '"{['})],
    ),
    ("other JSON", '{"tool_call": {"name": "clock"}} {', '{"tool_call": {"name": "clock"}} {', []),
    ("nearly a call", '{{"tool_calls" {"tool_calls', '{{"tool_calls" {"tool_calls', []),
    ("a call behind a brace", '{{"tool_calls":[{"name":"clock","arguments":{}}]}', "{", [("clock", {})]),
    (
        "much space",
        "a" + "\n" * 100 + '{"tool_calls":[{"name":"clock","arguments":{}}]}',
        "a" + "\n" * 36,
        [("clock", {})],
    ),
]


def prompt_of(encoder: PromptEncoder, *, choice: str = "auto", **options: Any) -> GenericPrompt:
    """The prompt for a question."""
    found = encode_generic(encoder, [QUESTION], tools=TOOLS, tool_choice=choice, **options).prompt
    assert isinstance(found, GenericPrompt)
    return found


def encoder_of(model: Model, name: str) -> PromptEncoder:
    """An encoder of a template that llama.cpp ships."""
    return shipped(model, name)


def called(calls: Sequence[ToolCall]) -> list[Call]:
    """Names and arguments."""
    return [(call.name, dict(call.arguments)) for call in calls]
