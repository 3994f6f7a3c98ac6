"""A stream that nobody reads to its end stops within a step, and leaves a conversation that can be used."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from talking import spoken

from causerie import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Conversation, Engine

QUESTION = "Tell me a story."
GREEDY = {"temperature": 0, "max_tokens": 6}


def break_off(chat: Conversation) -> str:
    for chunk in chat.stream(QUESTION, temperature=0):
        return chunk.text
    return ""


def close(chat: Conversation) -> str:
    stream = chat.stream(QUESTION, temperature=0)
    text = next(stream).text
    stream.close()
    stream.close()
    assert stream.reply.finish_reason == "cancelled"
    assert list(stream) == []
    return text


def leave_block(chat: Conversation) -> str:
    with chat.stream(QUESTION, temperature=0) as stream:
        return next(stream).text


def forget(chat: Conversation) -> str:
    stream = chat.stream(QUESTION, temperature=0)
    text = next(stream).text
    del stream
    gc.collect()
    return text


def stumble(chat: Conversation) -> str:
    texts = []

    def consume() -> None:
        for chunk in chat.stream(QUESTION, temperature=0):
            texts.append(chunk.text)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    gc.collect()  # the exception held the stream
    return texts[0]


def close_later(chat: Conversation) -> str:
    async def main() -> str:
        stream = chat.astream(QUESTION, temperature=0)
        text = (await anext(stream)).text
        await stream.aclose()
        await stream.aclose()
        assert [chunk async for chunk in stream] == []
        return text

    return asyncio.run(main())


def leave_asynchronous_block(chat: Conversation) -> str:
    async def main() -> str:
        async with chat.astream(QUESTION, temperature=0) as stream:
            return (await anext(stream)).text

    return asyncio.run(main())


def break_off_asynchronously(chat: Conversation) -> str:
    async def main() -> str:
        async for chunk in chat.astream(QUESTION, temperature=0):
            return chunk.text
        return ""

    return asyncio.run(main())


WAYS: list[Callable[[Any], str]] = [
    break_off,
    close,
    leave_block,
    forget,
    stumble,
    close_later,
    leave_asynchronous_block,
    break_off_asynchronously,
]


@pytest.mark.parametrize("way", WAYS)
def test_it_stops_and_the_conversation_is_usable(engine: Engine, way: Callable[[Any], str]) -> None:
    chat = engine.conversation()
    text = way(chat)
    generated = engine.stats().generated
    engine.conversation().send("Hi.", temperature=0, max_tokens=2)  # runs the steps there are
    stats = engine.stats()
    assert stats.generated - generated <= 2
    assert (stats.running, stats.queued) == (0, 0)
    assert spoken(chat)[0] == ("user", QUESTION)
    assert chat.messages[1].text.startswith(text)
    assert len(chat.messages) == 2
    assert chat.report is not None
    assert chat.report.finish_reason == "cancelled"
    again = engine.conversation(messages=chat.messages)
    assert chat.send("Go on.", **GREEDY).text == again.send("Go on.", **GREEDY).text


def test_one_that_is_never_read(engine: Engine) -> None:
    chat = engine.conversation()
    chat.stream(QUESTION, temperature=0)
    assert spoken(chat) == [("user", QUESTION)]
    assert chat.respond(**GREEDY).text == engine.conversation().send(QUESTION, **GREEDY).text


def test_an_asynchronous_one_that_is_never_awaited_never_begins(engine: Engine) -> None:
    chat = engine.conversation()
    chat.astream(QUESTION)
    assert chat.messages == ()

    async def main() -> None:
        stream = chat.astream(QUESTION)
        await stream.aclose()
        assert [chunk async for chunk in stream] == []
        with pytest.raises(RuntimeError, match="was closed"):
            await stream.reply()

    asyncio.run(main())
    assert chat.messages == ()


def test_a_second_reply_has_to_wait_for_the_first(engine: Engine) -> None:
    chat = engine.conversation()
    stream = chat.stream(QUESTION, temperature=0)
    next(stream)
    for call in (lambda: chat.send("x"), chat.fork, chat.rewind, chat.prefill, chat.reset, lambda: chat.add_user("x")):
        with pytest.raises(BusyError, match="read it to its end, or cancel it"):
            call()
    assert spoken(chat) == [("user", QUESTION)]
    stream.close()
    chat.add_user("now")


def test_one_that_ended_unread_joins_the_history_whole(engine: Engine) -> None:
    chat = engine.conversation()
    stream = chat.stream(QUESTION, **GREEDY)
    while not stream.turn.done:  # another conversation's thread runs the steps
        engine.conversation().send("Hi.", temperature=0, max_tokens=1)
    expected = engine.conversation().send(QUESTION, **GREEDY).text
    assert chat.messages[-1].text == expected
    assert "".join(chunk.text for chunk in stream) == expected
    assert stream.reply.finish_reason == "length"


def test_a_stream_dropped_while_another_thread_cancels_and_reads(engine: Engine) -> None:
    for _ in range(8):
        chat = engine.conversation()
        stream = chat.stream(QUESTION, temperature=0, max_tokens=20)
        next(stream)
        lengths: list[int] = []
        threads = [
            threading.Thread(target=chat.cancel),
            threading.Thread(target=lambda chat=chat, lengths=lengths: lengths.append(len(chat.messages))),
        ]
        for thread in threads:
            thread.start()
        del stream
        for thread in threads:
            thread.join()
        assert len(chat.messages) == 2
        assert lengths in ([1], [2])
        chat.send("x", temperature=0, max_tokens=1)


def test_two_readers_get_every_chunk_between_them(engine: Engine) -> None:
    """A stream is for one thread, but two must not hang or lose text."""
    stream = engine.conversation().stream(QUESTION, temperature=0, max_tokens=12)
    found: list[str] = []

    def read() -> None:
        found.extend(chunk.text for chunk in stream)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted("".join(found)) == sorted(stream.reply.text)


def test_a_slow_reader_does_not_stop_the_others(engine: Engine) -> None:
    slow = engine.conversation().stream(QUESTION, temperature=0, max_tokens=10)
    next(slow)
    began = time.perf_counter()
    engine.conversation().send(QUESTION, **GREEDY)
    assert time.perf_counter() - began < 10
    assert slow.turn.candidates[0].generation.n_generated > 5  # it went on meanwhile
    assert slow.reply.finish_reason == "length"
