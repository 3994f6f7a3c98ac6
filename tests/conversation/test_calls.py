"""send, stream, asend and astream: the same reply four ways, whole characters, and an event loop that goes on."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from talking import CHARACTERS, HOT, Dictation, Oracle, spoken

from causerie import Chunk, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Conversation, Engine

QUESTION = "Tell me about the sea."


async def chunks_of(stream: Any) -> list[Chunk]:
    return [chunk async for chunk in stream]


def joined(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


WAYS: dict[str, Callable[..., str]] = {
    "send": lambda chat, **options: chat.send(QUESTION, **options).text,
    "stream": lambda chat, **options: joined(list(chat.stream(QUESTION, **options))),
    "asend": lambda chat, **options: asyncio.run(chat.asend(QUESTION, **options)).text,
    "astream": lambda chat, **options: joined(asyncio.run(chunks_of(chat.astream(QUESTION, **options)))),
}
AGAIN: dict[str, Callable[..., str]] = {
    "respond": lambda chat, **options: chat.respond(**options).text,
    "stream_respond": lambda chat, **options: joined(list(chat.stream_respond(**options))),
    "arespond": lambda chat, **options: asyncio.run(chat.arespond(**options)).text,
    "astream_respond": lambda chat, **options: joined(asyncio.run(chunks_of(chat.astream_respond(**options)))),
}


class TestTheSameReply:
    def test_greedy_from_every_call_and_from_a_context_driven_by_hand(self, engine: Engine, oracle: Oracle) -> None:
        chat = engine.conversation()
        expected = oracle.text(chat.tokenize(QUESTION), 12)
        assert {name: way(engine.conversation(), temperature=0, max_tokens=12) for name, way in WAYS.items()} == (
            dict.fromkeys(WAYS, expected)
        )

    def test_hot_at_the_same_seed(self, engine: Engine) -> None:
        texts = {name: way(engine.conversation(), **HOT, seed=7, max_tokens=12) for name, way in WAYS.items()}
        assert len(set(texts.values())) == 1, texts

    def test_respond_gives_what_send_gives(self, engine: Engine) -> None:
        expected = engine.conversation().send(QUESTION, **HOT, seed=3, max_tokens=8).text
        for way in AGAIN.values():
            chat = engine.conversation(messages=[{"role": "user", "content": QUESTION}])
            assert way(chat, **HOT, seed=3, max_tokens=8) == expected

    @pytest.mark.parametrize("name", ["regenerate", "resume"])
    def test_also_when_done_again_or_gone_on_with(self, engine: Engine, name: str) -> None:
        chat = engine.conversation()
        chat.send(QUESTION, temperature=0, max_tokens=4)
        a, b, c, d = chat.fork(4)
        options = {**HOT, "seed": 5, "max_tokens": 6}
        expected = getattr(a, name)(**options).text
        assert joined(list(getattr(b, f"stream_{name}")(**options))) == expected
        assert asyncio.run(getattr(c, f"a{name}")(**options)).text == expected
        assert joined(asyncio.run(chunks_of(getattr(d, f"astream_{name}")(**options)))) == expected
        assert spoken(a) == spoken(b) == spoken(c) == spoken(d)

    def test_joins_the_history_whichever_way_it_came(self, engine: Engine) -> None:
        for way in WAYS.values():
            chat = engine.conversation()
            text = way(chat, temperature=0, max_tokens=3)
            assert spoken(chat) == [("user", QUESTION), ("assistant", text)]

    def test_a_stream_also_tells_the_whole_reply(self, engine: Engine) -> None:
        stream = engine.conversation().stream(QUESTION, temperature=0, max_tokens=5)
        first = next(stream)
        assert isinstance(first, Chunk)
        assert str(first) == first.text
        reply = stream.reply
        assert isinstance(reply, Reply)
        assert first.text + joined(list(stream)) == reply.text == str(reply) == stream.text

    def test_an_asynchronous_one_too(self, engine: Engine) -> None:
        async def main() -> None:
            stream = engine.conversation().astream(QUESTION, temperature=0, max_tokens=5)
            first = await anext(stream)
            reply = await stream.reply()
            assert first.text + joined(await chunks_of(stream)) == reply.text

        asyncio.run(main())

    def test_wrong_arguments_raise_at_once_where_the_stream_is_made(self, engine: Engine) -> None:
        chat = engine.conversation()
        with pytest.raises(TypeError, match="temperature"):
            chat.stream(QUESTION, tempereture=0)
        with pytest.raises(ValueError, match="max_tokens"):
            chat.stream(QUESTION, max_tokens=0)
        with pytest.raises(TypeError, match="content"):
            chat.stream(None)  # type: ignore[arg-type]
        assert chat.messages == ()


class TestCharacters:
    def test_no_chunk_splits_one(self, engine: Engine) -> None:
        whole = ["👩‍🚀", "🏳️‍🌈", "👍🏽", "🇫🇷", "漢", "é"]
        chat = engine.conversation()
        dictation = Dictation(engine, CHARACTERS)
        chunks = [chunk.text for chunk in chat.stream("x", temperature=0, samplers=dictation)]
        assert "".join(chunks) == CHARACTERS
        assert len(chunks) < len(dictation.ids)  # so tokens did cut characters
        ends = {sum(map(len, chunks[:i])) for i in range(len(chunks) + 1)}
        for character in whole:
            start = CHARACTERS.index(character)
            assert not ends & set(range(start + 1, start + len(character))), character

    def test_bytes_that_are_no_character_become_one_replacement(self, engine: Engine) -> None:
        chat = engine.conversation()
        dictation = Dictation(engine, "🚀", end=False)
        reply = chat.send("x", temperature=0, samplers=dictation, max_tokens=len(dictation.ids) - 1)
        assert reply.text == "\ufffd"
        assert reply.finish_reason == "length"


class TestEventLoop:
    def test_a_ticker_keeps_ticking_while_tokens_come(self, engine: Engine) -> None:
        gaps: list[float] = []

        async def tick() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.01)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        async def main() -> None:
            ticker = asyncio.create_task(tick())
            chats = [engine.conversation() for _ in range(3)]
            words = " ".join(str(number) for number in range(60))  # a prompt that takes some while
            await asyncio.gather(*(chat.asend(words, temperature=0, max_tokens=12) for chat in chats))
            ticker.cancel()

        began = time.perf_counter()
        asyncio.run(main())
        seconds = time.perf_counter() - began
        assert len(gaps) > seconds / 0.01 / 4  # a machine with other work to do is late now and then
        assert sorted(gaps)[len(gaps) // 2] < 0.03

    def test_tasks_are_evaluated_together(self, engine: Engine) -> None:
        async def main() -> list[Reply]:
            chats = [engine.conversation(system=f"You are number {i}.") for i in range(6)]
            return await asyncio.gather(*(chat.asend(QUESTION, temperature=0, max_tokens=8) for chat in chats))

        before = engine.stats().steps
        replies = asyncio.run(main())
        assert engine.stats().steps - before < sum(reply.usage.total_tokens for reply in replies) / 4

    def test_one_conversation_lives_through_several_loops_and_threads(self, engine: Engine) -> None:
        chat: Conversation = engine.conversation()
        for _ in range(2):
            asyncio.run(chat.asend("Hi.", temperature=0, max_tokens=2))
        chat.send("Hi.", temperature=0, max_tokens=2)
        assert [role for role, _ in spoken(chat)] == ["user", "assistant"] * 3

    def test_two_loops_at_once(self, engine: Engine) -> None:
        async def one(text: str) -> str:
            return (await engine.conversation().asend(text, temperature=0, max_tokens=10)).text

        async def both() -> tuple[str, str]:
            other = asyncio.create_task(asyncio.to_thread(asyncio.run, one("Count to five.")))
            return await one("Name a river."), await other

        assert asyncio.run(both()) == (asyncio.run(one("Name a river.")), asyncio.run(one("Count to five.")))
