"""Replies in each format that llama.cpp's templates use: whole, in pieces and cut at every byte, the same message."""

from __future__ import annotations

import codecs
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reply_formats import FORMATS, Call, Format

from causerie.chat import ChatTemplate, Message, Prompt, ReplyDelta, ReplyParser

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "templates"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["place", "days"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "clock",
            "description": "Tells the time",
            "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
        },
    },
]
WEATHER = ("weather", {"place": 'Łódź, "Poland"', "days": 3})
CLOCK = ("clock", {"zone": "CET 🕰"})
THOUGHT = "They ask about 2 < 3 places.\nSo: call."
TEXT = "Let me look 🦙.\n\n1. a < b"
KNOWN = [(name, template) for name, f in FORMATS.items() for template in f.templates]


@lru_cache(maxsize=4)
def prompt_of(template: str, tools: bool, thinking: bool) -> Prompt:
    with ChatTemplate((FOLDER / f"{template}.jinja").read_text("utf-8")) as t:
        return t.apply(
            [Message("user", "Hello")],
            tools=TOOLS if tools else (),
            parallel_tool_calls=tools,
            thinking=thinking,
        )


def begins_thinking(fmt: Format, prompt: Prompt) -> bool:
    return bool(fmt.think[1]) and prompt.generation_prompt.rstrip().endswith(fmt.think[0].strip() or "steps:")


def replies(fmt: Format, template: str) -> Iterable[tuple[str, Prompt, str, str, str, list[Call]]]:
    """What it is, its prompt, the reply, and what it says: thinking, text, calls."""
    for tools in (False, True) if fmt.calls else (False,):
        prompt = prompt_of(template, tools, bool(fmt.think[1]))
        start, end = fmt.think
        if begins_thinking(fmt, prompt):
            start = ""
        thoughts = [(start + THOUGHT + end, fmt.begun + THOUGHT)] if fmt.think[1] else []
        if not begins_thinking(fmt, prompt):
            thoughts.append(("", ""))
        for thought, thinking in thoughts:
            if not (tools and fmt.must_call):
                yield "text", prompt, thought + fmt.text % TEXT, thinking, TEXT, []
            if not tools:
                continue
            assert fmt.calls is not None
            for calls in [[WEATHER], [CLOCK, WEATHER]][: 1 + fmt.many]:
                written = fmt.calls(calls)
                yield "calls", prompt, thought + written, thinking, "", calls
                if fmt.spoken:
                    yield "text and calls", prompt, thought + fmt.spoken % TEXT + written, thinking, TEXT, calls


def read(prompt: Prompt, pieces: Iterable[str]) -> tuple[Message, list[ReplyDelta]]:
    parser = ReplyParser(prompt)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.flush()
    return parser.finish(), deltas


def check_deltas(deltas: list[ReplyDelta], message: Message) -> None:
    assert "".join(d.text for d in deltas if d.kind == "text") == message.text
    assert "".join(d.text for d in deltas if d.kind == "thinking") == message.thinking
    complete = [d for d in deltas if d.kind == "tool_call"]
    assert [d.tool_call for d in complete] == list(message.tool_calls)
    assert [d.index for d in complete] == list(range(len(message.tool_calls)))
    for index, call in enumerate(message.tool_calls):
        own = [d for d in deltas if d.index == index and d.kind in ("tool_call_delta", "tool_call")]
        assert own[-1].kind == "tool_call"
        assert {d.name for d in own} == {call.name}
        arguments = "".join(d.text for d in own)
        assert Message.from_dict(
            {
                "role": "assistant",
                "tool_calls": [{"id": call.id, "function": {"name": call.name, "arguments": arguments}}],
            }
        ).tool_calls == (call,)


@pytest.mark.parametrize(("name", "template"), KNOWN, ids=[t for _, t in KNOWN])
class TestEachFormat:
    def test_reads_whole_replies(self, name: str, template: str) -> None:
        for what, prompt, reply, thinking, text, calls in replies(FORMATS[name], template):
            message = prompt.parse(reply)
            found = (
                message.thinking.strip(),
                message.text.strip(),
                [(c.name, c.arguments) for c in message.tool_calls],
            )
            assert found == (thinking, text, calls), (what, reply)
            ids = [call.id for call in message.tool_calls]
            assert all(ids)
            assert len(set(ids)) == len(ids)

    def test_reads_replies_in_pieces(self, name: str, template: str) -> None:
        for what, prompt, reply, _, _, _ in replies(FORMATS[name], template):
            whole = prompt.parse(reply)
            for size in (1, 3, 7):
                message, deltas = read(prompt, [reply[i : i + size] for i in range(0, len(reply), size)])
                assert message == whole, (what, reply)
                check_deltas(deltas, message)

    def test_reads_replies_cut_at_every_byte(self, name: str, template: str) -> None:
        *_, (_, prompt, reply, _, _, _) = replies(FORMATS[name], template)
        whole, raw = prompt.parse(reply), reply.encode()
        for cut in range(len(raw) + 1):
            decoder = codecs.getincrementaldecoder("utf-8")()
            message, deltas = read(prompt, [decoder.decode(raw[:cut]), decoder.decode(raw[cut:], final=True)])
            assert message == whole
            check_deltas(deltas, message)


def test_every_template_has_a_format() -> None:
    assert sorted(t for _, t in KNOWN) == sorted(p.stem for p in FOLDER.glob("*.jinja"))
