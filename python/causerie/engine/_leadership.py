"""Who may touch the context: of all threads that wait for tokens one leads, and runs the steps for everybody.

There is no thread of its own. A leader gives up when it has what it waited for; then a guest that wants to do something
between two steps goes first, and after it another one of those that still wait leads.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from causerie.engine._interrupts import Interrupts
from causerie.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from causerie.engine.generation import Generation

__all__ = ["Leadership", "weakly"]

# So many guests may follow each other before those who wait for tokens get a step.
_MOST_VISITS = 64
# Ctrl-C does not wake the main thread while it waits for others: it looks by itself, so often.
_LOOK_SECONDS = 0.1


class Leadership:
    """The right to touch the context, and those who wait.

    Args:
        step: one step; called by the leader, without a lock.
        interrupt: ends the running step early if nobody but the interrupted one is in it.
        hurry: lets the steps that run now end soon; called by any thread.

    Attributes:
        lock: for all that threads tell each other; held for moments only. Re-entrant, as a finalizer may run in it.
    """

    def __init__(self, step: Callable[[], None], interrupt: Callable[[], object], hurry: Callable[[], object]) -> None:
        self.lock = threading.RLock()
        self._step = step
        self._interrupt = interrupt
        self._hurry = hurry
        self._leader: int | None = None  # thread id
        self._guests = 0
        self._visits = 0  # since the last step
        self._gate = threading.Condition(self.lock)
        self._followers: dict[threading.Condition, Callable[[], bool]] = {}

    @property
    def vacant(self) -> bool:
        """Whether nobody leads now."""
        return self._leader is None

    @property
    def _mine(self) -> bool:
        return self._leader == threading.get_ident()

    def _refuse_reentry(self) -> None:
        if self._mine:
            raise BusyError("the engine is in the middle of a step: its callbacks must not call into it")

    def _interrupted(self) -> None:
        if self._mine:
            self._interrupt()

    def _guests_first(self) -> bool:
        """Whether the next one is a guest: if there is one, unless those who wait have waited for many of them."""
        return self._guests > 0 and (not self._patience_ends or all(ready() for ready in self._followers.values()))

    @property
    def _patience_ends(self) -> bool:
        return self._visits >= _MOST_VISITS

    @contextmanager
    def between_steps(self, hurry: Callable[[], object] | None = None) -> Iterator[None]:
        """Touch the context while nobody else does; ahead of those who wait for tokens. Ctrl-C waits until it is over.

        Args:
            hurry: called again and again while a step runs that shall end.

        Raises:
            BusyError: called from within a step.
        """
        with Interrupts(self._interrupted):
            self._enter(hurry)
            try:
                yield
            finally:
                with self.lock:
                    self._leader = None
                    self._visits += 1
                    self._pass_on()

    def _enter(self, hurry: Callable[[], object] | None) -> None:
        with self.lock:
            self._refuse_reentry()
            self._guests += 1
            self._hurry()
            try:
                while self._leader is not None or not self._guests_first():
                    if hurry is not None:
                        hurry()
                    self._gate.wait(None if hurry is None else 0.01)
                self._leader = threading.get_ident()
            finally:
                self._guests -= 1
                self._pass_on()

    def _pass_on(self) -> None:
        """Wake whoever comes next, if there is nobody who leads."""
        if self._leader is not None:
            return
        if self._guests_first():
            self._gate.notify()
            return
        for condition, ready in self._followers.items():
            if not ready():
                condition.notify()
                return

    def wait(self, generations: Sequence[Generation], ready: Callable[[], bool]) -> None:
        """Return once `ready()`, and lead until then whenever nobody else does.

        Args:
            generations: whose changes may make it ready.
            ready: cheap, and called by any thread.

        Raises:
            BusyError: called from within a step.
            KeyboardInterrupt: Ctrl-C, between two steps.
        """
        if ready():
            return
        with Interrupts(self._interrupted) as interrupts, self.lock:
            self._refuse_reentry()
            try:
                while not (ready() or interrupts.pending):
                    if self._leader is None and (not self._guests or self._patience_ends):
                        self._lead(ready, interrupts)
                    else:
                        self._follow(generations, ready, _LOOK_SECONDS if interrupts.installed else None)
            finally:
                self._pass_on()

    def _lead(self, ready: Callable[[], bool], interrupts: Interrupts) -> None:
        """Run steps until there is what is waited for, or a guest comes. Called and left with the lock held."""
        self._leader = threading.get_ident()
        self.lock.release()
        try:
            while not (ready() or interrupts.pending):
                self._step()
                self._visits = 0
                if self._guests:
                    break
        finally:
            self.lock.acquire()
            self._leader = None
            self._pass_on()

    def _follow(self, generations: Sequence[Generation], ready: Callable[[], bool], timeout: float | None) -> None:
        """Sleep until it is ready, or nobody leads."""
        condition = threading.Condition(self.lock)

        def news() -> None:
            if ready():
                condition.notify()

        self._followers[condition] = ready
        for generation in generations:
            generation.listeners.append(news)
        try:
            condition.wait(timeout)
        finally:
            for generation in generations:
                generation.listeners.remove(news)
            del self._followers[condition]


def weakly(method: Callable[[], object]) -> Callable[[], None]:
    """A method that does not keep its engine alive: whoever calls it does."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    return call
