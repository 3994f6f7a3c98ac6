"""What a person may get wrong with tools, constraints and samplers: it is said at once, and nothing changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scripted import Script, calls
from tool_cases import weather

import causerie
from causerie import BusyError, Choices, ContextOverflowError, Grammar, GrammarError, Regex, SchemaError, ToolError
from causerie.chat.response_format import ResponseFormat, as_response_format

if TYPE_CHECKING:
    from causerie import Engine


@pytest.mark.parametrize(
    ("grammar", "place"),
    [
        ('root ::= "a', (1, 10)),
        ("root ::= b", (1, 10)),
        ('root ::= "a" (\n  b | "c")', (2, 3)),
        ("\n\nroot ::= [a", (3, 10)),
        ('root = "a"', (1, 6)),
        ('x ::= "a"\n', (2, 1)),
        ('a ::= "a"\nroot ::= "b" | root "a"', (2, 1)),
        ('root ::= x\nx ::= y "a"\ny ::= x', (2, 1)),
        ('root ::= "a"{3,2}', (1, 13)),
        ("root ::= <|no_such_token|>", (1, 10)),
        (" ", (1, 2)),
    ],
)
def test_a_malformed_grammar_raises_with_its_place(engine: Engine, grammar: str, place: tuple[int, int]) -> None:
    chat = engine.conversation()
    ways: list[dict[str, Any]] = [{"grammar": grammar}]
    if grammar.strip():  # else `Grammar` itself refuses it
        ways.append({"response_format": Grammar(grammar)})
    for options in ways:
        with pytest.raises(GrammarError) as caught:
            chat.send("x", **options)
        assert (caught.value.line, caught.value.column) == place
        assert str(caught.value).startswith(f"line {place[0]}, column {place[1]}: ")
    assert chat.messages == ()


@pytest.mark.parametrize("kind", [Regex, Choices, Grammar, ResponseFormat])
def test_a_class_is_not_taken_for_what_a_reply_is_to_be(engine: Engine, kind: type) -> None:
    chat = engine.conversation()
    with pytest.raises(TypeError, match=f"{kind.__name__} itself is no response format"):
        chat.send("x", response_format=kind)
    assert chat.messages == ()


def test_a_malformed_pattern_raises_with_its_place(engine: Engine) -> None:
    chat = engine.conversation()
    with pytest.raises(SchemaError) as caught:
        chat.send("x", response_format=Regex("a(b"))
    assert caught.value.position == 1
    assert chat.messages == ()


def test_a_reply_that_was_cut_off_can_be_repaired(engine: Engine) -> None:
    form = as_response_format({"type": "object", "properties": {"n": {"enum": ["a long word"]}}, "required": ["n"]})
    whole = engine.conversation().send("x", response_format=form, temperature=0, max_tokens=60)
    assert (whole.finish_reason, whole.parsed) == ("stop", {"n": "a long word"})
    for limit in range(1, whole.usage.completion_tokens):
        cut = engine.conversation().send("x", response_format=form, temperature=0, max_tokens=limit)
        assert (cut.finish_reason, cut.parsed) == ("length", None)
        found = form.parse(form.repair(cut.text))
        assert found in ({}, None) or "a long word".startswith(found["n"] or "")


class TestTools:
    @pytest.mark.parametrize("tools", [3, None, "weather", weather, {"type": "function"}, 2.5])
    def test_are_a_list(self, engine: Engine, tools: Any) -> None:
        chat = engine.conversation()
        for call in (chat.send, chat.run):
            if tools is None:
                continue
            with pytest.raises(TypeError, match="tools must be a list of tools"):
                call("x", tools=tools)
        with pytest.raises(TypeError, match="tools must be a list of tools"):
            engine.conversation(tools=tools)
        assert chat.messages == ()

    def test_results_are_of_the_call_that_they_answer(self, engine: Engine) -> None:
        one, two = (causerie.tool(name=name, description="")(lambda: 1) for name in ("one", "two"))
        sampling = {"temperature": 0, "samplers": Script(engine, calls("one", "two"), "Done.")}
        chat = engine.conversation(tools=[one, two], tool_format="generic", sampling=sampling)
        first, second = chat.send("x").tool_calls
        before = chat.messages
        for call_id, name in (("nope", None), (first.id, "two"), (second.id, "one"), (first.id, "")):
            with pytest.raises((ToolError, ValueError)):
                chat.add_tool_result(call_id, "1", name=name)
        assert chat.messages == before
        with pytest.raises(ToolError, match="is a call of 'one', not of 'two'"):
            chat.add_tool_result(first.id, "1", name="two")
        chat.add_tool_result(second.id, "2", name="two")
        with pytest.raises(ToolError, match="has been answered already"):
            chat.add_tool_result(second.id, "2")
        with pytest.raises(ToolError, match="wait for a result"):
            chat.respond()
        chat.add_tool_result(first.id, "1")
        assert chat.respond().text == "Done."

    def test_of_many_threads_one_gives_the_result(self, engine: Engine) -> None:
        one = causerie.tool(name="one", description="")(lambda: 1)
        sampling = {"temperature": 0, "samplers": Script(engine, calls("one"), "Done.")}
        chat = engine.conversation(tools=[one], tool_format="generic", sampling=sampling)
        call_id = chat.send("x").tool_calls[0].id

        def answer(_: int) -> str:
            try:
                chat.add_tool_result(call_id, "1")
            except (ToolError, BusyError) as error:
                return type(error).__name__
            return "given"

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(answer, range(200))).count("given") == 1
        assert [message.role for message in chat.messages] == ["user", "assistant", "tool"]

    def test_a_result_that_is_too_long_may_be_shortened(self, engine: Engine) -> None:
        one = causerie.tool(name="one", description="")(lambda: "word " * 3000)
        sampling = {"temperature": 0, "samplers": Script(engine, calls("one"), "Done.")}
        chat = engine.conversation(tools=[one], tool_format="generic", sampling=sampling)
        with pytest.raises(ContextOverflowError) as caught:
            chat.run("x")
        assert caught.value.kind == "too_long"
        assert [message.role for message in chat.messages] == ["user", "assistant", "tool"]
        chat.edit(2, "some words")
        assert chat.respond().text == "Done."


WRONG: dict[str, Any] = {
    "NaN": lambda row: row * np.nan,
    "too short": lambda row: row[:3],
    "of two dimensions": lambda row: row[None],
    "a token": lambda _: 3,
    "a text": lambda _: "x",
    "of complex numbers": lambda row: row.astype(np.complex64),
    "nothing left": lambda row: np.full_like(row, -np.inf),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_sampler_that_gives_nonsense_is_told(engine: Engine, what: str) -> None:
    chat = engine.conversation()
    with pytest.raises(ValueError, match="the sampler <lambda>"):
        chat.send("x", samplers=WRONG[what], max_tokens=3)
    assert [message.role for message in chat.messages] == ["user"]
    assert chat.respond(max_tokens=1, temperature=0).usage.completion_tokens == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, ZeroDivisionError])
def test_what_a_sampler_raises_reaches_the_caller(engine: Engine, error: type[BaseException]) -> None:
    def fails(_: Any) -> None:
        raise error

    chat = engine.conversation()
    with pytest.raises(error) as caught:
        chat.send("x", samplers=fails, max_tokens=3)
    assert caught.traceback[-1].name == "fails"
    with pytest.raises(error):
        list(chat.stream_respond(samplers=fails, max_tokens=3))
    assert [message.role for message in chat.messages] == ["user"]
    assert chat.respond(max_tokens=1, temperature=0).usage.completion_tokens == 1
