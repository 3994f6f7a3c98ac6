"""StopIteration in a function of the user's: it is an error like any other, and not the end of a stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from scripted import Script, calls

import causerie

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Conversation, Engine

ENDS = [StopIteration, StopAsyncIteration]


async def _each(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


WAYS: dict[str, Callable[[Conversation], Any]] = {
    "send": lambda chat: chat.send("x"),
    "stream": lambda chat: list(chat.stream("x")),
    "asend": lambda chat: asyncio.run(chat.asend("x")),
    "astream": lambda chat: asyncio.run(_each(chat.astream("x"))),
    "run": lambda chat: chat.run("x", on_error="raise"),
    "stream_run": lambda chat: list(chat.stream_run("x", on_error="raise")),
    "arun": lambda chat: asyncio.run(chat.arun("x", on_error="raise")),
    "astream_run": lambda chat: asyncio.run(_each(chat.astream_run("x", on_error="raise"))),
}


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error("mine")

    return function


def fails(way: str, chat: Conversation, error: type[BaseException]) -> None:
    with pytest.raises(RuntimeError, match="Stop") as caught:
        WAYS[way](chat)
    found: BaseException | None = caught.value
    while found is not None and not isinstance(found, error):
        found = found.__cause__ or found.__context__
    assert str(found) == "mine"


@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("way", WAYS)
class TestItSurfaces:
    def test_of_a_sampler(self, engine: Engine, way: str, error: type[BaseException]) -> None:
        chat = engine.conversation(max_tokens=3, sampling={"samplers": raising(error)})
        fails(way, chat, error)
        assert [message.role for message in chat.messages] == ["user"]

    def test_of_transforms(self, engine: Engine, way: str, error: type[BaseException]) -> None:
        fails(way, engine.conversation(max_tokens=3, input_transforms=raising(error)), error)
        fails(way, engine.conversation(max_tokens=3, history_transform=raising(error)), error)
        fails(way, engine.conversation(max_tokens=3, output_transform=raising(error)), error)

    def test_of_an_overflow_policy(self, engine: Engine, way: str, error: type[BaseException]) -> None:
        chat = engine.conversation("word " * 3000, max_tokens=3, overflow=raising(error))
        fails(way, chat, error)


@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("way", [way for way in WAYS if "run" in way])
@pytest.mark.parametrize("kind", ["function", "coroutine"])
class TestInARun:
    def talk(self, engine: Engine, function: Callable[..., Any]) -> Conversation:
        one = causerie.tool(name="one", description="")(function)
        sampling = {"temperature": 0, "samplers": Script(engine, calls("one"), "Done.")}
        return engine.conversation(tools=[one], tool_format="generic", sampling=sampling)

    def test_of_a_tool(self, engine: Engine, way: str, error: type[BaseException], kind: str) -> None:
        def function() -> None:
            raise error("mine")

        async def coroutine() -> None:
            raise error("mine")

        chat = self.talk(engine, function if kind == "function" else coroutine)
        fails(way, chat, error)
        told = chat.messages[-1].text
        assert told.startswith("Error: ")
        assert error.__name__ in told

    def test_of_an_approval(self, engine: Engine, way: str, error: type[BaseException], kind: str) -> None:
        def approve(_: Any) -> bool:
            raise error("mine")

        async def later(_: Any) -> bool:
            raise error("mine")

        chat = self.talk(engine, lambda: 1)
        given = approve if kind == "function" else later
        with pytest.raises(RuntimeError, match="Stop"):
            RUNS[way](chat, given)
        assert chat.messages[-1].role == "tool"
        assert chat.run(temperature=0, max_tokens=3).text


RUNS: dict[str, Callable[[Conversation, Any], Any]] = {
    "run": lambda chat, approve: chat.run("x", approve=approve),
    "stream_run": lambda chat, approve: list(chat.stream_run("x", approve=approve)),
    "arun": lambda chat, approve: asyncio.run(chat.arun("x", approve=approve)),
    "astream_run": lambda chat, approve: asyncio.run(_each(chat.astream_run("x", approve=approve))),
}
