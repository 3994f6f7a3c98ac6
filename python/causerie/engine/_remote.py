"""What stands in an isolated engine for scheduler, cache and context: those are in the helper process.

The parent has the truth about every generation: its tokens, and how it ended. The helper is told what to evaluate, and
may be a few tokens further; what nobody wants of them is cut from its cache by the next prompt, which names all ids.
"""

from __future__ import annotations

import logging
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from causerie.engine._helper_process import HelperProcess
from causerie.errors import ClosedError, HelperDiedError, NativeError
from causerie.llama.step import Chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from causerie.engine.generation import FinishReason, Generation
    from causerie.engine.sequence import Sequence

__all__ = ["Pending", "Remote"]

_POLL = 0.05  # seconds: so long a step waits for news, before it looks whether anything else is to be done
_LEASE_EVERY = 0.1


class Pending:
    """An answer that is waited for."""

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.listeners: list[Callable[[], None]] = []


class Remote:
    """The helper process, and what runs there.

    `submit`, `ask` and `start` may be called by any thread, the rest by whoever leads the engine.

    Args:
        options: what the helper's engine is made with.
        lock: the engine's.

    Attributes:
        broken: what keeps the engine from ever being used again: nothing does, as another helper can be started.
        running: generations that can be stopped in the middle of a step: none from here.
        closed: whether it was closed.
    """

    broken: BaseException | None = None
    running: tuple[Generation, ...] = ()

    def __init__(self, options: Mapping[str, Any], lock: threading.RLock) -> None:
        self._options = options
        self._lock = lock
        self._starting = threading.Lock()
        self._helper: HelperProcess | None = None
        self._lives = 0
        self._leased = 0.0
        self._spoiled = False
        self._active: dict[int, Generation] = {}
        self._unwatched: set[int] = set()  # of which the helper knows it
        self._asked: dict[int, Pending] = {}
        self._requests = count()
        self._places: WeakKeyDictionary[Sequence, tuple[int, int]] = WeakKeyDictionary()
        self._death = HelperDiedError("this engine has no helper process")
        self.closed = False

    # ---- the process ----

    def start(self) -> dict[str, Any]:
        """See to it that there is a helper; what it told about itself.

        Raises:
            Exception: its engine cannot be opened.
        """
        with self._starting:
            if self._helper is None:
                helper = HelperProcess(self._options)
                with self._lock:
                    if self.closed:  # meanwhile
                        helper.stop()
                        raise ClosedError("this engine is closed")
                    self._helper, self._leased = helper, 0.0
                    self._lives += 1
                return helper.hello
            return self._helper.hello

    @property
    def pid(self) -> int | None:
        """The helper's process id; None: there is none now."""
        helper = self._helper
        return None if helper is None else helper.pid

    @property
    def lost(self) -> bool:
        """Whether the helper has ended, or shall, and no step has noticed yet."""
        helper = self._helper
        return helper is not None and (self._spoiled or helper.ended)

    def close(self) -> None:
        """Let the helper end."""
        with self._lock:
            self.closed = True
            helper, self._helper = self._helper, None
        if helper is not None:
            helper.stop()
        self._answer_all(ClosedError("the engine was closed while this was asked"))

    def cancel(self) -> None:
        """Nothing to do: a step from here is only waiting for news."""

    def _send(self, *message: Any) -> None:
        """Send; if the helper is gone, the next step finds out."""
        helper = self._helper
        if helper is not None:
            try:
                helper.wire.send(*message)
            except OSError:
                return

    def _bury(self, helper: HelperProcess) -> None:
        """The helper is gone: so is all that was to come from it."""
        flying = len(self._active)
        death = helper.death(f"{flying} {'reply was' if flying == 1 else 'replies were'} in flight")
        self._helper = None
        helper.stop()
        logging.getLogger("causerie.engine").warning("%s", death)
        self._end_all(death)

    def _end_all(self, death: HelperDiedError) -> None:
        self._death = death
        for generation in self.unfinished():
            self.fail(generation, _another(death))
        self._answer_all(_another(death))

    def _answer_all(self, error: BaseException) -> None:
        with self._lock:
            asked, self._asked = self._asked, {}
        for pending in asked.values():
            self._answer(pending, None, error)

    # ---- sequences ----

    def place(self, sequence: Sequence) -> int:
        """The number by which this helper knows a sequence."""
        with self._lock:
            life, number = self._places.get(sequence, (0, 0))
            if life != self._lives:
                number = next(self._requests)
                self._places[sequence] = self._lives, number
            return number

    def holds(self, sequence: Sequence) -> bool:
        """Whether this helper knows the sequence."""
        return self._helper is not None and self._places.get(sequence, (0, 0))[0] == self._lives

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Share what the helper's engine holds of a sequence."""
        if self.holds(parent):
            self._send("fork", self.place(parent), self.place(child))

    def leave(self, sequence: Sequence) -> None:
        """Nothing to do: the helper is told of other adapters with the next prompt."""

    def forget(self, sequence: Sequence) -> None:
        """Give up a sequence."""
        if self.holds(sequence):
            self._send("close_sequence", self._places.pop(sequence)[1])

    # ---- generations ----

    def unfinished(self) -> list[Generation]:
        """Those that have not ended."""
        with self._lock:
            return list(self._active.values())

    def submit(self, generation: Generation) -> None:
        """Let the helper generate. Called with the lock held.

        Raises:
            Exception: the recipe of its chooser cannot be sent.
        """
        self._active[generation.number] = generation
        sequence = generation.sequence
        try:
            self._send(
                "generate", generation.number, self.place(sequence), sequence.name, sequence.adapters,
                generation.target, generation.chooser, generation.max_tokens, generation.forcing,
            )  # fmt: skip
        except BaseException as error:
            self.fail(generation, error)
            raise

    def hurry(self) -> None:
        """Nothing runs here that one would have to wait for."""

    def collect(self) -> None:
        """End what was cancelled, and tell the helper what nobody reads along any more."""
        for generation in self.unfinished():
            if generation.cancelled:
                self._send("cancel", generation.number)
                self.finish(generation, "cancelled")
            elif not generation.watched and generation.number not in self._unwatched:
                self._unwatched.add(generation.number)
                self._send("unwatch", generation.number)

    def step(self) -> None:
        """Wait a moment for news, and take them in."""
        helper = self._helper
        if helper is None:  # it died before it was told of what is waited for
            self._end_all(self._death)
            return
        now = time.monotonic()
        try:
            if now - self._leased > _LEASE_EVERY:
                self._leased = now
                helper.wire.send("lease")
            messages = helper.wire.receive(_POLL)
        except (EOFError, OSError):
            self._bury(helper)
            return
        for name, *arguments in messages:
            getattr(self, f"_on_{name}")(*arguments)
        if self._spoiled:
            self._spoiled = False
            helper.kill()
            self._bury(helper)

    def _on_begun(self, number: int, cached: int, queued: float) -> None:
        generation = self._active.get(number)
        if generation is not None and not generation.started:
            generation.started = generation.submitted + queued
            generation.cached, generation.evaluated = cached, generation.n_prompt - cached

    def _on_token(self, number: int, chosen: tuple[Any, ...]) -> None:
        generation = self._active.get(number)
        if generation is None or generation.cancelled:
            return
        generation.first_token = generation.first_token or time.perf_counter()
        token = Chosen(*chosen)
        generation.target.append(token.token)
        try:
            enough = generation.sink is not None and generation.sink.token(token)
        except BaseException as error:  # noqa: BLE001 - it is raised where the generation is waited for
            self._send("cancel", number)
            self.fail(generation, error)
            return
        if enough:
            self._send("cancel", number)
            self.finish(generation, "stop")
        elif generation.watched:
            self._tell(generation.listeners)

    def _on_ended(self, number: int, reason: FinishReason, error: BaseException | None, full: bool) -> None:
        generation = self._active.get(number)
        if generation is not None:
            generation.error, generation.context_full = error, full
            self.finish(generation, reason)
        # Behind a failed check its engine refuses all work: another helper's does not.
        self._spoiled = self._spoiled or (isinstance(error, NativeError) and error.aborted)

    @staticmethod
    def _on_log(name: str, level: int, text: str) -> None:
        logging.getLogger(name).log(level, "%s", text)

    def fail(self, generation: Generation, error: BaseException) -> None:
        """End a generation with an exception."""
        generation.error = error
        self.finish(generation, "error")

    def finish(self, generation: Generation, reason: FinishReason) -> None:
        """End a generation."""
        generation.ended = time.perf_counter()
        with self._lock:
            self._active.pop(generation.number, None)
            self._unwatched.discard(generation.number)
            generation.finish_reason = reason
        self._tell(generation.listeners)

    def _tell(self, listeners: list[Callable[[], None]]) -> None:
        with self._lock:
            for news in tuple(listeners):
                news()

    # ---- questions ----

    def ask(self, name: str, *arguments: Any) -> Pending:
        """Ask the helper's engine; the answer comes with a step."""
        pending = Pending()
        with self._lock:
            number = next(self._requests)
            self._asked[number] = pending
        self._send("call", number, name, arguments)
        return pending

    def _on_answer(self, number: int, value: Any, error: BaseException | None) -> None:
        pending = self._asked.pop(number, None)
        if pending is not None:
            self._answer(pending, value, error)

    def _answer(self, pending: Pending, value: Any, error: BaseException | None) -> None:
        with self._lock:
            pending.value, pending.error, pending.done = value, error, True
        self._tell(pending.listeners)


def _another(death: HelperDiedError) -> HelperDiedError:
    """The same again: each is raised in a thread of its own."""
    return HelperDiedError(str(death), exit_code=death.exit_code, log=death.log)
