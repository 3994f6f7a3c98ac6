"""What prompts and replies cost: rendering a history, reading its answer, and reading a reply while it arrives."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from causerie.chat import ChatTemplate, Message, Prompt, ReplyParser, ToolCall

TEMPLATES = Path(__file__).resolve().parents[1] / "vendor" / "llama.cpp" / "models" / "templates"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Writes a note",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}
HERMES, THINKING = "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "Qwen-Qwen3-0.6B"
# Those of llama.cpp's that take longest: they call macros for each message, or go through all messages for each.
SLOWEST = [
    "Kimi-K3",
    "google-gemma-4-31B-it",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "unsloth-mistral-Devstral-Small-2507",
    "Cohere2MoE",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "Reka-Edge",
    "upstage-Solar-Open-100B",
    "openai-gpt-oss-120b",
]
WORDS = ["Words", "that", "go", "on,", "as", "a", '"model"', "writes", "them,\nand", "so", ""]


def history(messages: int) -> list[Message]:
    found = [Message("system", "Be brief.")]
    while len(found) < messages - 5:
        call = ToolCall(f"call{len(found):05d}", "note", {"text": "Oslo"})
        found += [
            Message("user", "And what about this one, then? " * 4),
            Message("assistant", tool_calls=(call,)),
            Message("tool", "noted", tool_call_id=call.id, name="note"),
            Message("assistant", "It is as it was before. " * 6),
        ]
    return [
        *found,
        *[Message("user", "So?"), Message("assistant", "So.")] * ((messages - len(found)) // 2),
        Message("user", "?"),
    ]


def prompt_of(name: str) -> Prompt:
    with ChatTemplate((TEMPLATES / f"{name}.jinja").read_text("utf-8")) as template:
        return template.apply([Message("user", "Hello")], tools=[TOOL])


@pytest.mark.parametrize("name", [HERMES, THINKING, *SLOWEST])
def test_render_50_messages_and_read_the_reply(benchmark: Any, name: str) -> None:
    """Bar: 5 ms."""
    messages = history(50)
    with ChatTemplate((TEMPLATES / f"{name}.jinja").read_text("utf-8")) as template:

        def render_and_read() -> Message:
            return template.apply(messages, tools=[TOOL]).parse("It is as it was. " * 20, partial=True)

        benchmark(render_and_read)


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        (HERMES, ""),
        (HERMES, '<tool_call>\n{"name": "note", "arguments": {"text": "'),
        (THINKING, "<think>\n"),
        (THINKING, ""),
    ],
    ids=["text", "call", "thinking", "text behind no thinking"],
)
def test_read_one_more_token_of_a_long_reply(benchmark: Any, name: str, opening: str) -> None:
    """Bar: after 4,000 tokens no more than twice what it is after 100."""
    prompt = prompt_of(name)

    def seconds(tokens: int, more: int = 100) -> float:
        parser = ReplyParser(prompt)
        parser.feed(opening)
        said = [WORDS[i % len(WORDS)].replace('"', "").replace("\n", " ") + " " for i in range(tokens + more)]
        for word in said[:tokens]:
            parser.feed(word)
        start = time.perf_counter()
        for word in said[tokens:]:
            parser.feed(word)
        return (time.perf_counter() - start) / more

    costs = {tokens: min(seconds(tokens) for _ in range(3)) * 1e6 for tokens in (100, 1000, 4000)}
    benchmark.extra_info.update({f"after {tokens} tokens, us": cost for tokens, cost in costs.items()})
    print(", ".join(f"{cost:.0f} us after {tokens} tokens" for tokens, cost in costs.items()))
    benchmark.pedantic(lambda: seconds(100), rounds=1)
