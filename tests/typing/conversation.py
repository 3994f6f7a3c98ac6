"""Read by mypy --strict and never run: what the types of conversations promise to a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import causerie
from causerie import Chunk, Conversation, Engine, Message, Reply, Stream, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator


def talking() -> None:
    with causerie.Engine("smollm2", n_ctx=8192, sampling={"temperature": 0}) as engine:
        assert_type(engine, Engine)
        chat = engine.conversation(system="Be brief.", examples=[("One?", "Two.")], overflow="trim")
        assert_type(chat, Conversation)
        reply = chat.send("Hi.", temperature=0.5, stop=["\n"], logprobs=3)
        assert_type(reply, Reply)
        assert_type(reply.text, str)
        assert_type(reply.message, Message | None)
        assert_type(reply.usage.cached_tokens, int)
        assert_type(reply.timings.first_token, float | None)
        for entry in reply.logprobs or ():
            assert_type(entry.top, tuple[causerie.TokenLogprob, ...])
        if reply.finish_reason == "length":
            chat.resume()
        with chat.stream("Go on.") as stream:
            assert_type(stream, Stream)
            for chunk in stream:
                assert_type(chunk, Chunk)
                assert_type(chunk.text, str)
            assert_type(stream.reply, Reply)
        assert_type(chat.messages, tuple[Message, ...])
        assert_type(chat.fork(), Conversation)
        assert_type(chat.fork(2), list[Conversation])
        assert_type(chat.tokenize("x"), NDArray[np.int32])
        assert_type(chat.render(), str)
        assert_type(chat.report, causerie.Report | None)
        assert_type(engine.stats().tokens, int)


@causerie.tool
def weather(city: str) -> str:
    return city


def calling(engine: Engine) -> None:
    chat = engine.conversation(tools=[weather, {"name": "clock"}, len], tool_format="generic", replay_thinking=True)
    reply = chat.send("Hi.", tools=[weather], tool_choice={"name": "weather"}, parallel_tool_calls=False, thinking=True)
    assert_type(reply.thinking, str)
    assert_type(reply.tool_calls, tuple[causerie.ToolCall, ...])
    for call in reply.tool_calls:
        chat.add_tool_result(call.id, weather.call(call.arguments))
    for chunk in chat.stream_respond(tools=()):
        assert_type(chunk.tool_call, causerie.ToolCall | None)
        assert_type(chunk.call_index, int)
    engine.conversation(tool_format="xml")  # type: ignore[arg-type]
    engine.conversation(tools=weather)  # type: ignore[arg-type]


def approved(call: ToolCall) -> bool | str:
    return call.name == "weather" or "no other tools"


async def approved_later(call: ToolCall) -> bool:
    return "Oslo" in call.arguments.values()


def running(chat: Conversation) -> None:
    assert_type(chat.run("Hi.", tools=[weather], max_rounds=2, timeout=1, approve=approved), Reply)
    assert_type(chat.run(on_error="raise", approve=approved_later, temperature=0), Reply)
    with chat.stream_run("Hi.", parallel=1) as stream:
        assert_type(stream, causerie.RunStream)
        for chunk in stream:
            assert_type(chunk, Chunk)
        assert_type(stream.reply, Reply)


async def running_later(chat: Conversation) -> None:
    assert_type(await chat.arun("Hi.", tools=[weather], approve=approved_later), Reply)
    async with chat.astream_run("Hi.") as stream:
        async for chunk in stream:
            assert_type(chunk, Chunk)
        assert_type(await stream.reply(), Reply)


async def talking_later(chat: Conversation) -> None:
    assert_type(await chat.asend("Hi."), Reply)
    assert_type(await chat.aregenerate(), Reply)
    async for chunk in chat.astream("Go on."):
        assert_type(chunk, Chunk)
    async with chat.astream_respond() as stream:
        assert_type(await stream.reply(), Reply)


def summarised(chat: Conversation) -> Iterable[Message]:
    return [Message("system", chat.fork().send("Sum up.").text), chat.messages[-1]]


def sharpened(row: NDArray[np.float32]) -> None:
    row *= 2


class Shout:
    def feed(self, text: str) -> str:
        return text.upper()

    def flush(self) -> str:
        return "!"


def by_chunks(chunks: Iterator[str]) -> Iterator[str]:
    yield from chunks


async def by_awaited_chunks(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    async for chunk in chunks:
        yield chunk


def extended(engine: Engine) -> None:
    chat = engine.conversation(
        messages=[{"role": "user", "content": "Hi."}, Message("assistant", "Hello.")],
        overflow=summarised,
        input_transforms=[str.strip],
        output_transform=Shout,
        history_transform=lambda messages: messages[-3:],
    )
    engine.conversation(output_transform=lambda: causerie.KeywordRemover("User:"))
    engine.conversation(output_transform=[causerie.PatternRedactor("a+"), Shout, by_chunks, by_awaited_chunks, "name"])
    engine.conversation(input_transforms="name", history_transform="name", output_transform=by_awaited_chunks)
    engine.conversation(template=causerie.RolePrefix("Ada", "Bob"))
    causerie.register_transform("name", Shout)
    assert_type(list(causerie.transformed(["a"], by_chunks)), list[str])
    assert_type(causerie.RolePrefix().to_text(chat.messages), str)
    assert_type(chat.to_json(), str)
    chat.export("talk.html")
    chat.export("talk", "markdown")
    chat.send([{"type": "text", "text": "Hi."}], samplers=[sharpened])


def wrong_uses(engine: Engine, chat: Conversation) -> None:
    engine.conversation(overflow="shift")  # type: ignore[arg-type]
    engine.conversation(output_transform=str)  # type: ignore[arg-type]
    chat.export("talk", "pdf")  # type: ignore[arg-type]
    chat.send(3)  # type: ignore[arg-type]
    chat.messages.append(3)  # type: ignore[attr-defined]
    chat.send("x").text = "y"  # type: ignore[misc]
