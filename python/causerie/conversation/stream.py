"""Reading a reply while it comes: as an iterator, or as an asynchronous one."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from causerie.conversation._pump import Pump
    from causerie.conversation._replying import Replying
    from causerie.conversation.reply import Chunk, Reply
    from causerie.conversation.turn import Turn

__all__ = ["AsyncStream", "Stream"]


class Stream:
    """Chunks of one reply, as they come. Made by `Conversation.stream` and its kin; to be read by one thread.

    A stream that is closed, broken out of or dropped stops the generation within a step, and what was generated until
    then stays in the history. `with` closes it at the end of its block.

    Attributes:
        turn: what is read, for those who wait for several streams at once.
    """

    def __init__(self, conversation: Replying, turn: Turn) -> None:
        self._conversation = conversation
        self.turn = turn
        self._finalizer = _abandon_with(self, turn)

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        turn = self.turn
        while True:
            done = turn.done  # asked first: what comes with the end is read before
            if (chunk := turn.next_chunk()) is not None:
                return chunk
            if done:
                self._finalizer.detach()
                self._conversation.finish(turn)
                raise StopIteration
            try:
                turn.wait(turn.ready)
            except BaseException:
                turn.cancel()
                raise

    @property
    def reply(self) -> Reply:
        """The whole reply; waits for its end.

        Raises:
            BaseException: what ended the generation.
        """
        reply = self._conversation.finish(self.turn)
        self._finalizer.detach()
        return reply

    @property
    def text(self) -> str:
        """The whole text; waits for its end."""
        return self.reply.text

    def close(self) -> None:
        """Stop generating, if it still runs, and keep what there is. Idempotent."""
        turn = self.turn
        turn.cancel()
        turn.wait()
        self._conversation.settle(turn)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream:
    """As `Stream`, for asyncio: ``async for chunk in chat.astream(...)``. Nothing begins before it is first awaited.

    A task that is cancelled while it waits here stops the generation; ``aclose()``, or ``async with``, does too.
    """

    def __init__(self, conversation: Replying, begin: Callable[[], Turn], pump: Pump) -> None:
        self._conversation = conversation
        self._begin: Callable[[], Turn] | None = begin
        self._pump = pump
        self._turn: Turn | None = None
        self._finalizer: weakref.finalize[[], Stream | AsyncStream] | None = None
        self._closed = False

    async def _begun(self) -> Turn:
        if self._turn is None:
            if self._begin is None or self._closed:
                raise RuntimeError("this stream was closed, or is being started by another task")
            begin, self._begin = self._begin, None
            self._turn = turn = await _in_executor(begin)
            self._finalizer = _abandon_with(self, turn)
            if self._closed:
                turn.cancel()
        return self._turn

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        if self._closed and self._turn is None:
            raise StopAsyncIteration
        turn = await self._begun()
        while True:
            done = turn.done  # asked first, as above
            if (chunk := turn.next_chunk()) is not None:
                return chunk
            if done:
                self._finish(turn)
                raise StopAsyncIteration
            await self._wait(turn, turn.ready)

    async def _wait(self, turn: Turn, ready: Callable[[], bool]) -> None:
        try:
            await self._pump.wait(turn, ready)
        except BaseException:
            turn.cancel()
            raise

    def _finish(self, turn: Turn) -> Reply:
        if self._finalizer is not None:
            self._finalizer.detach()
        return self._conversation.finish(turn)

    async def reply(self) -> Reply:
        """The whole reply, when it has ended.

        Raises:
            BaseException: what ended the generation.
        """
        turn = await self._begun()
        turn.unwatch()
        while not turn.done:
            await self._wait(turn, lambda: turn.done)
        return self._finish(turn)

    async def aclose(self) -> None:
        """Stop generating, if it still runs, and keep what there is; or never begin. Idempotent."""
        self._closed = True
        turn = self._turn
        if turn is None:
            return
        turn.cancel()
        while not turn.done:
            await self._pump.wait(turn, lambda: turn.done)
        self._conversation.settle(turn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _abandon_with(stream: Stream | AsyncStream, turn: Turn) -> weakref.finalize[[], Stream | AsyncStream]:
    """End a turn with the stream that reads it. Not at exit: nobody would run the step that does it."""
    finalizer = weakref.finalize(stream, turn.abandon)
    finalizer.atexit = False
    return finalizer


async def _in_executor(begin: Callable[[], Turn]) -> Turn:
    """Begin a turn without blocking the event loop; a task that is cancelled meanwhile leaves nothing running."""
    import asyncio

    future = asyncio.get_running_loop().run_in_executor(None, begin)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_cancel_begun)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])  # so that the conversation can be used at once
        raise


def _cancel_begun(future: asyncio.Future[Turn]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().cancel()
