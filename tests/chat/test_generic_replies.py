"""Replies that call tools in plain text: read whole, in pieces and cut at every byte; and the grammar they keep to."""

from __future__ import annotations

import codecs
from random import Random
from typing import TYPE_CHECKING

import pytest
from generic_cases import BEGUN, OFF, POSSIBLE, REPLIES, TOOLS, Call, called, clock, encoder_of, prompt_of, weather
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_sampling import GrammarSampler, walks

from causerie.chat.generic_grammar import generic_grammar
from causerie.errors import SchemaError, TemplateError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from causerie.chat import Message, ReplyDelta
    from causerie.chat.generic_tools import GenericPrompt

CASES = pytest.mark.parametrize(("reply", "text", "calls"), [pytest.param(*c[1:], id=c[0]) for c in REPLIES])
THOUGHT = '2 < 3, and {"tool_calls": [ is no call here'


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, vocab_only=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def prompt(model: Model) -> GenericPrompt:
    return prompt_of(encoder_of(model, OFF), parallel_tool_calls=True)


def read(prompt: GenericPrompt, pieces: Iterable[str]) -> Message:
    """The message, once the deltas have been found to add up to it."""
    parser = prompt.reply_parser()
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.flush()
    message = parser.finish()
    check_deltas(deltas, message)
    return message


def check_deltas(deltas: list[ReplyDelta], message: Message) -> None:
    assert "".join(d.text for d in deltas if d.kind == "text") == message.text
    assert "".join(d.text for d in deltas if d.kind == "thinking") == message.thinking
    assert [(d.index, d.tool_call) for d in deltas if d.kind == "tool_call"] == list(enumerate(message.tool_calls))
    tools = {"weather": weather, "clock": clock}
    for index, call in enumerate(message.tool_calls):
        own = [d for d in deltas if d.index == index and d.kind in ("tool_call_delta", "tool_call")]
        assert own[-1].kind == "tool_call"
        assert {d.name for d in own} == {call.name}
        assert tools[call.name].check("".join(d.text for d in own)) == tools[call.name].check(call.arguments)


