"""An event loop on a thread of its own, for callers that have none."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

__all__ = ["LoopThread"]

T = TypeVar("T")

_GRACE = 2.0  # seconds that is waited for what was cancelled


class LoopThread:
    """Runs coroutines for one thread that waits for them. The loop begins with the first of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Awaitable[T]) -> T:
        """What an awaitable gives, with the context variables of here.

        An exception in the waiting thread (Ctrl-C) cancels it.
        """
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="causerie tools", daemon=True)
            self._thread.start()
        loop = self._loop
        ended: Future[T] = Future()
        started: list[asyncio.Task[Any]] = []

        async def wait() -> None:
            try:
                ended.set_result(await work)
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                ended.set_exception(error)

        loop.call_soon_threadsafe(lambda: started.append(loop.create_task(wait())), context=contextvars.copy_context())
        try:
            return ended.result()
        except BaseException:
            if not ended.done():
                loop.call_soon_threadsafe(_cancel, started)
                with contextlib.suppress(BaseException):
                    ended.exception(timeout=_GRACE)
            raise

    def abandon(self) -> None:
        """End it without waiting. For finalizers."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has been closed
                self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """End the loop and what still runs on it. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_GRACE)


def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_ended([*asyncio.all_tasks(loop)]))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    import asyncio

    _cancel(tasks)
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE)
