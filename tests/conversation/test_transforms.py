"""Changing what a user says, what the model is shown, and what a reader sees."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from talking import CHARACTERS, Dictation, spoken

from causerie import KeywordRemover, Message, PatternRedactor, PrefixRemover, register_transform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from causerie import Conversation, Engine

GREEDY = {"temperature": 0, "max_tokens": 3}


class TestInput:
    def test_a_chain_in_order_and_the_history_has_the_result(self, engine: Engine) -> None:
        chat = engine.conversation("s", input_transforms=[str.strip, str.upper, lambda text: f"<{text}>"])
        chat.send("  hello ", **GREEDY)
        chat.add_user(" x ")
        assert [text for role, text in spoken(chat) if role == "user"] == ["<HELLO>", "<X>"]
        assert "<WHAT>" in chat.render("what")

    def test_messages_given_as_they_are_stay_so(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "a"}], input_transforms=[str.upper])
        chat.add({"role": "user", "content": "b"})
        chat.edit(1, "c")
        assert spoken(chat) == [("user", "a"), ("user", "c")]

    def test_text_parts_too(self, engine: Engine) -> None:
        chat = engine.conversation(input_transforms=[str.upper])
        chat.add_user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])  # type: ignore[arg-type]
        assert chat.messages[0].text == "A\nB"


class TestHistory:
    def test_changes_what_the_model_is_shown_and_nothing_else(self, engine: Engine) -> None:
        chat = engine.conversation("s", history_transform=lambda messages: [messages[0], messages[-1]])
        for word in ("one", "two", "three"):
            chat.send(word, **GREEDY)
        assert [text for role, text in spoken(chat) if role == "user"] == ["one", "two", "three"]
        shown = chat.render("four")
        assert "four" in shown
        assert "two" not in shown
        other = engine.conversation("s")
        assert chat.send("five", **GREEDY).text == other.send("five", **GREEDY).text

    def test_that_changes_nothing_keeps_the_generated_ids(self, engine: Engine) -> None:
        def dictated(text: str) -> dict[str, object]:
            return {"temperature": 0, "samplers": Dictation(engine, text)}

        chat = engine.conversation(history_transform=lambda messages: messages)
        plain = engine.conversation()
        for each in (chat, plain):
            each.add_user("q")
            each.add_assistant("Yes, of course.")  # the same words twice, written once and generated once
            each.send("q", **dictated("Yes, of course."))
        assert chat.tokenize("x").tolist() == plain.tokenize("x").tolist()
        reply = chat.send("x", **GREEDY)
        assert reply.usage.cached_tokens > reply.usage.prompt_tokens - 16

    def test_may_say_it_otherwise(self, engine: Engine) -> None:
        def polite(messages: tuple[Message, ...]) -> list[Message]:
            return [Message(m.role, m.text.replace("damn", "dear")) for m in messages]

        chat = engine.conversation(history_transform=polite)
        assert "dear" in chat.render("damn")
        chat.send("damn", **GREEDY)
        assert chat.messages[0].text == "damn"


class TestOutput:
    def test_keywords_go_on_their_way_out_and_stay_in_the_history(self, engine: Engine) -> None:
        text = "User: I am here. Assistant: Me too."
        chat = engine.conversation(output_transform=lambda: KeywordRemover(["User: ", "Assistant: "]))
        stream = chat.stream("x", temperature=0, samplers=Dictation(engine, text))
        chunks = [chunk.text for chunk in stream]
        assert "".join(chunks) == stream.reply.text == "I am here. Me too."
        assert chat.messages[-1].text == text

    def test_the_users_own(self, engine: Engine) -> None:
        class Shout:
            def __init__(self) -> None:
                self.count = 0

            def feed(self, text: str) -> str:
                self.count += len(text)
                return text.upper()

            def flush(self) -> str:
                return f" [{self.count}]"

        chat = engine.conversation(output_transform=Shout)
        for _ in range(2):  # each reply has one of its own
            assert chat.send("x", temperature=0, samplers=Dictation(engine, "Yes, sir.")).text == "YES, SIR. [9]"
        assert chat.messages[-1].text == "Yes, sir."

    def test_saved_only_if_the_user_asks(self, engine: Engine) -> None:
        chat = engine.conversation(output_transform=lambda: KeywordRemover("sir"))
        reply = chat.send("x", temperature=0, samplers=Dictation(engine, "Yes, sir."))
        chat.edit(-1, reply.text)
        assert chat.messages[-1].text == "Yes, ."

    def test_a_supplied_one_as_it_is_and_several_in_a_row(self, engine: Engine) -> None:
        chat = engine.conversation(
            output_transform=[
                PrefixRemover(),
                KeywordRemover({"sir": "madam"}),
                PatternRedactor("ma.am", "*", window=8),
            ]
        )
        for _ in range(2):
            stream = chat.stream("x", temperature=0, samplers=Dictation(engine, " Assistant: Yes, sir. Or sir"))
            assert "".join(chunk.text for chunk in stream) == stream.reply.text == "Yes, *. Or *"

    def test_chunks_show_whole_characters(self, engine: Engine) -> None:
        chat = engine.conversation(output_transform=PatternRedactor("\\d+", window=3))
        chunks = [chunk.text for chunk in chat.stream("x", temperature=0, samplers=Dictation(engine, CHARACTERS))]
        assert "".join(chunks) == CHARACTERS
        plain = engine.conversation()
        whole = [chunk.text for chunk in plain.stream("x", temperature=0, samplers=Dictation(engine, CHARACTERS))]
        ends = {len("".join(whole[:i])) for i in range(len(whole) + 1)}
        for joined in ("👩‍🚀", "🏳️‍🌈", "👍🏽", "🇫🇷"):  # which no chunk of either cuts
            inside = set(range(CHARACTERS.index(joined) + 1, CHARACTERS.index(joined) + len(joined)))
            assert inside.isdisjoint(ends)
            assert inside.isdisjoint({len("".join(chunks[:i])) for i in range(len(chunks) + 1)})

    def test_changes_nothing_of_what_the_cache_holds(self, engine: Engine) -> None:
        plain, changed = engine.conversation("s"), engine.conversation("s", output_transform=KeywordRemover("the"))
        for chat in (plain, changed):
            chat.send("Tell me about the sea.", temperature=0, max_tokens=12)
        assert changed.tokenize("x").tolist() == plain.tokenize("x").tolist()
        before = changed.token_count
        reply = changed.send("x", **GREEDY)
        assert reply.usage.cached_tokens >= before - 3  # all but its last token and what ends the turn

    def test_one_that_makes_none_raises_before_anything_changes(self, engine: Engine) -> None:
        chat = engine.conversation(output_transform=str)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"feed\(\) and flush\(\): str has not"):
            chat.send("x")
        assert chat.messages == ()
        with pytest.raises(TypeError, match="as lambda: Once"):
            engine.conversation(output_transform=Once())  # type: ignore[arg-type]


class Once:
    """Not for a second reply."""

    def feed(self, text: str) -> str:
        return text

    def flush(self) -> str:
        return ""


def shouted(chunks: Iterator[str]) -> Iterator[str]:
    for chunk in chunks:
        yield chunk.upper()
    yield "!"


async def by_words(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    """Holds back what is not a word yet, and gives each by itself."""
    held = ""
    async for chunk in chunks:
        *words, held = (held + chunk).split(" ")
        for word in words:
            yield f"{word}_"
    yield held


CALLS: list[Callable[[Conversation, dict[str, Any]], str]] = [
    lambda chat, options: chat.send("x", **options).text,
    lambda chat, options: "".join(chunk.text for chunk in chat.stream("x", **options)),
    lambda chat, options: asyncio.run(chat.asend("x", **options)).text,
    lambda chat, options: asyncio.run(_read(chat, options)),
]


async def _read(chat: Conversation, options: dict[str, Any]) -> str:
    return "".join([chunk.text async for chunk in chat.astream("x", **options)])


class TestGenerators:
    @pytest.mark.parametrize("call", CALLS, ids=["send", "stream", "asend", "astream"])
    @pytest.mark.parametrize(
        ("transform", "expected"), [(shouted, "YES, MY DEAR SIR.!"), (by_words, "Yes,_my_dear_sir.")]
    )
    def test_one_definition_serves_all_calls(
        self, engine: Engine, transform: Any, expected: str, call: Callable[[Conversation, dict[str, Any]], str]
    ) -> None:
        chat = engine.conversation(output_transform=transform)
        assert call(chat, {"temperature": 0, "samplers": Dictation(engine, "Yes, my dear sir.")}) == expected
        assert chat.messages[-1].text == "Yes, my dear sir."

    def test_comes_while_it_is_written(self, engine: Engine) -> None:
        chat = engine.conversation(output_transform=by_words)
        dictation = Dictation(engine, "one two three four five six seven eight")
        first = next(chat.stream("x", temperature=0, samplers=dictation))
        assert first.text == "one_"
        assert dictation.calls < len(dictation.ids)

    def test_of_a_stream_that_is_dropped_leaves_nothing(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        ended: list[str] = []

        async def noted(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
            try:
                async for chunk in chunks:
                    yield chunk
            finally:
                ended.append("yes")

        async def main() -> None:
            chat = engine.conversation(output_transform=noted)
            async for _ in chat.astream("x", temperature=0, max_tokens=50):
                break
            gc.collect()
            assert chat.messages[-1].role == "assistant"

        unraisable: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
        asyncio.run(main())
        gc.collect()
        assert ended == ["yes"]
        assert unraisable == []

    def test_its_error_ends_the_reply(self, engine: Engine) -> None:
        def lazy(chunks: Iterator[str]) -> Iterator[str]:
            yield "".join(chunks)

        async def impatient(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
            async for chunk in chunks:
                await asyncio.sleep(0)
                yield chunk

        for transform, said in ((lazy, "yield ''"), (impatient, "its chunks only")):
            chat = engine.conversation(output_transform=transform)
            with pytest.raises(RuntimeError, match=said):
                chat.send("x", temperature=0, max_tokens=3)
            assert spoken(chat) == [("user", "x")]


class TestNames:
    def test_stand_for_what_was_registered(self, engine: Engine) -> None:
        register_transform("tests: loud", str.upper)
        register_transform("tests: no sir", KeywordRemover("sir"))
        register_transform("tests: last two", last_two)
        chat = engine.conversation(
            input_transforms=["tests: loud", str.strip],
            output_transform="tests: no sir",
            history_transform="tests: last two",
        )
        reply = chat.send(" a ", temperature=0, samplers=Dictation(engine, "Yes, sir."))
        assert (reply.text, chat.messages[0].text) == ("Yes, .", "A")
        for options in (
            {"input_transforms": "nobody"},
            {"output_transform": ["nobody"]},
            {"history_transform": "nobody"},
        ):
            with pytest.raises(ValueError, match=r"'nobody' \(registered: .*tests: loud"):
                engine.conversation(**options)  # type: ignore[arg-type]


def last_two(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return messages[-2:]
