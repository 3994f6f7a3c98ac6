"""Reading the answers of a call while they come: as an iterator, or as an asynchronous one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from causerie.errors import CauserieError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from causerie.chat_model.response import ChatModelResponse
    from causerie.chat_model.running import Running
    from causerie.conversation._pump import Pump

__all__ = ["AsyncChatStream", "ChatStream"]


class ChatStream:
    """What is new in any session, as it comes. Made by `ChatModel.stream_chat`; to be read by one thread.

    Each item has one response, and its ``index`` tells of which session: a piece of text of one candidate; or the end
    of the session, with all candidates, their texts empty, and its counts; or its error. A stream that is closed,
    broken out of or dropped stops all its sessions.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        try:
            running.begin()
        except BaseException as error:
            running.give_up(error)
            raise

    def __iter__(self) -> Iterator[ChatModelResponse]:
        return self

    def __next__(self) -> ChatModelResponse:
        events = self._running.events
        while not events:
            if self._running.ended:
                raise StopIteration
            self._go_on()
        return events.popleft()

    def _go_on(self) -> None:
        try:
            news = self._running.news()
            news.wait(news.ready)
            self._running.advance()
        except BaseException as error:
            self._running.give_up(error)
            raise

    @property
    def response(self) -> ChatModelResponse:
        """The whole, as `ChatModel.chat` gives it; waits for the end.

        Raises:
            BaseException: what ended all sessions.
        """
        while not self._running.ended:
            self._go_on()
        return self._running.response()

    def close(self) -> None:
        """Stop generating, if it still runs; `response` keeps what there is, "cancelled". Idempotent."""
        self._running.cancel()
        with contextlib.suppress(CauserieError):  # the engine has ended
            while not self._running.ended:
                self._go_on()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncChatStream:
    """As `ChatStream`, for asyncio. Nothing begins before it is first awaited; to be read by one task.

    A task that is cancelled while it waits here stops all sessions; ``aclose()``, or ``async with``, does too.
    """

    def __init__(self, running: Running, pump: Pump) -> None:
        self._running = running
        self._pump = pump
        self._beginning: asyncio.Future[None] | None = None
        self._closed = False

    async def _begin(self) -> None:
        """Begin without blocking the event loop; a task that is cancelled meanwhile leaves nothing running."""
        import asyncio

        if self._beginning is None:
            if self._closed:
                return
            self._beginning = asyncio.get_running_loop().run_in_executor(None, self._running.begin)
        try:
            await asyncio.shield(self._beginning)
        except BaseException as error:
            await self._stop_beginning(error)
            self._running.give_up(error)
            raise

    async def _stop_beginning(self, reason: BaseException) -> None:
        import asyncio

        beginning = self._beginning
        if beginning is None or beginning.done():
            return
        self._running.give_up(reason)
        beginning.add_done_callback(lambda future: future.cancelled() or future.exception())  # nobody asks for it
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([beginning])

    def __aiter__(self) -> AsyncIterator[ChatModelResponse]:
        return self

    async def __anext__(self) -> ChatModelResponse:
        await self._begin()
        events = self._running.events
        while not events:
            if self._running.ended:
                raise StopAsyncIteration
            await self._go_on()
        return events.popleft()

    async def _go_on(self) -> None:
        try:
            news = self._running.news()
            await self._pump.wait(news, news.ready)
            self._running.advance()
        except BaseException as error:
            self._running.give_up(error)
            raise

    async def response(self) -> ChatModelResponse:
        """The whole, as `ChatModel.chat` gives it, when it has ended.

        Raises:
            BaseException: what ended all sessions.
        """
        await self._begin()
        if self._beginning is None:
            raise RuntimeError("this stream was closed before it began")
        while not self._running.ended:
            await self._go_on()
        return self._running.response()

    async def aclose(self) -> None:
        """Stop generating, if it still runs, or never begin; `response` keeps what there is. Idempotent."""
        self._closed = True
        await self._stop_beginning(RuntimeError("this stream was closed while it began"))
        self._running.cancel()
        with contextlib.suppress(CauserieError):  # the engine has ended
            while not self._running.ended:
                await self._go_on()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
