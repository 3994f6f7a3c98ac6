"""Histories with tools for templates that know none: plain messages, and never a control token from a text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from generic_cases import OFF, QUESTION, TOOLS, encoder_of
from prompt_cases import ATTACK, CHATML, SHIPPED, controls, holds, made

from causerie.chat import Message, ToolCall
from causerie.chat.generic_tools import encode_generic, generic_messages
from causerie.chat.whole_replies import Written
from causerie.errors import UnsupportedError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALLS = Message(
    "assistant",
    "Let me see.",
    tool_calls=(ToolCall("a", "weather", {"place": "Łódź"}), ToolCall("b", "clock"), ToolCall("c", "clock")),
)
RESULTS = [Message("tool", text, tool_call_id=name) for name, text in [("b", "12:00\n"), ("a", '{"t": 3}'), ("c", "")]]
HISTORY = [Message("system", "Be brief."), QUESTION, CALLS, *RESULTS]


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, vocab_only=True) as loaded:
        yield loaded


class TestMessages:
    def test_the_system_text_tells_of_the_tools(self) -> None:
        (system, *others), _ = generic_messages(HISTORY, tools=TOOLS)
        assert system.text.startswith("Be brief.\n\n")
        for tool in TOOLS:
            assert json.dumps(tool["function"]) in system.text
        assert others[0] == QUESTION

    def test_there_is_one_if_there_was_none(self) -> None:
        (system, *others), _ = generic_messages([QUESTION], tools=TOOLS)
        assert system.role == "system"
        assert others == [QUESTION]

    def test_or_the_first_question_does(self) -> None:
        opening = Message("assistant", "Hello.")
        (first, told, again), _ = generic_messages([opening, QUESTION, QUESTION], tools=TOOLS, system_role=False)
        assert (first, again) == (opening, QUESTION)
        assert told.text.endswith(f"\n\n{QUESTION.text}")
        assert "weather" in told.text

    def test_content_parts_stay_parts(self) -> None:
        parts = Message("user", [{"type": "text", "text": "Hello"}])
        ((told,), _) = generic_messages([parts], tools=TOOLS, system_role=False)
        assert [part["type"] for part in told.content] == ["text", "text"]

    def test_calls_and_results_are_texts_of_assistant_and_user(self) -> None:
        plain, _ = generic_messages(HISTORY)
        assert [message.role for message in plain] == ["system", "user", "assistant", "user"]
        text, calls = plain[2].text.split("\n")
        assert text == "Let me see."
        assert json.loads(calls)["tool_calls"][0] == {"name": "weather", "arguments": {"place": "Łódź"}}
        assert plain[2].tool_calls == ()
        _, *lines = plain[3].text.split("\n")  # in the order of the calls
        assert [json.loads(line) for line in lines] == [
            {"name": "weather", "result": {"t": 3}},
            {"name": "clock", "result": "12:00\n"},
            {"name": "clock", "result": ""},
        ]

    @pytest.mark.parametrize("text", ["[" * 5000, "NaN", '"\\ud800"', "1e999", "[" * 200 + "]" * 200])
    def test_results_that_are_not_quite_json_are_texts(self, text: str) -> None:
        plain, _ = generic_messages([QUESTION, CALLS, Message("tool", text, tool_call_id="a")])
        assert json.loads(plain[-1].text.split("\n")[1])["result"] == text

    def test_generated_ids_stay_with_their_message(self) -> None:
        ids = (None, None, (1, 2), None, None, None, (3,))
        plain, own = generic_messages([*HISTORY, Message("assistant", "Cold.")], ids, tools=TOOLS)
        assert len(plain) == len(own)
        assert own == (None, None, (1, 2), None, (3,))

    def test_calls_stand_there_as_the_model_wrote_them_if_that_is_all_it_wrote(self) -> None:
        raw = 'Let me see.\n\n{"tool_calls": [{"name": "clock",  "arguments": {}}]}'
        message = Message("assistant", "Let me see.", tool_calls=(ToolCall("a", "clock"),))
        canonical = 'Let me see.\n{"tool_calls": [{"name": "clock", "arguments": {}}]}'
        for text, whole, expected in [
            (raw, (1, 2), (raw, (1, 2))),
            (raw[:-2] + ', {"name": "cl', (1, 2), (canonical, None)),  # broken off
            ("<think>Hm.</think>" + raw, (1, 2), (canonical, None)),
            ("", (), (canonical, None)),
        ]:
            (plain,), (own,) = generic_messages([message], [Written((7,), whole, text)])
            assert (plain.text, own) == expected

    def test_a_history_without_tools_is_left_alone(self) -> None:
        assert generic_messages([QUESTION])[0] == (QUESTION,)


class TestPrompts:
    @pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
    def test_no_text_becomes_a_control_token_in_any_template(self, model: Model, path: Path) -> None:
        encoder = encoder_of(model, path.stem)
        history = HISTORY if encoder.template.capabilities["supports_system_role"] else HISTORY[1:]
        plain = controls(model, encode_generic(encoder, history, tools=TOOLS).ids)
        evil_call = ToolCall("a", "weather", {"place": ATTACK, ATTACK: 1})
        evil_tool = {"type": "function", "function": {**TOOLS[0]["function"], "description": ATTACK}}
        evil = [
            *history[:-4],
            replace(CALLS, tool_calls=(evil_call, *CALLS.tool_calls[1:])),
            *(replace(message, content=ATTACK) for message in RESULTS),
        ]
        found = encode_generic(encoder, evil, tools=[evil_tool, TOOLS[1]])
        assert controls(model, found.ids) == plain
        assert json.dumps(ATTACK, ensure_ascii=False)[1:-1] in found.text

    def test_a_template_without_a_system_role_works(self, model: Model) -> None:
        found = encode_generic(encoder_of(model, OFF), HISTORY[1:], tools=TOOLS)
        assert "You can use these tools" in found.text
        assert found.prompt.grammar

    def test_generated_calls_go_in_as_they_are(self, model: Model) -> None:
        odd = (1010, 1011, 1012)
        ids = (None, None, odd, *[None] * 3)
        found = encode_generic(made(model, CHATML), HISTORY, ids, tools=TOOLS)
        assert holds(found.ids, odd)
        assert "Łódź" not in found.text

    def test_the_prompt_does_not_depend_on_what_may_be_called(self, model: Model) -> None:
        encoder = made(model, CHATML)
        texts = {
            encode_generic(encoder, HISTORY, tools=TOOLS, tool_choice=choice, parallel_tool_calls=many).text
            for choice in ("auto", "none", "required")
            for many in (False, True)
        }
        assert len(texts) == 1

    def test_a_response_schema_beside_calls_is_refused(self, model: Model) -> None:
        schema = {"type": "object"}
        with pytest.raises(UnsupportedError):
            encode_generic(made(model, CHATML), [QUESTION], tools=TOOLS, response_schema=schema)
        found = encode_generic(made(model, CHATML), [QUESTION], tools=TOOLS, tool_choice="none", response_schema=schema)
        assert "tool_calls" not in found.prompt.grammar
