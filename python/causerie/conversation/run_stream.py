"""The loop that calls tools: a reply, its calls, their results, the next reply, until one calls nothing."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from typing import TYPE_CHECKING, NamedTuple

from causerie.chat.tools import is_async
from causerie.conversation._call_runner import in_thread
from causerie.conversation._loop_thread import LoopThread
from causerie.conversation._surfacing import surfacing
from causerie.conversation.stream import AsyncStream, Stream
from causerie.errors import CauserieError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from typing_extensions import Self

    from causerie.conversation._call_runner import Planned
    from causerie.conversation._pump import Pump
    from causerie.conversation._replying import Replying
    from causerie.conversation._tool_run import ToolRun
    from causerie.conversation.reply import Chunk, Reply
    from causerie.conversation.turn import Turn

__all__ = ["AsyncRunStream", "RunStream", "Steps"]


class Steps(NamedTuple):
    """What a run does to its conversation.

    Attributes:
        begin: begin the first reply; from then on, the conversation is the run's.
        respond: begin a further reply.
        answer: give each open call its result.
        end: let others use the conversation again.
    """

    begin: Callable[[], Turn]
    respond: Callable[[], Turn]
    answer: Callable[[], None]
    end: Callable[[], None]


class RunStream:
    """Chunks of all replies of a run, as they come; calls run while the next chunk is waited for.

    Made by `Conversation.stream_run`; to be read by one thread. A stream that is closed, broken out of or dropped stops
    the run, as it does a `Stream`.
    """

    def __init__(self, conversation: Replying, run: ToolRun, steps: Steps) -> None:
        self._conversation = conversation
        self._run = run
        self._steps = steps
        self._loop = LoopThread()
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._stream = Stream(conversation, steps.begin())
        self._finalizer = weakref.finalize(self, _drop, steps.end, self._loop)
        self._finalizer.atexit = False

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        while self._running:
            with self._failing():
                chunk = next(self._stream, None)
                if chunk is not None:
                    return chunk
                self._go_on()
        raise StopIteration

    @property
    def reply(self) -> Reply:
        """The last reply; waits for the end of the run.

        Raises:
            ToolError: the model asks for tools once more after the last round.
            BaseException: what ended the run.
        """
        while self._running:
            with self._failing():
                self._go_on()
        if self._error is not None:
            raise self._error
        if self._reply is None:
            raise AssertionError("a run ended without a reply")
        return self._reply

    @property
    def text(self) -> str:
        """The text of the last reply; waits for the end of the run."""
        return self.reply.text

    def close(self) -> None:
        """Stop the run, if it still goes on; calls without a result get one that says so. Idempotent."""
        if self._running:
            with self._failing():
                self._run.runner.stop()
                self._stream.close()
                self._steps.answer()
                self._end(self._stream.reply, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def _running(self) -> bool:
        return self._reply is None and self._error is None

    def _end(self, reply: Reply | None, error: BaseException | None) -> None:
        self._reply, self._error = reply, error
        try:
            self._loop.close()
        finally:
            self._finalizer()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever is raised inside ends the run, and leaves no call without a result."""
        try:
            yield
        except BaseException as error:
            self._stream.turn.cancel()
            with contextlib.suppress(CauserieError):  # it is closed: there is nothing to be answered
                self._steps.answer()
            found = surfacing(error)
            self._end(None, found)
            if found is not error:
                raise found  # noqa: B904 - see there
            raise

    def _go_on(self) -> None:
        """End the reply, run its calls and begin the next one; or end the run."""
        reply = self._stream.reply
        ended: Reply | None = reply
        if reply.tool_calls:
            run = self._run
            for plan in run.begin_round(reply):
                self._ask(plan)
            if not run.cancelled:
                self._loop.run(run.runner.run(run.plans))
            self._steps.answer()
            ended = run.end_round(reply)
        if ended is None:
            self._stream = Stream(self._conversation, self._steps.respond())
        else:
            self._end(ended, None)

    def _ask(self, plan: Planned) -> None:
        if self._run.approve is not None and not self._run.cancelled:
            verdict = self._run.approve(plan.call)
            self._run.runner.decide(plan, self._loop.run(verdict) if inspect.isawaitable(verdict) else verdict)


