"""Replies as messages: what whole and partial ones give, and what becomes of those that do not fit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from causerie.chat import ChatTemplate, Message, Prompt, ReplyDelta, ReplyParser
from causerie.errors import TemplateError

LLAMA = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models"
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Writes a note",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["text"],
        },
    },
}
USER = Message("user", "Hello")


def prompt_of(name: str, **options: Any) -> Prompt:
    with ChatTemplate((LLAMA / "templates" / f"{name}.jinja").read_text("utf-8")) as template:
        return template.apply([USER], tools=[TOOL], parallel_tool_calls=True, **options)


@pytest.fixture(scope="module")
def qwen() -> Prompt:
    return prompt_of("Qwen-Qwen3-0.6B")


def call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "note", "arguments": {arguments}}}\n</tool_call>'


class TestParse:
    def test_of_a_template_without_markers_is_the_text(self) -> None:
        prompt = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}").apply([USER])
        for text in ("", "x", "<think>\0🦙</think>", " \n "):
            assert prompt.parse(text) == Message("assistant", text)

    def test_of_a_prompt_made_by_hand_is_the_text(self) -> None:
        assert Prompt("Hi").parse("<tool_call>") == Message("assistant", "<tool_call>")

    def test_tells_thinking_text_and_calls_apart(self, qwen: Prompt) -> None:
        message = qwen.parse("<think>\nHm.\n</think>\n\nSo.\n" + call('{"text": "a"}') + call("{}"))
        assert (message.thinking, message.text) == ("Hm.\n", "So.\n")
        assert [(c.name, c.arguments) for c in message.tool_calls] == [("note", {"text": "a"}), ("note", {})]

    def test_fills_ids_that_differ_and_are_the_same_next_time(self, qwen: Prompt) -> None:
        reply = call('{"text": "a"}') + call('{"text": "b"}')
        ids = [c.id for c in qwen.parse(reply).tool_calls]
        assert len(set(ids)) == 2
        assert all(len(i) == 9 and i.isalnum() for i in ids)
        assert ids == [c.id for c in qwen.parse(reply).tool_calls]

    def test_keeps_ids_of_the_format_and_mends_doubles(self) -> None:
        prompt = prompt_of("mistralai-Mistral-Nemo-Instruct-2407")
        entry = '{"name": "note", "arguments": {"text": "a"}, "id": "abcdefghi"}'
        first, second = prompt.parse(f"[TOOL_CALLS][{entry}, {entry}]").tool_calls
        assert first.id == "abcdefghi"
        assert second.id not in ("", first.id)

    @pytest.mark.parametrize("reply", ["<tool_call>\n{nonsense", call('{"text": }')])
    def test_refuses_what_does_not_fit(self, qwen: Prompt, reply: str) -> None:
        with pytest.raises(TemplateError):
            qwen.parse(reply)
        with pytest.raises(TemplateError):
            read(qwen, reply)

    @pytest.mark.parametrize("cut", ['{"name": "note", "arguments": {"text": "a', '{"name": "note", "argu'])
    def test_of_a_beginning_leaves_out_what_is_not_complete(self, qwen: Prompt, cut: str) -> None:
        assert qwen.parse(f"So. <tool_call>\n{cut}", partial=True) == Message("assistant", "So. ")

    def test_of_a_call_that_breaks_off_says_so(self, qwen: Prompt) -> None:
        with pytest.raises(TemplateError, match="breaks off"):
            qwen.parse('<tool_call>\n{"name": "note", "arguments": {"text": "a')

    @pytest.mark.parametrize("text", [None, 5, b"x"])
    def test_takes_text_only(self, qwen: Prompt, text: Any) -> None:
        with pytest.raises(TypeError, match="a reply is a str"):
            qwen.parse(text)
        with pytest.raises(TypeError, match="a reply is a str"):
            ReplyParser(qwen).feed(text)

    def test_refuses_half_characters(self, qwen: Prompt) -> None:
        with pytest.raises(ValueError, match="surrogates"):
            qwen.parse("\ud800")
        with pytest.raises(ValueError, match="surrogates"):
            ReplyParser(qwen).feed("\ud800")

    def test_keeps_content_that_follows_a_schema(self) -> None:
        prompt = ChatTemplate((LLAMA / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text("utf-8")).apply(
            [USER], response_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
        )
        assert prompt.parse('<think>\nHm.\n</think>\n\n{"n": 5}') == Message("assistant", '{"n": 5}', thinking="Hm.\n")


def read(prompt: Prompt, text: str, size: int = 3, *, partial: bool = False) -> tuple[Message, list[ReplyDelta]]:
    parser = ReplyParser(prompt)
    deltas = [d for i in range(0, len(text), size) for d in parser.feed(text[i : i + size])]
    deltas += parser.flush(partial=partial)
    return parser.finish(partial=partial), deltas


class TestReplyParser:
    def test_tells_text_as_soon_as_it_can_be_nothing_else(self, qwen: Prompt) -> None:
        parser = ReplyParser(qwen)
        assert parser.feed("Hi") == [ReplyDelta("text", "Hi")]
        assert parser.feed(" <tool") == [ReplyDelta("text", " ")]
        assert parser.feed("box>") == [ReplyDelta("text", "<toolbox>")]
        assert parser.feed("") == []
        assert parser.flush() == []
        assert parser.finish() == Message("assistant", "Hi <toolbox>")

    def test_completes_a_call_when_the_next_begins_or_the_reply_ends(self, qwen: Prompt) -> None:
        _, deltas = read(qwen, call('{"text": "a"}') + "\n" + call('{"text": "b"}'), 1)
        kinds = [(d.kind, d.index) for d in deltas]
        assert kinds.count(("tool_call", 0)) == kinds.count(("tool_call", 1)) == 1
        assert kinds.index(("tool_call", 0)) < kinds.index(("tool_call_delta", 1))
        assert kinds[-1] == ("tool_call", 1)

    @pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "Qwen3-Coder", "google-gemma-4-31B-it", "GLM-4.6"])
    @pytest.mark.parametrize("unit", ["word ", "line\n", '"quote" ', "back\\slash ", "{[", "🦙 a < b", "}]"])
    def test_long_replies_are_read_like_short_ones(self, name: str, unit: str) -> None:
        from reply_formats import FORMATS

        prompt = prompt_of(name)
        form = next(f for f in FORMATS.values() if name in f.templates)
        assert form.calls is not None
        value = "".join(f"{i} {unit}" for i in range(1500))
        start = form.think[0]
        for reply in (
            value,
            f"{start}{value}{form.think[1]}So." if start else "",
            form.calls([("note", {"text": value})]),
        ):
            message, deltas = read(prompt, reply, 37)
            assert message == prompt.parse(reply)
            assert "".join(d.text for d in deltas if d.kind == "text") == message.text
            assert "".join(d.text for d in deltas if d.kind == "thinking") == message.thinking
            assert [d.tool_call for d in deltas if d.kind == "tool_call"] == list(message.tool_calls)

    def test_a_piece_costs_no_more_in_a_long_reply(self, qwen: Prompt) -> None:
        def cost(repeats: int) -> float:
            parser = ReplyParser(qwen)
            for _ in range(repeats):
                parser.feed("some words that go on, and " * 10)
            best = float("inf")
            for _ in range(20):
                start = time.perf_counter()
                parser.feed("word ")
                best = min(best, time.perf_counter() - start)
            return best

        assert cost(1000) < 4 * cost(10) + 0.001

    def test_what_breaks_off_is_left_out_on_request(self, qwen: Prompt) -> None:
        message, deltas = read(
            qwen, "So. " + call('{"text": "a"}') + '<tool_call>\n{"name": "note", "arg', partial=True
        )
        assert message.text == "So. "
        assert [c.arguments for c in message.tool_calls] == [{"text": "a"}]
        assert [d.tool_call for d in deltas if d.kind == "tool_call"] == list(message.tool_calls)

    def test_a_reply_of_which_nothing_fits_is_text_on_request(self) -> None:
        message, deltas = read(prompt_of("openai-gpt-oss-120b"), "No channel at all", partial=True)
        assert message == Message("assistant", "No channel at all")
        assert deltas == [ReplyDelta("text", "No channel at all")]

    def test_ends_once(self, qwen: Prompt) -> None:
        parser = ReplyParser(qwen)
        parser.feed("Hi")
        assert parser.finish() is parser.finish()
        with pytest.raises(ValueError, match="finished"):
            parser.feed("more")


FUZZ = r"""
import random, sys
from pathlib import Path
from causerie import TemplateError
from causerie.chat import ChatTemplate, Message, ReplyParser

