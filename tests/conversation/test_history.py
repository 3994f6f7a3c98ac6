"""The messages: immutable, never mixed up with what was given, and refused before anything changes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from talking import spoken

from causerie import Message, ToolCall, ToolError, UnsupportedError

if TYPE_CHECKING:
    from causerie import Engine

GREEDY = {"temperature": 0, "max_tokens": 2}
IMAGE = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]


class TestImmutability:
    def test_messages_cannot_be_changed_from_outside(self, engine: Engine) -> None:
        chat = engine.conversation(system="s")
        messages: Any = chat.messages
        assert isinstance(messages, tuple)
        with pytest.raises(AttributeError):
            messages[0].content = "other"
        with pytest.raises(AttributeError):
            chat.messages = ()  # type: ignore[misc]
        assert spoken(chat) == [("system", "s")]

    def test_what_is_given_is_neither_changed_nor_kept(self, engine: Engine) -> None:
        given: list[dict[str, Any]] = [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "u"}]},
        ]
        examples: list[Any] = []
        kwargs = {"date": "today"}
        sampling = {"temperature": 0, "stop": ["x"]}
        before = copy.deepcopy((given, kwargs, sampling))
        chat = engine.conversation(messages=given, examples=examples, template_kwargs=kwargs, sampling=sampling)
        chat.respond(**GREEDY)
        assert (given, kwargs, sampling) == before
        given[1]["content"][0]["text"] = "other"
        given.append({"role": "user", "content": "more"})
        kwargs["date"] = "tomorrow"
        sampling["temperature"] = 9
        assert [message.text for message in chat.messages[:2]] == ["s", "u"]
        assert len(chat.messages) == 3

    def test_a_snapshot_stays_as_it_is(self, engine: Engine) -> None:
        chat = engine.conversation()
        before = chat.messages
        chat.send("Hi.", **GREEDY)
        assert before == ()
        assert len(chat.messages) == 2


class TestAdding:
    def test_everything_by_role(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.add_system("be kind")
        chat.add_user("a")
        chat.add_assistant("b")
        chat.add({"role": "user", "content": "c"})
        chat.add(Message("assistant", "", tool_calls=(ToolCall("1", "f", {}),)))
        chat.add_tool_result("1", "42", name="f")
        assert [message.role for message in chat.messages] == [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
        ]

    def test_user_after_user_is_accepted(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.add_user("My name is Ada.")
        chat.send("What is my name?", **GREEDY)
        assert [role for role, _ in spoken(chat)] == ["user", "user", "assistant"]
        assert chat.render().index("Ada") < chat.render().index("What is")

    @pytest.mark.parametrize(
        ("message", "error"),
        [
            ({"role": "system", "content": "late"}, ValueError),
            ({"role": "tool", "tool_call_id": "9", "content": "x"}, ToolError),
            ({"role": "nobody", "content": "x"}, ValueError),
            ({"role": "user"}, ValueError),
            ({"role": "user", "content": 3}, TypeError),
            ({"role": "user", "content": "x", "mood": "good"}, ValueError),
            ({"role": "user", "content": "\ud800"}, ValueError),
            ({"role": "user", "content": IMAGE}, UnsupportedError),
            ("text", TypeError),
            (None, TypeError),
        ],
    )
    def test_what_may_not_stand_there_changes_nothing(self, engine: Engine, message: Any, error: type) -> None:
        chat = engine.conversation(system="s", messages=[{"role": "user", "content": "u"}])
        before = chat.messages, chat.tokenize().tolist()
        with pytest.raises(error):
            chat.add(message)
        assert (chat.messages, chat.tokenize().tolist()) == before

    def test_a_new_conversation_refuses_the_same(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match="must be the first"):
            engine.conversation(system="s", messages=[{"role": "system", "content": "again"}])
        with pytest.raises(ToolError):
            engine.conversation(messages=[{"role": "tool", "tool_call_id": "1", "content": "x"}])
        with pytest.raises(TypeError):
            engine.conversation(system=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="pair of texts"):
            engine.conversation(examples=[("a", "b", "c")])  # type: ignore[list-item]

    def test_images_are_refused_wherever_they_come_in(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "u"}])
        content: Any = IMAGE
        for call in (chat.send, chat.add_user, chat.add_assistant, lambda given: chat.edit(0, given)):
            with pytest.raises(UnsupportedError, match="text only so far, not image_url"):
                call(content)
        with pytest.raises(UnsupportedError):
            engine.conversation(messages=[{"role": "user", "content": IMAGE}])
        assert spoken(chat) == [("user", "u")]

    def test_text_parts_are_text(self, engine: Engine) -> None:
        parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
        chat = engine.conversation()
        assert "One.\nTwo." in chat.render(parts)  # type: ignore[arg-type]
        assert chat.send(parts, **GREEDY).text  # type: ignore[arg-type]
        assert chat.messages[0].text == "One.\nTwo."


class TestResponding:
    @pytest.mark.parametrize("messages", [[], [("system", "s")], [("user", "u"), ("assistant", "a")]])
    def test_needs_something_to_respond_to(self, engine: Engine, messages: list[Any]) -> None:
        chat = engine.conversation(messages=[{"role": role, "content": text} for role, text in messages])
        before = chat.messages
        for call in (chat.respond, lambda: list(chat.stream_respond())):
            with pytest.raises(ValueError, match=r"respond to|needs one by the user"):
                call()
        assert chat.messages == before

    def test_to_a_tools_answer(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "What is 6 by 7?"}])
        chat.add(Message("assistant", "", tool_calls=(ToolCall("1", "times", {"a": 6, "b": 7}),)))
        chat.add_tool_result("1", "42")
        assert chat.respond(**GREEDY).message == chat.messages[-1]


class TestReset:
    def test_keeps_the_system_text_and_the_examples(self, engine: Engine) -> None:
        chat = engine.conversation(system="s", examples=[("q", "a")])
        chat.send("Hi.", **GREEDY)
        chat.reset()
        assert spoken(chat) == [("system", "s"), ("user", "q"), ("assistant", "a")]
        assert chat.report is None
        assert not chat.is_context_full

    def test_or_nothing(self, engine: Engine) -> None:
        chat = engine.conversation(system="s", examples=[("q", "a")])
        chat.reset(keep_system=False)
        assert chat.messages == ()
        chat.add_system("new")
        chat.send("Hi.", **GREEDY)
        chat.reset()
        assert spoken(chat) == [("system", "new")]

    def test_then_replies_as_a_fresh_one(self, engine: Engine) -> None:
        chat, other = engine.conversation("s"), engine.conversation("s")
        chat.send("One.", **GREEDY)
        chat.reset()
        options = {"temperature": 0, "max_tokens": 6, "logprobs": True}
        ours, theirs = (c.send("Two.", **options) for c in (chat, other))
        assert (ours.text, ours.logprobs) == (theirs.text, theirs.logprobs)


class TestClosed:
    def test_every_call_raises_and_the_engine_goes_on(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.send("Hi.", **GREEDY)
        said = spoken(chat)
        chat.close()
        chat.close()
        calls = [
            lambda: chat.send("x"), lambda: chat.stream("x"), chat.respond, chat.regenerate, chat.resume, chat.fork,
            chat.rewind, lambda: chat.edit(0, "x"), chat.reset, chat.prefill, chat.render, chat.tokenize,
            chat.count_tokens, lambda: chat.add_user("x"), lambda: chat.token_count, lambda: chat.is_context_full,
            chat.__enter__,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(RuntimeError, match="this conversation is closed"):
                call()
        chat.cancel()
        assert chat.closed
        assert spoken(chat) == said  # what was said can still be read
        assert "closed" in repr(chat)
        with engine.conversation(name="other") as other:
            assert "'other': 0 messages" in repr(other)
            other.send("Hi.", **GREEDY)
        assert other.closed
