"""Runs an engine's steps for tasks of asyncio, on one thread that lives a little longer than somebody waits."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from causerie.engine import Generation

__all__ = ["Pump", "Waitable"]

_LINGER = 0.05  # seconds: a task that was given a chunk is soon back for the next one


class Waitable(Protocol):
    """Generations that are waited for together: a `Turn`, for example."""

    @property
    def generations(self) -> list[Generation]:
        """Those whose changes may be what is waited for."""

    @property
    def done(self) -> bool:
        """Whether all have ended."""

    def wait(self, ready: Callable[[], bool]) -> None:
        """Run the engine's steps until `ready()`, or the end of all."""


class _Waiting:
    """One task that waits: what for, and how it is woken."""

    def __init__(self, work: Waitable, ready: Callable[[], bool], future: asyncio.Future[None]) -> None:
        self.work = work
        self.ready = ready
        self.future = future
        self.told = False

    def news(self) -> None:
        """Something happened; called by any thread."""
        if self.ready() and not self.told:
            self.told = True
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits
                self.future.get_loop().call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """The engine cannot go on; called by any thread."""

        def tell() -> None:
            if not self.future.done():
                self.future.set_exception(error)

        with contextlib.suppress(RuntimeError):
            self.future.get_loop().call_soon_threadsafe(tell)


class Pump:
    """Lets tasks wait without blocking their event loop; they may belong to different loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._somebody = threading.Condition(self._lock)
        self._waiting: set[_Waiting] = set()
        self._thread: threading.Thread | None = None

    async def wait(self, work: Waitable, ready: Callable[[], bool]) -> None:
        """Return once `ready()`, which is cheap and called by any thread."""
        import asyncio

        if ready():
            return
        waiting = _Waiting(work, ready, asyncio.get_running_loop().create_future())
        for generation in work.generations:
            generation.listeners.append(waiting.news)
        try:
            with self._lock:
                self._waiting.add(waiting)
                self._somebody.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="causerie steps", daemon=True)
                    self._thread.start()
            waiting.news()  # it may have become ready before anybody listened
            await waiting.future
        finally:
            with self._lock:
                self._waiting.discard(waiting)
            for generation in work.generations:
                generation.listeners.remove(waiting.news)

    def _next(self) -> _Waiting | None:
        """Somebody for whom steps must be run; None, and the thread ends, if nobody comes for a while."""
        with self._lock:
            in_time = True
            while True:
                found = next((each for each in self._waiting if not (each.ready() or each.work.done)), None)
                if found is not None:
                    return found
                if not in_time:
                    self._thread = None
                    return None
                in_time = self._somebody.wait(_LINGER)

    def _nobody_waits(self) -> bool:
        return all(waiting.ready() for waiting in tuple(self._waiting))

    def _run(self) -> None:
        try:
            while (waiting := self._next()) is not None:
                work = waiting.work
                del waiting  # it is not to outlive its task
                work.wait(self._nobody_waits)
                del work
        except BaseException as error:  # noqa: BLE001 - it is raised by the tasks that wait
            with self._lock:
                self._thread = None
                everybody = tuple(self._waiting)
            for each in everybody:
                each.fail(error)