folder, runs = Path(sys.argv[1]), int(sys.argv[2])
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "a": {"type": "string"}, "b": {"type": "array"}, "c": {"type": "object"}}}}}
rng = random.Random(int(sys.argv[3]))
sources = [p.read_text("utf-8") for p in sorted(folder.glob("*.jinja"))]
for source in rng.sample(sources, 12):
    prompt = ChatTemplate(source).apply([Message("user", "x")], tools=[tool], parallel_tool_calls=True)
    marks = [*prompt.preserved_tokens, *prompt.thinking_end_tags, prompt.thinking_start_tag, "f", '{"name": "f", ',
        '"arguments": {', '"a": "', "}", "]", "[", "{", '"', "\n", " ", "1", "null", "\\", "\\u12", "x" * 50, "🦙", "f(a='",
        "<", ">", "[" * 2000, "{" * 2000, '{"a":' * 1000, "\0"]
    for _ in range(runs):
        text = "".join(rng.choices(marks, k=rng.randrange(1, 30)))
        for partial in (False, True):
            try:
                prompt.parse(text, partial=partial)
            except TemplateError:
                pass
        parser = ReplyParser(prompt)
        deltas = [d for i in range(0, len(text), 211) for d in parser.feed(text[i:i + 211])]
        deltas += parser.flush(partial=True)
        message = parser.finish()
        assert [d.tool_call for d in deltas if d.kind == "tool_call"] == list(message.tool_calls)
    for _ in range(runs):
        at = rng.randrange(len(source))
        broken = source[:at] + rng.choice(["{{", "}}", "{%", "%}", "'", "|", "", "(", "{% endif %}"]) + source[at + rng.randrange(40):]
        try:
            ChatTemplate(broken).apply([Message("user", "x")], tools=[tool])
        except TemplateError:
            pass
print("done")
"""


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "LFM2-8B-A1B", "google-gemma-4-31B-it"])
@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_deep_nesting_is_refused_before_it_ends_the_process(name: str, bracket: str) -> None:
    opening = {
        "Qwen-Qwen3-0.6B": call("")[:-14],
        "LFM2-8B-A1B": "<|tool_call_start|>[note(tags=",
        "google-gemma-4-31B-it": "<|tool_call>call:note{tags:",
    }
    prompt = prompt_of(name)
    prompt.parse(opening[name] + bracket * 39_000, partial=True)
    with pytest.raises(TemplateError):
        prompt.parse(opening[name] + bracket * 1_000_000)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_is_fed_ends_the_process(seed: int) -> None:
    command = [sys.executable, "-c", FUZZ, LLAMA / "templates", "8", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