class TestReading:
    @CASES
    def test_whole(self, prompt: GenericPrompt, reply: str, text: str, calls: list[Call]) -> None:
        message = prompt.parse(reply)
        assert (message.text, called(message.tool_calls)) == (text, calls)
        ids = [call.id for call in message.tool_calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)

    @CASES
    def test_in_pieces_and_cut_at_every_byte(
        self, prompt: GenericPrompt, reply: str, text: str, calls: list[Call]
    ) -> None:
        whole, raw = prompt.parse(reply), reply.encode()
        for size in (1, 3, 7):
            assert read(prompt, [reply[i : i + size] for i in range(0, len(reply), size)]) == whole
        for cut in range(len(raw) + 1):
            decoder = codecs.getincrementaldecoder("utf-8")()
            assert read(prompt, [decoder.decode(raw[:cut]), decoder.decode(raw[cut:], final=True)]) == whole

    @pytest.mark.parametrize("template", [BEGUN, POSSIBLE])
    def test_behind_thinking(self, model: Model, template: str) -> None:
        prompt = prompt_of(encoder_of(model, template), parallel_tool_calls=True)
        reply = ("" if template == BEGUN else "<think>") + f"{THOUGHT}</think>" + REPLIES[3][1]
        whole = prompt.parse(reply)
        assert (whole.thinking.strip(), whole.text.strip(), called(whole.tool_calls)) == (THOUGHT, *REPLIES[3][2:])
        for cut in range(len(reply) + 1):
            assert read(prompt, [reply[:cut], reply[cut:]]) == whole

    @pytest.mark.parametrize(
        "reply",
        [
            '{"tool_calls": [',
            '{"tool_calls": [{"name": "clock", "arguments": {}}',
            '{"tool_calls": [{"name": "clock", "arguments": {}}]} more',
            '{"tool_calls": [{"name": "clock", "arguments": {,}}]}',
            '{"tool_calls": [{"name": "clock", "arguments": []}]}',
            '{"tool_calls": [{"name": "", "arguments": {}}]}',
            '{"tool_calls": 5}',
            '{"tool_calls": [{"arguments": {}' + " " * 600,
        ],
    )
    def test_what_does_not_fit_is_refused_or_taken_as_far_as_it_goes(self, prompt: GenericPrompt, reply: str) -> None:
        for size in (1, len(reply)):
            parser = prompt.reply_parser()
            for i in range(0, len(reply), size):
                parser.feed(reply[i : i + size])
            with pytest.raises(TemplateError):
                parser.finish()
            message = parser.finish(partial=True)
            assert message.text == ""
            complete = reply.startswith('{"tool_calls": [{"name": "clock", "arguments": {}}')
            assert called(message.tool_calls) == ([("clock", {})] if complete else [])

    def test_with_no_calls_allowed_all_is_text(self, model: Model) -> None:
        prompt = prompt_of(encoder_of(model, OFF), choice="none")
        assert prompt.parse(REPLIES[2][1]).text == REPLIES[2][1]

    def test_the_cost_of_a_piece_does_not_grow(self, prompt: GenericPrompt) -> None:
        parser = prompt.reply_parser()
        parser.feed('{"tool_calls": [{"name": "weather", "arguments": {"place": "')
        scanner = parser._scanner  # type: ignore[attr-defined]
        for _ in range(2000):
            parser.feed("many words ")
            assert len(scanner._rest) < 200
        assert called_after(parser, '"}}]}') == [("weather", {"place": "many words " * 2000})]

    @settings(deadline=None, max_examples=40)
    @given(
        st.lists(
            st.sampled_from([*'{"}[]:, \n\\x', '"tool_calls"', '{"tool_calls":', "[{", REPLIES[2][1]]), max_size=30
        )
    )
    def test_pieces_do_not_matter(self, prompt: GenericPrompt, pieces: list[str]) -> None:
        def outcome(given: Iterable[str]) -> Message:
            parser = prompt.reply_parser()
            for piece in given:
                parser.feed(piece)
            return parser.finish(partial=True)

        text = "".join(pieces)
        assert outcome(pieces) == outcome([text]) == outcome(text)


def called_after(parser: object, text: str) -> list[Call]:
    parser.feed(text)  # type: ignore[attr-defined]
    return called(parser.finish().tool_calls)  # type: ignore[attr-defined]


