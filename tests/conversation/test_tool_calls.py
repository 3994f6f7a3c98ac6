"""Calls of tools in replies: offered, required, streamed, several at once, answered."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from talking import HOT, Dictation, fresh
from tool_cases import BARE, HERMES, OSLO, QWEN3, QWEN25, ROME, SHORT, called, clock, hermes, shipped, weather

import causerie
from causerie import Chunk, Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causerie import Conversation, Engine

BOTH = [weather, clock]
HOTTER = {**HOT, "temperature": 2.0}
REQUIRED: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False, "thinking": False, "seed": 4}


def talk(engine: Engine, template: str = SHORT, **options: Any) -> Conversation:
    settings = {"tools": BOTH, "max_tokens": 200, **options}
    return engine.conversation(template=template, **settings)


def said(chat: Conversation, engine: Engine, text: str, *, end: bool = True, **options: Any) -> causerie.Reply:
    """The reply in which the model is made to say a text."""
    return chat.send("How warm is it?", temperature=0, samplers=Dictation(engine, text, end=end), **options)


class TestRequired:
    @pytest.mark.parametrize("template", [HERMES, QWEN25, QWEN3, None])
    def test_gives_a_call_that_fits_however_hot(self, engine: Engine, template: str | None) -> None:
        if template is None:
            chat = engine.conversation(tools=BOTH, tool_format="generic", max_tokens=200)
        else:
            chat = talk(engine, shipped(template))
        chat.add_user("Hi!")
        chat.prefill()
        for seed, branch in enumerate(chat.fork(3)):
            reply = branch.respond(**{**REQUIRED, **HOTTER, "seed": seed})
            (call,) = reply.tool_calls
            {"weather": weather, "clock": clock}[call.name].check(call.arguments)
            assert (reply.text, reply.thinking, reply.finish_reason) == ("", "", "tool_calls")
            assert branch.messages[-1] == reply.message == Message("assistant", tool_calls=(call,))
        chat.close()

    @pytest.mark.parametrize("choice", [{"name": "clock"}, {"type": "function", "function": {"name": "clock"}}])
    @pytest.mark.parametrize("tool_format", ["template", "generic"])
    def test_by_name(self, engine: Engine, tool_format: Any, choice: Any) -> None:
        chat = talk(engine, tool_format=tool_format)
        before = chat.render("Hi!")
        reply = chat.send("Hi!", **{**REQUIRED, "tool_choice": choice})
        assert [call.name for call in reply.tool_calls] == ["clock"]
        chat.rewind()
        assert chat.render("Hi!") == before  # the model is told of all tools, whatever it has to call

    def test_streams_the_same(self, engine: Engine) -> None:
        chat = talk(engine)
        whole = chat.send("Hi!", **REQUIRED)
        chat.rewind()
        chunks = list(chat.stream("Hi!", **REQUIRED))
        assert chat.messages[-1] == whole.message
        (call,) = whole.tool_calls
        assert [chunk.kind for chunk in chunks] == ["tool_call_delta"] * (len(chunks) - 1) + ["tool_call"]
        assert chunks[-1] == Chunk("tool_call", "", call, name=call.name)
        assert json.loads("".join(chunk.text for chunk in chunks)) == call.arguments

    def test_as_a_coroutine(self, engine: Engine) -> None:
        chat = talk(engine)
        whole = chat.send("Hi!", **REQUIRED)
        chat.rewind()

        async def main() -> causerie.Reply:
            return await chat.asend("Hi!", **REQUIRED)

        reply = asyncio.run(main())
        assert (reply.tool_calls, reply.finish_reason) == (whole.tool_calls, "tool_calls")

    def test_of_several_candidates(self, engine: Engine) -> None:
        chat = talk(engine)
        reply = chat.send("Hi!", n=2, **REQUIRED)
        assert [len(candidate.tool_calls) for candidate in reply.candidates] == [1, 1]


class TestCalls:
    def test_several_in_one_reply(self, engine: Engine) -> None:
        chat = talk(engine)
        with chat.stream(
            "How warm?", temperature=0, samplers=Dictation(engine, "Let me look.\n" + hermes(OSLO, ROME))
        ) as stream:
            chunks = list(stream)
            reply = stream.reply
        assert called(reply.tool_calls) == [OSLO, ROME]
        assert (reply.text, reply.finish_reason) == ("Let me look.", "tool_calls")
        assert len({call.id for call in reply.tool_calls}) == 2
        for index, call in enumerate(reply.tool_calls):
            own = [chunk for chunk in chunks if chunk.call_index == index and chunk.kind.startswith("tool")]
            assert own[-1].tool_call == call
            assert json.loads("".join(chunk.text for chunk in own)) == call.arguments
            assert {chunk.name for chunk in own} == {"weather"}

    def test_only_one_where_no_more_are_wanted(self, engine: Engine) -> None:
        chat = talk(engine)
        reply = said(chat, engine, hermes(OSLO, ROME), parallel_tool_calls=False)
        assert (called(reply.tool_calls), reply.finish_reason) == ([OSLO], "tool_calls")
        assert reply.usage.completion_tokens < len(Dictation(engine, hermes(OSLO, ROME)).ids)

    def test_are_answered_and_the_answers_replied_to(self, engine: Engine, prompts: list[list[int]]) -> None:
        chat = talk(engine)
        calls = said(chat, engine, "Let me look.\n" + hermes(OSLO, ROME)).tool_calls
        chat.add_tool_result(calls[1].id, "20")
        with pytest.raises(causerie.ToolError, match="wait for a result") as caught:
            chat.respond()
        assert caught.value.open_ids == (calls[0].id,)  # type: ignore[attr-defined]
        with pytest.raises(causerie.ToolError, match="answered already"):
            chat.add_tool_result(calls[1].id, "20")
        with pytest.raises(causerie.ToolError, match="not of this turn"):
            chat.add_tool_result("x", "20")
        chat.add_tool_result(calls[0].id, "-3")
        reply = chat.respond(temperature=0, samplers=Dictation(engine, "Cold."))
        assert (reply.text, reply.finish_reason) == ("Cold.", "stop")
        assert [message.role for message in chat.messages] == ["user", "assistant", "tool", "tool", "assistant"]
        # What the template writes is what the model wrote: nothing of it is evaluated again.
        assert reply.usage.cached_tokens >= len(prompts[0]) + len(Dictation(engine, hermes(OSLO, ROME)).ids)
        assert chat.render("Why?") == fresh_with_tools(chat, engine).render("Why?")

    def test_that_nobody_answers_are_given_up_by_the_next_user_message(self, engine: Engine) -> None:
        chat = talk(engine)
        said(chat, engine, hermes(OSLO))
        assert chat.send("Never mind.", max_tokens=2, temperature=0).finish_reason == "length"

    def test_stay_the_tokens_they_were_generated_as(self, engine: Engine, prompts: list[list[int]]) -> None:
        chat = talk(engine)
        text = hermes(OSLO)
        plain = engine.model.vocab.tokenize(text, add_special=False, parse_special=False).tolist()
        cut = [engine.model.vocab.tokenize(c, add_special=False, parse_special=False).tolist() for c in text]
        letters = Dictation(engine, text)
        letters.ids = [*(i for ids in cut for i in ids), engine.model.vocab.eos]  # as no tokenizer would
        reply = chat.send("How warm?", temperature=0, samplers=letters)
        chat.add_tool_result(reply.tool_calls[0].id, "-3")
        chat.respond(max_tokens=1)
        start = len(prompts[0])
        assert prompts[1][start : start + len(letters.ids) - 1] == letters.ids[:-1] != plain

    def test_written_otherwise_than_the_template_does_are_rendered(self, engine: Engine) -> None:
        chat = talk(engine)
        text = '<tool_call>\n{"name":"weather","arguments":{ "city":"Oslo"}}\n</tool_call>'
        reply = said(chat, engine, text)
        assert called(reply.tool_calls) == [OSLO]
        chat.add_tool_result(reply.tool_calls[0].id, "-3")
        assert text not in chat.render()
        assert chat.tokenize().tolist() == fresh_with_tools(chat, engine).tokenize().tolist()

    def test_in_a_branch_and_done_again(self, engine: Engine) -> None:
        chat = talk(engine)
        said(chat, engine, hermes(OSLO))
        branch = chat.fork()
        branch.add_tool_result(branch.messages[-1].tool_calls[0].id, "-3")
        assert branch.respond(temperature=0, samplers=Dictation(engine, "Cold.")).text == "Cold."
        again = chat.regenerate(temperature=0, samplers=Dictation(engine, hermes(ROME)))
        assert called(again.tool_calls) == [ROME]
        assert len(chat.messages) == 2
        assert called(branch.messages[1].tool_calls) == [OSLO]

    def test_have_log_probabilities_like_all_tokens(self, engine: Engine) -> None:
        reply = said(talk(engine), engine, "So.\n" + hermes(OSLO), logprobs=True)
        assert reply.logprobs is not None
        assert len(reply.logprobs) == reply.usage.completion_tokens
        assert "".join(entry.text for entry in reply.logprobs) == "So.\n" + hermes(OSLO)


def fresh_with_tools(chat: Conversation, engine: Engine) -> Conversation:
    return talk(engine, messages=chat.messages)


class TestChoices:
    def test_none_leaves_what_looks_like_a_call_in_the_text(self, engine: Engine) -> None:
        chat = talk(engine)
        offered = chat.render("x")
        reply = said(chat, engine, hermes(OSLO), tool_choice="none")
        assert (reply.text, reply.tool_calls, reply.finish_reason) == (hermes(OSLO), (), "stop")
        chat.rewind()
        assert chat.render("x") == offered

    def test_auto_replies_with_a_text_too(self, engine: Engine) -> None:
        reply = said(talk(engine), engine, "It is warm. <tool_ c")
        assert (reply.text, reply.tool_calls, reply.finish_reason) == ("It is warm. <tool_ c", (), "stop")

    def test_tools_are_replaced_for_one_reply(self, engine: Engine) -> None:
        chat = talk(engine, tools=[weather])
        assert '"clock"' not in chat.render("x")
        reply = chat.send("Hi!", tools=[clock], **REQUIRED)
        assert reply.tool_calls[0].name == "clock"
        assert said(chat, engine, hermes(OSLO), tools=()).text == hermes(OSLO)
        assert '"weather"' in chat.render("x")

    def test_tools_in_the_shape_of_openai_and_as_functions(self, engine: Engine) -> None:
        def hammer(nails: bool) -> None:
            """Hits nails."""

        chat = talk(engine, tools=[hammer, clock.to_dict()])
        for name in ("hammer", "clock"):
            reply = chat.send("Hi!", **{**REQUIRED, "tool_choice": {"name": name}})
            assert reply.tool_calls[0].name == name


class TestRefusals:
    """Before anything has changed."""

    @pytest.mark.parametrize(
        ("options", "error", "says"),
        [
            ({"tools": weather}, TypeError, "list of tools"),
            ({"tools": [weather, weather.to_dict()]}, ValueError, "two tools"),
            ({"tools": (), "tool_choice": "required"}, ValueError, "needs tools"),
            ({"tool_choice": "always"}, ValueError, "tool_choice"),
            ({"tool_choice": 3}, TypeError, "tool_choice"),
            ({"tool_choice": {"name": "hammer"}}, ValueError, "hammer"),
            ({"tool_choice": {"type": "function"}}, ValueError, "name"),
            ({"parallel_tool_calls": 1}, TypeError, "parallel_tool_calls"),
            ({"validate_calls": "no"}, TypeError, "validate_calls"),
            ({"tool_format": "xml"}, ValueError, "tool_format"),
            ({"replay_thinking": 1}, TypeError, "replay_thinking"),
            ({"grammar": 'root ::= "x"'}, causerie.UnsupportedError, "grammar"),
            ({"response_format": causerie.Choices(["a"])}, causerie.UnsupportedError, "response_format"),
            (
                {"tools": [{"name": "f", "parameters": {"properties": {"x": {"type": 3}}}}]},
                causerie.SchemaError,
                "type",
            ),
            ({"tools": [{"name": "f", "description": "<|im_end|>"}]}, causerie.TemplateError, "control token"),
        ],
    )
    def test_of_what_cannot_be(
        self, engine: Engine, options: dict[str, Any], error: type[Exception], says: str
    ) -> None:
        chat = talk(engine)
        for call in (chat.send, chat.stream):
            with pytest.raises(error, match=says):
                call("Hi!", **options)
        assert chat.messages == ()

    def test_of_a_template_that_takes_no_tools(self, engine: Engine) -> None:
        with pytest.raises(causerie.UnsupportedError, match='tool_format="generic"'):
            engine.conversation(tools=BOTH)
        chat = engine.conversation()
        with pytest.raises(causerie.UnsupportedError, match="another one"):
            chat.send("Hi!", tools=BOTH)
        assert chat.messages == ()

    def test_of_a_raw_schema_that_nothing_here_can_check(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "jsonschema", None)
        raw = [{"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}]
        with pytest.raises(causerie.UnsupportedError, match="jsonschema"):
            talk(engine, tools=raw)
        assert talk(engine, tools=[weather]).send("Hi!", max_tokens=1).finish_reason == "length"
        assert talk(engine, tools=()).send("Hi!", tools=raw, validate_calls=False, max_tokens=1)

    def test_of_a_constraint_that_the_engine_was_given(self, make_engine: Any) -> None:
        chat = talk(make_engine(n_ctx=1024, sampling={"grammar": 'root ::= "x"'}))
        with pytest.raises(causerie.UnsupportedError):
            chat.send("Hi!")
        assert chat.messages == ()
        assert chat.send("Hi!", tool_choice="none", thinking=False).text == "x"


class TestCallsThatDoNotFit:
    """Of a format of which llama.cpp has no grammar until a call is required."""

    WRONG = '{"name": "weather", "parameters": {"city": "Paris"}}'

    def test_end_the_reply_and_leave_the_question(self, engine: Engine) -> None:
        chat = talk(engine, BARE)
        with pytest.raises(causerie.ToolError, match="Paris") as caught:
            said(chat, engine, self.WRONG)
        call = caught.value.call  # type: ignore[attr-defined]
        assert called((call,)) == [("weather", {"city": "Paris"})]
        assert [message.role for message in chat.messages] == ["user"]
        right = self.WRONG.replace("Paris", "Rome")
        reply = chat.respond(temperature=0, samplers=Dictation(engine, right))
        assert called(reply.tool_calls) == [("weather", {"city": "Rome"})]

    def test_are_kept_where_that_is_wanted(self, engine: Engine) -> None:
        reply = said(talk(engine, BARE), engine, self.WRONG, validate_calls=False)
        assert called(reply.tool_calls) == [("weather", {"city": "Paris"})]

    def test_that_break_off_end_the_reply_too(self, engine: Engine) -> None:
        chat = talk(engine, BARE)
        with pytest.raises(causerie.TemplateError, match="call of 'weather'"):
            said(chat, engine, self.WRONG[:-9])
        assert [message.role for message in chat.messages] == ["user"]

    def test_are_text_where_they_are_of_no_tool(self, engine: Engine) -> None:
        text = '{"name": "hammer", "parameters": {}}'
        reply = said(talk(engine, BARE), engine, text)
        assert (reply.text, reply.tool_calls) == (text, ())


class TestCut:
    def test_by_a_limit_keeps_the_calls_that_are_complete(self, engine: Engine) -> None:
        chat = talk(engine)
        ids = Dictation(engine, "So.\n" + hermes(OSLO)).ids
        reply = said(chat, engine, "So.\n" + hermes(OSLO, ROME), max_tokens=len(ids) + 20)
        assert (reply.text, called(reply.tool_calls), reply.finish_reason) == ("So.", [OSLO], "length")
        assert called(chat.messages[-1].tool_calls) == [OSLO]
        chat.add_tool_result(reply.tool_calls[0].id, "-3")
        assert chat.tokenize().tolist() == fresh_with_tools(chat, engine).tokenize().tolist()

    def test_inside_the_first_call_leaves_the_text(self, engine: Engine) -> None:
        chat = talk(engine)
        reply = said(chat, engine, "So.\n" + hermes(OSLO), max_tokens=20)
        assert (reply.text, reply.tool_calls, reply.finish_reason) == ("So.", (), "length")
        assert chat.messages[-1] == Message("assistant", "So.")
        assert chat.tokenize("x").tolist() == fresh_with_tools(chat, engine).tokenize("x").tolist()

    def test_and_gone_on_with_it_becomes_the_whole(self, engine: Engine) -> None:
        chat = talk(engine)
        whole = "So.\n" + hermes(OSLO)
        begun = said(chat, engine, whole, max_tokens=20)
        rest = Dictation(engine, whole)
        rest.ids = rest.ids[20:]
        chunks = list(chat.stream_resume(temperature=0, samplers=rest))
        assert begun.text == "So."
        assert [chunk.kind for chunk in chunks if not chunk.kind.startswith("tool")] == []
        assert called(chat.messages[-1].tool_calls) == [OSLO]
        assert chat.messages[-1].text == "So."
        assert chat.report is not None
        assert chat.report.finish_reason == "tool_calls"
        assert len(chat.messages) == 2

    def test_by_cancelling(self, engine: Engine) -> None:
        chat = talk(engine)
        with chat.stream(
            "x", temperature=0, samplers=Dictation(engine, hermes(OSLO, ROME)), seed=1
        ) as stream:  # fmt: skip
            for chunk in stream:
                if chunk.kind == "tool_call":
                    break
        assert stream.reply.finish_reason == "cancelled"
        assert called(chat.messages[-1].tool_calls) == [OSLO]
        assert chat.send("And now?", temperature=0, samplers=Dictation(engine, "Bye.")).text == "Bye."


class TestStopStrings:
    def test_end_the_text_and_leave_arguments_alone(self, engine: Engine) -> None:
        reply = said(talk(engine), engine, "So\n" + hermes(OSLO), stop="Oslo")
        assert (reply.text, called(reply.tool_calls), reply.stop) == ("So", [OSLO], None)
        reply = said(talk(engine), engine, "So. Oslo\n" + hermes(OSLO), stop=" Oslo")
        assert (reply.text, reply.tool_calls, reply.stop, reply.finish_reason) == ("So.", (), " Oslo", "stop")

    def test_are_found_where_the_text_ends_before_a_call(self, engine: Engine) -> None:
        chat = talk(engine)
        reply = said(chat, engine, "So. Oslo\n" + hermes(OSLO), stop=["Oslo\n\n", "Oslo"])
        assert (reply.text, reply.stop) == ("So. ", "Oslo")
        assert chat.messages[-1] == Message("assistant", "So. ")
        assert fresh(chat, engine).messages == chat.messages


class TestAuto:
    """The grammar begins with a call, and nowhere else."""

    def test_holds_a_call_to_its_tool(self, engine: Engine) -> None:
        chat = talk(engine)
        begun = Dictation(engine, 'So.\n<tool_call>\n{"name": "weather", "arguments": {"city": "', end=False)
        reply = chat.send("x", samplers=Leading(begun), seed=1, **HOTTER, parallel_tool_calls=False)
        assert reply.text == "So."
        (call,) = reply.tool_calls
        weather.check(call.arguments)

    def test_leaves_what_is_thought_of_calls_alone(self, engine: Engine) -> None:
        chat = talk(engine)
        thought = '<think>\nI could say <tool_call>\n{"name": "hammer"}\n</think>\n\n'
        reply = said(chat, engine, thought + "No, I will not.")
        assert (reply.text, reply.tool_calls) == ("No, I will not.", ())
        assert "hammer" in reply.thinking
        reply = said(chat, engine, thought + hermes(OSLO))
        assert called(reply.tool_calls) == [OSLO]

    def test_never_fails_by_a_token_that_holds_more_than_the_trigger(self, engine: Engine) -> None:
        """Two line breaks in one token complete it, and here one is too many."""
        vocab = engine.model.vocab
        two = next(i for i in range(vocab.n_tokens) if vocab.piece(i) == b"\n\n\n\n")
        begun = Dictation(engine, "<tool_call>", end=False)
        begun.ids.append(two)
        reply = talk(engine).send("x", samplers=Leading(begun), seed=1, **HOTTER, max_tokens=len(begun.ids) + 1)
        assert reply.text.startswith("<tool_call>")
        assert not reply.text.startswith("<tool_call>\n\n\n\n")


class Leading:
    """A sampler that prefers the tokens of a text, and then leaves the model alone."""

    def __init__(self, dictation: Dictation) -> None:
        self.ids = dictation.ids[:]

    def __call__(self, row: NDArray[np.float32]) -> None:
        if self.ids:
            token = self.ids[0]
            if row[token] == -np.inf:  # asked again: the grammar does not allow it
                self.ids.clear()
                return
            row[token] = 1e6
            self.ids.pop(0)
