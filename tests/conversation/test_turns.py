"""regenerate, rewind, edit and resume: messages and cache move together, and only what changed is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from talking import HOT, Dictation, Oracle, fresh, spoken

from causerie import Message, ToolCall

if TYPE_CHECKING:
    from causerie import Conversation, Engine

GREEDY = {"temperature": 0, "max_tokens": 6}


@pytest.fixture
def chat(engine: Engine) -> Conversation:
    made = engine.conversation(system="You are brief.")
    made.send("Name a bird.", **GREEDY)
    made.send("Another one.", **GREEDY)
    return made


def is_in_step(chat: Conversation, engine: Engine, oracle: Oracle) -> None:
    """The next prompt says what rendering the messages says, and the reply is that of its tokens alone."""
    other = fresh(chat, engine)
    assert chat.render("Next?") == other.render("Next?")
    prompt = chat.tokenize("Next?").tolist()
    assert chat.send("Next?", **GREEDY).text == oracle.text(prompt, 6)


class TestRegenerate:
    def test_replaces_the_reply(self, chat: Conversation, engine: Engine, oracle: Oracle) -> None:
        before = chat.messages
        reply = chat.regenerate(**HOT, seed=4, max_tokens=6)
        assert chat.messages[:-1] == before[:-1]
        assert chat.messages[-1] == reply.message
        assert reply.usage.cached_tokens >= reply.usage.prompt_tokens - 1
        is_in_step(chat, engine, oracle)

    def test_greedily_gives_the_same_again(self, chat: Conversation) -> None:
        before = chat.messages
        assert chat.regenerate(**GREEDY).message == before[-1]
        assert chat.messages == before

    @pytest.mark.parametrize("messages", [[], ["user"], ["user", "assistant", "user"], ["assistant"]])
    def test_without_a_reply_changes_nothing(self, engine: Engine, messages: list[str]) -> None:
        chat = engine.conversation(messages=[{"role": role, "content": "x"} for role in messages])
        before = chat.messages
        with pytest.raises(ValueError):
            chat.regenerate()
        assert chat.messages == before

    def test_never_takes_back_an_example(self, engine: Engine) -> None:
        chat = engine.conversation(examples=[("q", "a")])
        with pytest.raises(ValueError, match="is an example"):
            chat.regenerate()
        assert spoken(chat) == [("user", "q"), ("assistant", "a")]

    def test_that_fails_leaves_the_old_reply(self, chat: Conversation) -> None:
        before = chat.messages
        with pytest.raises(ValueError):
            chat.regenerate(temperature=-1)
        assert chat.messages == before


class TestRewind:
    def test_takes_back_whole_turns(self, chat: Conversation, engine: Engine, oracle: Oracle) -> None:
        chat.add_user("And")
        chat.add_user("more?")
        before = chat.messages
        chat.rewind(2)
        assert chat.messages == before[:5]
        reply = chat.send("Third?", **GREEDY)
        assert reply.usage.prompt_tokens - reply.usage.cached_tokens < 20
        chat.rewind(3)
        assert spoken(chat) == [("system", "You are brief.")]
        is_in_step(chat, engine, oracle)

    def test_with_what_tools_answered(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "Sum?"}])
        chat.add(Message("assistant", "", tool_calls=(ToolCall("1", "f", {}),)))
        chat.add_tool_result("1", "3")
        chat.add_assistant("It is 3.")
        chat.rewind()
        assert chat.messages == ()

    @pytest.mark.parametrize("turns", [3, -1])
    def test_of_too_many_changes_nothing(self, chat: Conversation, turns: int) -> None:
        before = chat.messages
        with pytest.raises(ValueError):
            chat.rewind(turns)
        assert chat.messages == before

    def test_keeps_examples(self, engine: Engine) -> None:
        chat = engine.conversation(examples=[("q", "a")])
        with pytest.raises(ValueError):
            chat.rewind()
        assert len(chat.messages) == 2


class TestEdit:
    def test_replaces_one_and_drops_the_rest(self, chat: Conversation, engine: Engine, oracle: Oracle) -> None:
        chat.edit(3, "Name a fish.")
        assert spoken(chat)[3:] == [("user", "Name a fish.")]
        reply = chat.respond(**GREEDY)
        assert reply.usage.cached_tokens > 20  # system text and first turn
        assert reply.usage.prompt_tokens - reply.usage.cached_tokens < 12
        is_in_step(chat, engine, oracle)

    def test_an_assistants_words(self, chat: Conversation, engine: Engine, oracle: Oracle) -> None:
        chat.edit(-1, "A heron.")
        assert chat.messages[-1] == Message("assistant", "A heron.")
        assert chat.tokenize("x").tolist()[-20:] == fresh(chat, engine).tokenize("x").tolist()[-20:]
        is_in_step(chat, engine, oracle)

    def test_the_system_text(self, chat: Conversation) -> None:
        chat.edit(0, "You are long-winded.")
        assert spoken(chat) == [("system", "You are long-winded.")]

    def test_what_is_not_there_changes_nothing(self, chat: Conversation) -> None:
        before = chat.messages
        for index in (5, -6):
            with pytest.raises(IndexError):
                chat.edit(index, "x")
        with pytest.raises(TypeError):
            chat.edit(1, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            chat.edit("1", "x")  # type: ignore[arg-type]
        assert chat.messages == before


class TestResume:
    def test_behind_a_reply_that_was_cut_short_equals_the_whole(self, engine: Engine) -> None:
        whole = engine.conversation().send("Tell me about rain.", temperature=0, max_tokens=12)
        chat = engine.conversation()
        first = chat.send("Tell me about rain.", temperature=0, max_tokens=5)
        rest = chat.resume(temperature=0, max_tokens=7)
        assert first.text + rest.text == whole.text
        assert rest.message == chat.messages[-1] == whole.message
        assert len(chat.messages) == 2
        assert rest.usage.cached_tokens >= rest.usage.prompt_tokens - 1

    def test_behind_a_cancelled_one(self, engine: Engine) -> None:
        whole = engine.conversation().send("Tell me about snow.", temperature=0, max_tokens=12)
        chat = engine.conversation()
        with chat.stream("Tell me about snow.", temperature=0) as stream:
            next(stream)
        done = chat.report.usage.completion_tokens if chat.report else 0
        chat.resume(temperature=0, max_tokens=12 - done)
        assert chat.messages[-1] == whole.message

    def test_behind_a_beginning_written_by_hand(self, engine: Engine, oracle: Oracle) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "Name a bird."}])
        chat.add_assistant("Sure! The first that comes to mind is the")
        reply = chat.resume(**GREEDY)
        assert chat.messages[-1].text == "Sure! The first that comes to mind is the" + reply.text
        assert reply.text.startswith(" ")
        again = chat.send("Why?", **GREEDY)
        assert again.usage.cached_tokens >= reply.usage.total_tokens - 1  # all of the answer was there
        is_in_step(chat, engine, oracle)

    @pytest.mark.parametrize("cut", [1, 2, 3])
    def test_in_the_middle_of_a_character(self, engine: Engine, cut: int) -> None:
        text = "漢字🚀🛸"
        chat = engine.conversation()
        dictation = Dictation(engine, text)
        assert len(dictation.ids) > 6
        begun = chat.send("x", temperature=0, samplers=dictation, max_tokens=len(dictation.ids) - 1 - cut)
        rest = chat.resume(temperature=0, samplers=dictation)
        assert chat.messages[-1].text == text
        assert rest.message == chat.messages[-1]
        assert begun.text.rstrip("\ufffd") + rest.text == text

    def test_streamed(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.send("Tell me about hail.", temperature=0, max_tokens=3)
        before = chat.messages[-1].text
        text = "".join(chunk.text for chunk in chat.stream_resume(temperature=0, max_tokens=4))
        assert chat.messages[-1].text == before + text

    def test_that_adds_nothing_leaves_the_message(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.send("x", temperature=0, samplers=Dictation(engine, "Done."))
        reply = chat.resume(temperature=0, samplers=Dictation(engine, ""))
        assert (reply.text, reply.finish_reason) == ("", "stop")
        assert chat.messages[-1].text == "Done."

    def test_that_fails_leaves_the_message(self, chat: Conversation) -> None:
        before = chat.messages
        with pytest.raises(ZeroDivisionError):
            chat.resume(samplers=lambda row: 1 // 0)  # type: ignore[arg-type, return-value]
        assert chat.messages == before

    def test_without_a_beginning_changes_nothing(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "x"}])
        for call in (chat.resume, engine.conversation().resume):
            with pytest.raises(ValueError, match="nothing to go on with"):
                call()
        chat.add(Message("assistant", "", tool_calls=(ToolCall("1", "f", {}),)))
        with pytest.raises(ValueError, match="nothing to go on with"):
            chat.resume()
        assert len(chat.messages) == 2
