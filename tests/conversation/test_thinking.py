"""Thinking: a channel of its own, switched on and off, kept in the history and shown to the model within a turn only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from talking import CHARACTERS, Dictation
from tool_cases import OSLO, QWEN3, SHORT, called, hermes, shipped, weather

import causerie
from causerie import Message

if TYPE_CHECKING:
    from causerie import Conversation, Engine

THOUGHT = "<think>\nCold, or\nnot.\n</think>\n\n"


def talk(engine: Engine, **options: Any) -> Conversation:
    return engine.conversation(**{"template": SHORT, "max_tokens": 100, **options})


def said(chat: Conversation, engine: Engine, text: str, **options: Any) -> causerie.Reply:
    """The reply in which the model is made to say a text."""
    return chat.send("How is it?", temperature=0, samplers=Dictation(engine, text), **options)


class TestTheChannel:
    def test_is_apart_from_the_text(self, engine: Engine) -> None:
        chat = talk(engine)
        with chat.stream("How is it?", temperature=0, samplers=Dictation(engine, THOUGHT + "It is cold.")) as stream:
            chunks = list(stream)
            reply = stream.reply
        assert (reply.thinking, reply.text, reply.finish_reason) == ("Cold, or\nnot.", "It is cold.", "stop")
        assert chat.messages[-1] == reply.message == Message("assistant", "It is cold.", thinking="Cold, or\nnot.")
        kinds = [chunk.kind for chunk in chunks]
        assert kinds == sorted(kinds, reverse=True)  # thinking, then text
        for kind, whole in (("thinking", reply.thinking), ("text", reply.text)):
            assert "".join(chunk.text for chunk in chunks if chunk.kind == kind) == whole
        assert len(chunks) > 6

    def test_keeps_characters_whole(self, engine: Engine) -> None:
        text = f"<think>\n{CHARACTERS}\n</think>\n\n{CHARACTERS}"
        chunks = list(talk(engine).stream("x", temperature=0, max_tokens=-1, samplers=Dictation(engine, text)))
        for kind in ("thinking", "text"):
            own = [chunk.text for chunk in chunks if chunk.kind == kind]
            assert "".join(own) == CHARACTERS
            assert not any(piece[0] in "\u200d\ufe0f🏽" for piece in own)

    def test_as_a_coroutine(self, engine: Engine) -> None:
        async def main() -> list[causerie.Chunk]:
            chat = talk(engine)
            return [
                chunk async for chunk in chat.astream("x", temperature=0, samplers=Dictation(engine, THOUGHT + "Yes."))
            ]

        assert "".join(c.text for c in asyncio.run(main()) if c.kind == "thinking") == "Cold, or\nnot."

    def test_of_marks_that_are_control_tokens(self, engine: Engine) -> None:
        """Their text is not shown, but tells the parser what is thinking."""
        template = SHORT.replace("<think>", "<repo_name>").replace("</think>", "<file_sep>")
        vocab = engine.model.vocab
        dictation = Dictation(engine, "")
        dictation.ids = vocab.tokenize("<repo_name>\nHm.\n<file_sep>\n\nYes.", add_special=False, parse_special=True)
        assert sum(vocab.is_control(int(token)) for token in dictation.ids) == 2
        dictation.ids = [*dictation.ids.tolist(), vocab.eos]
        chat = talk(engine, template=template)
        reply = chat.send("x", temperature=0, samplers=dictation)
        assert (reply.thinking, reply.text) == ("Hm.", "Yes.")

    def test_is_left_alone_by_output_transforms_and_stop_strings(self, engine: Engine) -> None:
        chat = talk(engine, output_transform=lambda: causerie.KeywordRemover("cold"))
        reply = said(chat, engine, "<think>\nHm cold. Stop!\n</think>\n\nIt is cold. Stop!", stop="Stop")
        assert (reply.thinking, reply.text, reply.stop) == ("Hm cold. Stop!", "It is . ", "Stop")
        assert chat.messages[-1] == Message("assistant", "It is cold. ", thinking="Hm cold. Stop!")


class TestOnAndOff:
    @pytest.mark.parametrize("template", [SHORT, shipped(QWEN3)], ids=["short", "Qwen3"])
    def test_for_one_reply_and_for_a_conversation(self, engine: Engine, template: str) -> None:
        off = "<think>\n\n</think>\n\n"
        assert not talk(engine, template=template).render("x").endswith(off)
        quiet = talk(engine, template=template, thinking=False)
        assert quiet.render("x").endswith(off)
        quiet.send("x", max_tokens=1, temperature=0, thinking=True)
        chat = talk(engine, template=template)
        reply = said(chat, engine, "Yes.", thinking=False)
        assert (reply.text, reply.thinking) == ("Yes.", "")
        assert not chat.render("x").endswith(off)

    @pytest.mark.parametrize("thinking", [None, True])
    def test_a_constraint_is_on_what_comes_behind(self, engine: Engine, thinking: bool | None) -> None:
        chat = talk(engine)
        options: dict[str, Any] = {"thinking": thinking, "response_format": causerie.Choices(["yes", "no"])}
        assert said(chat, engine, THOUGHT + "no", **options).parsed == "no"
        assert said(chat, engine, "yes", **options).parsed == "yes"

    def test_a_constraint_without_thinking(self, engine: Engine) -> None:
        chat = talk(engine)
        choices = causerie.Choices(["a word", "words"])
        for seed in range(5):
            reply = chat.send("x", temperature=2, top_k=0, seed=seed, thinking=False, response_format=choices)
            assert reply.parsed == reply.text
            assert reply.text in {"a word", "words"}
            chat.rewind()


class TestLaterTurns:
    def test_do_not_show_it(self, engine: Engine) -> None:
        chat = talk(engine)
        said(chat, engine, THOUGHT + "It is cold.")
        assert "Cold, or" in chat.messages[-1].thinking
        assert "Cold, or" not in chat.render("And now?")
        assert chat.tokenize("x").tolist() == talk(engine, messages=chat.messages).tokenize("x").tolist()
        assert "Cold, or" in chat.render()  # no user has said anything since

    @pytest.mark.parametrize("per_call", [False, True])
    def test_show_it_where_that_is_asked_for(self, engine: Engine, per_call: bool, prompts: list[list[int]]) -> None:
        chat = talk(engine, replay_thinking=not per_call)
        said(chat, engine, THOUGHT + "It is cold.")
        reply = chat.send("And now?", max_tokens=1, temperature=0, **({"replay_thinking": True} if per_call else {}))
        assert "Cold, or" in engine.model.vocab.detokenize(prompts[-1])
        assert reply.usage.cached_tokens >= len(prompts[0]) + len(Dictation(engine, THOUGHT + "It is cold.").ids) - 1

    def test_keep_the_tokens_of_the_text(self, engine: Engine) -> None:
        chat = talk(engine)
        vocab = engine.model.vocab
        dictation = Dictation(engine, THOUGHT)
        letters = [vocab.tokenize(c, add_special=False, parse_special=False).tolist() for c in "cold"]
        dictation.ids = [*dictation.ids[:-1], *(token for ids in letters for token in ids), vocab.eos]
        chat.send("x", temperature=0, samplers=dictation)
        assert chat.messages[-1].text == "cold"
        text = [token for ids in letters for token in ids]
        ids = chat.tokenize("x").tolist()
        assert any(ids[i : i + len(text)] == text for i in range(len(ids)))


class TestWithTools:
    def test_it_is_shown_until_the_turn_is_over(self, engine: Engine, prompts: list[list[int]]) -> None:
        chat = talk(engine, tools=[weather])
        reply = said(chat, engine, THOUGHT + "Let me look.\n" + hermes(OSLO))
        assert (reply.thinking, reply.text, called(reply.tool_calls)) == ("Cold, or\nnot.", "Let me look.", [OSLO])
        chat.add_tool_result(reply.tool_calls[0].id, "-3")
        again = chat.respond(temperature=0, samplers=Dictation(engine, "<think>\nSo.\n</think>\n\nCold."))
        whole = len(prompts[0]) + reply.usage.completion_tokens
        assert prompts[1][:whole] == prompts[0] + Dictation(engine, THOUGHT + "Let me look.\n" + hermes(OSLO)).ids[:-1]
        assert again.usage.cached_tokens >= whole
        assert (again.thinking, again.text) == ("So.", "Cold.")
        assert "Cold, or" not in chat.render("And in Rome?")
        fresh = talk(engine, tools=[weather], messages=chat.messages)
        assert chat.render("x") == fresh.render("x")
        assert chat.render() == fresh.render()


class TestCut:
    def test_inside_and_gone_on_with(self, engine: Engine) -> None:
        text = "<think>\nSo 漢字 it is\n</think>\n\nYes 漢字."
        dictation = Dictation(engine, text)
        whole = talk(engine).send("x", temperature=0, samplers=dictation)
        for cut in range(1, len(dictation.ids) - 1, 2):
            chat = talk(engine)
            begun = chat.send("x", temperature=0, samplers=Dictation(engine, text), max_tokens=cut)
            assert begun.finish_reason == "length"
            assert len(chat.messages) == 2
            rest = Dictation(engine, text)
            rest.ids = rest.ids[cut:]
            reply = chat.resume(temperature=0, samplers=rest)
            assert chat.messages[-1] == reply.message == whole.message
            assert reply.usage.cached_tokens >= reply.usage.prompt_tokens - 1
            assert reply.text in whole.text
            assert reply.thinking in whole.thinking

    def test_by_cancelling(self, engine: Engine) -> None:
        chat = talk(engine)
        with chat.stream("x", temperature=0, samplers=Dictation(engine, THOUGHT + "Yes.")) as stream:
            next(stream)
        assert stream.reply.finish_reason == "cancelled"
        assert stream.reply.text == ""
        assert chat.messages[-1].thinking.startswith("C")
        assert chat.send("y", temperature=0, samplers=Dictation(engine, "Bye.")).text == "Bye."

    def test_a_beginning_by_hand_is_gone_on_with(self, engine: Engine) -> None:
        chat = talk(engine, thinking=False)
        chat.add_user("Name a bird.")
        chat.add_assistant("The bird is")
        reply = chat.resume(temperature=0, samplers=Dictation(engine, " a heron."))
        assert (reply.text, chat.messages[-1]) == (" a heron.", Message("assistant", "The bird is a heron."))
        assert chat.send("Why?", temperature=0, max_tokens=1)


def test_strings_that_end_a_templates_turns_end_replies(engine: Engine) -> None:
    chat = engine.conversation(template=shipped("poolside-Laguna-XS-2.1"))
    reply = said(chat, engine, "\nHm.\n</think>\n\nYes.</assistant> and more")
    assert (reply.thinking, reply.text, reply.finish_reason) == ("Hm.", "Yes.", "stop")
    assert chat.messages[-1] == Message("assistant", "Yes.", thinking="Hm.")
