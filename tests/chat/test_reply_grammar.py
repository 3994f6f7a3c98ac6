"""The grammar of a reply, for every format: which replies it allows, and that those are read as what was asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from prompt_cases import LLAMA
from reply_formats import FORMATS, Format
from test_parse_formats import begins_thinking

from causerie.chat import ChatTemplate, Message, Prompt
from causerie.chat.reply_grammar import ReplyGrammar, answer_grammar, tools_grammar
from causerie.chat.reply_reading import BytesReader, bytes_reader, is_plain
from causerie.errors import GrammarError, UnsupportedError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string"},
                    "days": {"type": "integer", "minimum": 1, "maximum": 9},
                },
                "required": ["place", "days"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "clock", "description": "Tells the time", "parameters": {"type": "object", "properties": {}},
        },
    },
]  # fmt: skip
WEATHER = ("get_weather", {"place": "Oslo", "days": 3})
MANY = [(name, template) for name, f in FORMATS.items() for template in f.templates]
CALLING = [(name, template) for name, template in MANY if FORMATS[name].calls is not None]
# llama.cpp's grammars do not hold these formats' arguments to the schema at all: calls are checked when they are read.
LOOSE = {"LFM2", "LFM2 with thinking", "Gemma 4", "Kimi K3"}
THOUGHT = "Hm, 1 < 2.\n"


@pytest.fixture(scope="module")
def vocabulary(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, vocab_only=True) as model:
        yield model


@lru_cache(maxsize=2)
def template_of(name: str) -> ChatTemplate:
    return ChatTemplate((LLAMA / "templates" / f"{name}.jinja").read_text("utf-8"))


def allows(grammar: ReplyGrammar, model: Model, reply: str) -> bool:
    sampler = grammar.sampler(model.vocab)
    try:
        for token in model.vocab.tokenize(reply, add_special=False, parse_special=False).tolist():
            sampler.accept(token)
        assert model.vocab.eos is not None
        sampler.accept(model.vocab.eos)
    except GrammarError:
        return False
    finally:
        sampler.close()
    return True


def read(prompt: Prompt, reply: str) -> BytesReader:
    reader = bytes_reader(prompt, ())
    list(reader.feed(reply.encode()))
    list(reader.flush(cut=False))
    return reader


def thinking(fmt: Format, prompt: Prompt) -> str:
    """A thought as the reply has it behind this prompt; "" if the format has none."""
    start, end = fmt.think
    if not end:
        return ""
    return THOUGHT + end if begins_thinking(fmt, prompt) else start + THOUGHT + end


@pytest.mark.parametrize(("name", "template"), CALLING, ids=[t for _, t in CALLING])
class TestRequiredCalls:
    def made(self, name: str, template: str) -> tuple[Prompt, ReplyGrammar, str]:
        prompt = template_of(template).apply([Message("user", "Hello")], tools=TOOLS, tool_choice="required")
        grammar = tools_grammar(prompt, TOOLS, required=True)
        assert grammar is not None
        return prompt, grammar, thinking(FORMATS[name], prompt)

    def test_are_allowed_and_read(self, name: str, template: str, vocabulary: Model) -> None:
        prompt, grammar, thought = self.made(name, template)
        write = FORMATS[name].calls
        assert write is not None
        reply = thought + write([WEATHER])
        assert allows(grammar, vocabulary, reply), reply
        assert [(call.name, call.arguments) for call in read(prompt, reply).calls] == [WEATHER]

    def test_cannot_be_left_out_or_put_off(self, name: str, template: str, vocabulary: Model) -> None:
        _, grammar, thought = self.made(name, template)
        fmt = FORMATS[name]
        assert fmt.calls is not None
        assert not allows(grammar, vocabulary, thought + fmt.text % "Just a text.")
        assert not allows(grammar, vocabulary, thought)
        if fmt.spoken not in {"", "%s"}:
            return  # marks of the format around nothing may remain
        assert not allows(grammar, vocabulary, thought + "Let me look. " + fmt.calls([WEATHER]))

    @pytest.mark.parametrize("days", [0, 10, "soon"])
    def test_follow_the_whole_schema(self, name: str, template: str, days: Any, vocabulary: Model) -> None:
        _, grammar, thought = self.made(name, template)
        write = FORMATS[name].calls
        assert write is not None
        reply = thought + write([("get_weather", {"place": "Oslo", "days": days})])
        assert allows(grammar, vocabulary, reply) == (name in LOOSE)

    def test_are_of_tools_that_there_are(self, name: str, template: str, vocabulary: Model) -> None:
        _, grammar, thought = self.made(name, template)
        write = FORMATS[name].calls
        assert write is not None
        assert not allows(grammar, vocabulary, thought + write([("hammer", {})]))
        assert not allows(grammar, vocabulary, thought + write([("clock", {"zone": "CET"})])) or name in LOOSE


@pytest.mark.parametrize(("name", "template"), CALLING, ids=[t for _, t in CALLING])
class TestCallsThatMayCome:
    def made(self, name: str, template: str) -> tuple[Prompt, ReplyGrammar | None, str]:
        prompt = template_of(template).apply([Message("user", "Hello")], tools=TOOLS, parallel_tool_calls=True)
        grammar = tools_grammar(prompt, TOOLS, required=False)
        assert (grammar is None) == (name in {"Llama 3", "Functionary 3.2"})  # no marks, or wrong ones
        return prompt, grammar, thinking(FORMATS[name], prompt)

    def test_leave_texts_and_thoughts_alone(self, name: str, template: str, vocabulary: Model) -> None:
        fmt = FORMATS[name]
        prompt, grammar, thought = self.made(name, template)
        if grammar is None:
            return
        assert fmt.calls is not None
        begun = [str(t["value"]) for t in prompt.grammar_triggers if t["type"] == 1]
        ends = begun and begun[0].strip() in map(str.strip, prompt.thinking_end_tags)
        aloud = f"I say {begun[0]} and mean it. " if begun and thought and not ends else ""
        assert allows(grammar, vocabulary, thought.replace("Hm", f"{aloud}Hm") + fmt.text % "Just a < text.")

    def test_follow_the_grammar(self, name: str, template: str, vocabulary: Model) -> None:
        fmt = FORMATS[name]
        prompt, grammar, thought = self.made(name, template)
        if grammar is None:
            return
        assert fmt.calls is not None
        for spoken in ("", fmt.spoken % "Let me look. " if fmt.spoken else ""):
            for calls in [[WEATHER], [WEATHER, WEATHER]][: 1 + fmt.many]:
                reply = thought + spoken + fmt.calls(calls)
                assert allows(grammar, vocabulary, reply), reply
                assert [(call.name, call.arguments) for call in read(prompt, reply).calls] == calls
            for days in (0, "soon"):
                wrong = [("get_weather", {"place": "Oslo", "days": days})]
                assert allows(grammar, vocabulary, thought + spoken + fmt.calls(wrong)) == (name in LOOSE)
            assert not allows(grammar, vocabulary, thought + spoken + fmt.calls([("hammer", {})]))


THINKING = [(name, template) for name, template in MANY if FORMATS[name].think[1]]
CONSTRAINT = 'root ::= "yes" | more\nmore ::= "no, " [a-z"]+ # because\n'


@pytest.mark.parametrize(("name", "template"), THINKING, ids=[t for _, t in THINKING])
def test_a_constraint_is_on_the_text_behind_the_thinking(name: str, template: str, vocabulary: Model) -> None:
    made, fmt = template_of(template), FORMATS[name]
    prompt = made.apply([Message("user", "Hello")])
    assert not is_plain(prompt)
    try:
        of_schema = made.apply([Message("user", "Hello")], response_schema={"type": "object"}).grammar
    except UnsupportedError:
        assert name in {"Kimi K2", "Kimi K3", "GLM"}
        return
    grammar = answer_grammar(prompt, CONSTRAINT, of_schema)
    if name == "Command R7B":  # llama.cpp's grammar leaves out the marks without which its parser finds no text
        assert grammar is None
        return
    assert grammar is not None
    for thought in (thinking(fmt, prompt), ""):
        for answer, right in (("yes", True), ('no, "b', True), ("maybe", False), ("yes, sir", False)):
            reply = thought + fmt.text % answer
            allowed = allows(grammar, vocabulary, reply)
            assert allowed == right or (not thought and not allowed), reply
            if allowed:
                reader = read(prompt, reply)
                assert (reader.content, bool(reader.thinking)) == (answer, bool(thought)), reply


def test_a_schema_grammar_without_a_place_for_an_answer_is_not_used() -> None:
    prompt = template_of("Qwen-Qwen3-0.6B").apply([Message("user", "Hello")])
    assert answer_grammar(prompt, 'root ::= "yes"', 'root ::= "something else"') is None


def test_a_prompt_without_a_grammar_gives_none() -> None:
    assert tools_grammar(Prompt("x"), TOOLS, required=False) is None


def test_tools_whose_names_llama_cpp_writes_alike_are_refused() -> None:
    """Its grammar would allow calls of one of them only."""
    tools = [{**TOOLS[1], "function": {**TOOLS[1]["function"], "name": name}} for name in ("a_b", "a.b")]  # type: ignore[dict-item]
    prompt = template_of("Qwen-Qwen2.5-7B-Instruct").apply([Message("user", "Hello")], tools=tools)
    with pytest.raises(UnsupportedError, match=r"'a_b' and 'a\.b'"):
        tools_grammar(prompt, tools, required=True)


def test_what_llama_cpp_leaves_out_of_a_schema_is_held(vocabulary: Model) -> None:
    parameters = {
        "type": "object",
        "properties": {"n": {"type": "integer", "multipleOf": 5}, "at": {"$ref": "#/$defs/time"}},
        "required": ["n"],
        "$defs": {"time": {"type": "string", "format": "time"}},
    }
    tools = [{"type": "function", "function": {"name": "f", "description": "", "parameters": parameters}}]
    prompt = template_of("Qwen-Qwen2.5-7B-Instruct").apply(
        [Message("user", "Hello")], tools=tools, tool_choice="required"
    )
    grammar = tools_grammar(prompt, tools, required=True)
    write = FORMATS["Hermes"].calls
    assert grammar is not None
    assert write is not None
    plain = ReplyGrammar(prompt.grammar, begun=prompt.generation_prompt)
    wrong = [{"n": 7}, {"n": -0.5}, {"n": 5, "at": "noon"}, {"n": 5, "x": 1}]
    assert [allows(grammar, vocabulary, write([("f", arguments)])) for arguments in wrong] == [False] * 4
    assert allows(plain, vocabulary, write([("f", wrong[0])]))  # or there were no need
    for arguments in ({"n": 15}, {"n": 0, "at": "12:30:00Z"}):
        assert allows(grammar, vocabulary, write([("f", arguments)]))