class TestGrammar:
    @CASES
    def test_takes_what_is_valid(
        self, model: Model, prompt: GenericPrompt, reply: str, text: str, calls: list[Call]
    ) -> None:
        odd_space = "\t" in reply  # is read, and not generated
        assert walks(model.vocab, prompt.grammar, reply) is not odd_space

    @pytest.mark.parametrize(
        "reply",
        [
            '{"tool_calls": []}',
            '{"tool_calls": [{"name": "other", "arguments": {}}]}',
            '{"tool_calls": [{"name": "clock", "arguments": {"a": 1}}]}',
            '{"tool_calls": [{"name": "weather", "arguments": {}}]}',
            '{"tool_calls": [{"name": "weather", "arguments": {"place": 5}}]}',
            '{"tool_calls": [{"name": "clock", "arguments": {}}',
            '{"tool_calls": [{"name": "clock", "arguments": {}}]} and more',
            'text {"tool_calls": text',
        ],
    )
    def test_refuses_the_rest(self, model: Model, prompt: GenericPrompt, reply: str) -> None:
        assert not walks(model.vocab, prompt.grammar, reply)

    def test_several_calls_only_where_they_are_wanted(self, model: Model) -> None:
        two = '{"tool_calls": [{"name": "clock", "arguments": {}}, {"name": "clock", "arguments": {}}]}'
        for several in (False, True):
            grammar = generic_grammar(TOOLS, "required", several=several)
            assert walks(model.vocab, grammar, two) is several

    def test_choices(self, model: Model) -> None:
        call = REPLIES[2][1]
        for choice, takes in {"auto": (True, True), "required": (False, True), "none": (True, False)}.items():
            grammar = prompt_of(encoder_of(model, OFF), choice=choice).grammar
            assert (walks(model.vocab, grammar, "text"), walks(model.vocab, grammar, call)) == takes

    def test_one_tool_by_name(self, model: Model) -> None:
        encoder = encoder_of(model, OFF)
        narrow = prompt_of(encoder, choice="required", callable_names=["weather"])
        assert narrow.text == prompt_of(encoder).text  # and nothing has to be evaluated again
        assert not walks(model.vocab, narrow.grammar, REPLIES[2][1])

    @pytest.mark.parametrize("choice", ["auto", "required"])
    @pytest.mark.parametrize("template", [BEGUN, POSSIBLE, OFF])
    def test_all_it_gives_can_be_read_and_has_valid_arguments(self, model: Model, template: str, choice: str) -> None:
        prompt = prompt_of(encoder_of(model, template), choice=choice, parallel_tool_calls=True)
        draw = GrammarSampler(prompt.grammar).draw
        kinds = set()
        for seed in range(200):
            reply = draw(Random(seed), limit=100)
            message = read(prompt, [reply[: seed % 50], reply[seed % 50 :]])
            kinds.add((bool(message.text), bool(message.tool_calls)))
        calls = {(False, True)}
        assert kinds >= (calls if choice == "required" else {*calls, (True, False), (True, True)})
        assert choice == "auto" or kinds <= {(False, True)}

    @pytest.mark.parametrize("template", [BEGUN, POSSIBLE])
    def test_thinking_comes_first(self, model: Model, template: str) -> None:
        start = "" if template == BEGUN else "<think>"
        for choice in ("auto", "required"):
            grammar = prompt_of(encoder_of(model, template), choice=choice).grammar
            assert walks(model.vocab, grammar, f"{start}{THOUGHT}</think>\n\n{REPLIES[2][1]}")
            # Where the prompt has begun to think, a call would be a thought.
            assert walks(model.vocab, grammar, REPLIES[2][1]) is (template == POSSIBLE or choice == "auto")
            assert walks(model.vocab, grammar, f"{start}I think") is (choice == "auto")

    def test_where_it_is_switched_off_there_is_none(self, model: Model) -> None:
        grammar = prompt_of(encoder_of(model, POSSIBLE), choice="required", thinking=False).grammar
        assert walks(model.vocab, grammar, REPLIES[2][1])
        assert not walks(model.vocab, grammar, f"<think>{THOUGHT}</think>{REPLIES[2][1]}")

    def test_references_stay_inside_each_tool(self, model: Model) -> None:
        def with_definition(name: str, kind: str) -> dict[str, object]:
            parameters = {"properties": {"x": {"$ref": "#/$defs/x"}}, "required": ["x"], "$defs": {"x": {"type": kind}}}
            return {"type": "function", "function": {"name": name, "parameters": parameters}}

        grammar = generic_grammar(
            [with_definition("one", "integer"), with_definition("two", "boolean")], "required", several=False
        )
        for name, value, fits in [
            ("one", "5", True),
            ("two", "true", True),
            ("one", "true", False),
            ("two", "5", False),
        ]:
            reply = f'{{"tool_calls": [{{"name": "{name}", "arguments": {{"x": {value}}}}}]}}'
            assert walks(model.vocab, grammar, reply) is fits

    def test_what_cannot_be_enforced_is_refused_by_tool_and_path(self) -> None:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"minLenght": 1}}}}}
        with pytest.raises(SchemaError, match=r"tool f: .*minLenght") as caught:
            generic_grammar([tool], "auto", several=False)
        assert caught.value.path == "$.properties.a.minLenght"