class AsyncRunStream:
    """As `RunStream`, for asyncio. Nothing begins before it is first awaited; coroutines run on the task's loop."""

    def __init__(self, conversation: Replying, run: ToolRun, steps: Steps, pump: Pump) -> None:
        self._conversation = conversation
        self._run = run
        self._steps = steps
        self._pump = pump
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._turns: list[Turn] = []
        self._stream = self._streamed(steps.begin)
        self._finalizer = weakref.finalize(self, steps.end)
        self._finalizer.atexit = False

    def _streamed(self, begin: Callable[[], Turn]) -> AsyncStream:
        turns = self._turns

        def begun() -> Turn:
            turns[:] = [begin()]
            return turns[0]

        return AsyncStream(self._conversation, begun, self._pump)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        while self._running:
            async with self._failing():
                chunk = await anext(self._stream, None)
                if chunk is not None:
                    return chunk
                await self._go_on()
        raise StopAsyncIteration

    async def reply(self) -> Reply:
        """The last reply, when the run has ended.

        Raises:
            ToolError: the model asks for tools once more after the last round.
            BaseException: what ended the run.
        """
        while self._running:
            async with self._failing():
                await self._go_on()
        if self._error is not None:
            raise self._error
        if self._reply is None:
            raise AssertionError("a run ended without a reply")
        return self._reply

    async def aclose(self) -> None:
        """Stop the run, if it still goes on, or never begin; calls without a result get one. Idempotent."""
        if not self._running:
            return
        if not self._turns:
            await self._stream.aclose()
            self._end(None, RuntimeError("this run was closed before it began"))
            return
        async with self._failing():
            self._run.runner.stop()
            await self._stream.aclose()
            self._steps.answer()
            self._end(await self._stream.reply(), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def _running(self) -> bool:
        return self._reply is None and self._error is None

    def _end(self, reply: Reply | None, error: BaseException | None) -> None:
        self._reply, self._error = reply, error
        self._finalizer()

    @contextlib.asynccontextmanager
    async def _failing(self) -> AsyncIterator[None]:
        """Whatever is raised inside ends the run, and leaves no call without a result."""
        try:
            yield
        except BaseException as error:
            for turn in self._turns:
                turn.cancel()
            if not isinstance(error, GeneratorExit):  # nothing can be awaited then
                with contextlib.suppress(CauserieError):  # it is closed: there is nothing to be answered
                    await _in_executor(self._steps.answer)
            found = surfacing(error)
            self._end(None, found)
            if found is not error:
                raise found  # noqa: B904 - see there
            raise

    async def _go_on(self) -> None:
        """End the reply, run its calls and begin the next one; or end the run."""
        reply = await self._stream.reply()
        ended: Reply | None = reply
        if reply.tool_calls:
            run = self._run
            for plan in run.begin_round(reply):
                await self._ask(plan)
            if not run.cancelled:
                await run.runner.run(run.plans)
            self._steps.answer()
            ended = run.end_round(reply)
        if ended is None:
            self._stream = self._streamed(self._steps.respond)
        else:
            self._end(ended, None)

    async def _ask(self, plan: Planned) -> None:
        approve = self._run.approve
        if approve is not None and not self._run.cancelled:
            if is_async(approve):
                asked = approve(plan.call)
            else:
                asked = await in_thread(lambda: approve(plan.call), "causerie approve")
            self._run.runner.decide(plan, await asked if inspect.isawaitable(asked) else asked)


def _drop(end: Callable[[], None], loop: LoopThread) -> None:
    end()
    loop.abandon()


async def _in_executor(function: Callable[[], None]) -> None:
    """Call it without blocking the event loop; if this task is cancelled meanwhile, it still ends first."""
    import asyncio

    future = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
        raise
