"""Runs the calls of one reply: several at a time, each within its time, and one answer for each of them."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.chat.tool_result import error_text, result_text
from causerie.conversation._surfacing import surfacing
from causerie.errors import ToolError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from causerie.chat.tool_call import ToolCall
    from causerie.chat.tools import Tool, ToolBox

__all__ = ["CANCELLED", "CallRunner", "Outcome", "Planned"]

CANCELLED = error_text("this call was cancelled")
_NOT_STARTED = error_text("this call was not run, because another one failed")
_GRACE = 1.0  # seconds that a coroutine has to end once it was cancelled


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to.

    Attributes:
        text: for the model.
        error: what went wrong, if something did.
    """

    text: str
    error: BaseException | None = None


@dataclass(slots=True)
class Planned:
    """A call that is to be run, or whose outcome is known already."""

    call: ToolCall
    tool: Tool | None = None
    outcome: Outcome | None = None
    task: asyncio.Task[Outcome] | None = None
    in_thread: bool = False

    def refuse(self, reason: str) -> None:
        """Do not run it."""
        self.outcome = Outcome(error_text(reason))


class CallRunner:
    """Runs calls on an event loop: coroutines there, functions in threads of their own.

    Threads that are given up, because their time is over, end with the process at the latest.

    Args:
        box: the tools.
        parallel: most calls that run at the same time.
        timeout: seconds for each call, from its start; None: no limit.
        fail_fast: whether to start no further calls once one has failed.
    """

    def __init__(self, box: ToolBox, *, parallel: int, timeout: float | None, fail_fast: bool) -> None:
        self._box = box
        self._parallel = parallel
        self._timeout = timeout
        self._fail_fast = fail_fast
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: list[Planned] = []
        self._failed = False
        self.stopped = False

    def plan(self, calls: Sequence[ToolCall]) -> list[Planned]:
        """The calls, those that cannot be run with the reason."""
        plans = []
        for call in calls:
            plan = Planned(call)
            try:
                plan.tool = self._box[call.name]
                plan.tool.check(call.arguments)
            except ToolError as error:
                plan.outcome = Outcome(error_text(error), error)
            plans.append(plan)
        return plans

    @staticmethod
    def decide(plan: Planned, verdict: object) -> None:
        """Take what somebody who was asked says: True: run it; False, or a text with the reason: do not.

        Raises:
            TypeError: it is none of them.
        """
        if isinstance(verdict, str):
            plan.refuse(f"this call was refused: {verdict}")
        elif not isinstance(verdict, bool):
            raise TypeError(f"approve must give True, False or the reason as a str, not {type(verdict).__name__}")
        elif not verdict:
            plan.refuse("this call was refused")

    def stop(self) -> None:
        """Start no further calls and cancel coroutines; functions that run go on to their end. From any thread."""
        self.stopped = True
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has been closed
                loop.call_soon_threadsafe(self._cancel_coroutines)

    def _cancel_coroutines(self) -> None:
        for plan in self._running:
            if plan.task is not None and not plan.in_thread:
                plan.task.cancel()

    async def run(self, plans: Sequence[Planned]) -> None:
        """Run them; each has an outcome afterwards, and as soon as it is known.

        Raises:
            asyncio.CancelledError: this was cancelled; functions that run are left alone.
        """
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._failed = self._fail_fast and any(plan.outcome is not None and plan.outcome.error for plan in plans)
        slots = asyncio.Semaphore(self._parallel)
        tasks = [asyncio.ensure_future(self._run(plan, slots)) for plan in plans if plan.outcome is None]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_GRACE)
            raise
        finally:
            self._loop = None

    async def _run(self, plan: Planned, slots: asyncio.Semaphore) -> None:
        async with slots:
            if self.stopped or self._failed:
                plan.outcome = Outcome(CANCELLED if self.stopped else _NOT_STARTED)
                return
            plan.outcome = await self._outcome(plan)
            if plan.outcome.error is not None and self._fail_fast:
                self._failed = True

    async def _outcome(self, plan: Planned) -> Outcome:
        import asyncio

        task = plan.task = asyncio.ensure_future(self._called(plan))
        self._running.append(plan)
        try:
            await asyncio.wait({task}, timeout=self._timeout)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_GRACE)
                late = ToolError(
                    f"{plan.call.name} gave no result within {self._timeout:g} s", tool=plan.call.name, call=plan.call
                )
                return Outcome(error_text(late), late)
            if not task.cancelled():
                return task.result()
            if self.stopped:
                return Outcome(CANCELLED)
            gone = ToolError(f"{plan.call.name} was cancelled", tool=plan.call.name, call=plan.call)
            return Outcome(error_text(gone), gone)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._running.remove(plan)

    async def _called(self, plan: Planned) -> Outcome:
        import asyncio

        tool = plan.tool
        assert tool is not None  # noqa: S101 - a call without a tool has an outcome
        try:
            if tool.is_async:
                value = await tool.call(plan.call.arguments)
            else:
                plan.in_thread = True
                value, error = await outcome_in_thread(
                    lambda: tool.call(plan.call.arguments), f"causerie tool {tool.name}"
                )
                plan.in_thread = False
                if error is not None:
                    return self._failed_with(plan, error)
                if inspect.iscoroutine(value) and self.stopped:
                    value.close()
                    return Outcome(CANCELLED)
                if inspect.isawaitable(value):
                    value = await value
            return Outcome(result_text(value))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - told to the model, or raised by whoever waits for all of them
            return self._failed_with(plan, error)

    @staticmethod
    def _failed_with(plan: Planned, error: BaseException) -> Outcome:
        import asyncio

        if isinstance(error, asyncio.CancelledError):  # of a function: this task was not cancelled
            error = ToolError(f"{plan.call.name} was cancelled", tool=plan.call.name, call=plan.call)
        return Outcome(error_text(error), surfacing(error))


async def in_thread(function: Callable[[], Any], name: str) -> Any:
    """What a function gives that runs in a thread of its own; it raises what that raises (no StopIteration)."""
    value, error = await outcome_in_thread(function, name)
    if error is not None:
        raise error
    return value


async def outcome_in_thread(function: Callable[[], Any], name: str) -> tuple[Any, BaseException | None]:
    """What a function gives, or raises, that runs in a thread of its own with the context variables of here.

    A task that is cancelled meanwhile no longer waits for it.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((value, error))

    def work() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as caught:  # noqa: BLE001 - raised where it is waited for
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name=name, daemon=True).start()
    return await future
