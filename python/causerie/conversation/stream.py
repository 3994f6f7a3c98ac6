"""Reading a reply while it comes: as an iterator, or as an asynchronous one."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from causerie.conversation._pump import Pump
    from causerie.conversation.reply import Chunk, Reply
    from causerie.conversation.turn import Turn

__all__ = ["AsyncStream", "Stream"]


class Stream:
    """Chunks of one reply, as they come. Made by `Conversation.stream` and its kin; to be read by one thread.

    A stream that is closed, broken out of or dropped stops the generation within a step, and what was generated until
    then stays in the history. `with` closes it at the end of its block.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._finalizer = weakref.finalize(self, turn.abandon)
        self._finalizer.atexit = False

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        turn = self._turn
        while True:
            if (chunk := turn.next_chunk()) is not None:
                return chunk
            if turn.done:
                self._finalizer.detach()
                turn.finish()
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
        self._turn.wait()
        self._finalizer.detach()
        return self._turn.finish()

    @property
    def text(self) -> str:
        """The whole text; waits for its end."""
        return self.reply.text

    def close(self) -> None:
        """Stop generating, if it still runs, and keep what there is. Idempotent."""
        self._finalizer.detach()
        if not self._turn.committed:
            self._turn.cancel()
            self._turn.wait()
            self._turn.settle()

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

    def __init__(self, start: Callable[[], Awaitable[Turn]], pump: Pump) -> None:
        self._start: Callable[[], Awaitable[Turn]] | None = start
        self._pump = pump
        self._turn: Turn | None = None
        self._finalizer: weakref.finalize[[], AsyncStream] | None = None

    async def _begun(self) -> Turn:
        if self._turn is None:
            if self._start is None:
                raise RuntimeError("this stream is being started by another task, or was closed")
            start, self._start = self._start, None
            self._turn = await start()
            self._finalizer = weakref.finalize(self, self._turn.abandon)
            self._finalizer.atexit = False
        return self._turn

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        turn = await self._begun()
        while True:
            if (chunk := turn.next_chunk()) is not None:
                return chunk
            if turn.done:
                self._detach()
                turn.finish()
                raise StopAsyncIteration
            await self._wait(turn, turn.ready)

    async def _wait(self, turn: Turn, ready: Callable[[], bool]) -> None:
        try:
            await self._pump.wait(turn, ready)
        except BaseException:
            turn.cancel()
            raise

    def _detach(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()

    async def reply(self) -> Reply:
        """The whole reply, when it has ended.

        Raises:
            BaseException: what ended the generation.
        """
        turn = await self._begun()
        while not turn.done:
            await self._wait(turn, lambda: turn.done)
        self._detach()
        return turn.finish()

    async def aclose(self) -> None:
        """Stop generating, if it still runs, and keep what there is. Idempotent."""
        self._start = None
        turn = self._turn
        if turn is None or turn.committed:
            return
        self._detach()
        turn.cancel()
        while not turn.done:
            await self._pump.wait(turn, lambda: turn.done)
        turn.settle()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
