"""The helper process of an isolated engine: owns the engine, does what it is told, and tells what comes out.

Three threads. The first reads messages and never waits for anything else, so that the other process can always send.
A second one does what they ask, in their order. A third one leads the engine, as long as the other process says every
now and then that somebody there waits.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from causerie.engine._helper_process import connected
from causerie.engine.engine import TokenEngine
from causerie.errors import CauserieError

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.engine._wire import Wire
    from causerie.engine.adapters import Adapter
    from causerie.engine.generation import Generation
    from causerie.engine.sequence import Sequence
    from causerie.engine.sequence_state import SequenceState
    from causerie.llama.step import Chosen

__all__ = ["main"]

LEASE = 0.5
"""Seconds that the engine goes on for nobody, before it rests."""


class _Forward:
    """Sends the tokens of the generation that runs in a sequence, and before the first one how its prompt was found."""

    def __init__(self, wire: Wire, number: int, sequence: Sequence) -> None:
        self._wire = wire
        self._number = number
        self._sequence = sequence
        self._begun = False

    def token(self, chosen: Chosen) -> bool:
        generation = self._sequence.generation
        if not self._begun and generation is not None:
            self._begun = True
            self._wire.send("begun", self._number, generation.cached, generation.started - generation.submitted)
        self._wire.send("token", self._number, tuple(chosen))
        return False


class _Log(logging.Handler):
    """Hands log records to the other process."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._wire.send("log", record.name, record.levelno, record.getMessage())


class Helper:
    """What the messages of an `IsolatedTokenEngine` ask for."""

    def __init__(self, wire: Wire, engine: TokenEngine) -> None:
        self._wire = wire
        self._engine = engine
        self._sequences: dict[int, Sequence] = {}
        self._running: dict[int, Generation] = {}
        self._tasks: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._wake = threading.Condition()
        self._until = 0.0
        self._ended = False

    def run(self) -> None:
        """Work until the other process is gone."""
        threads = [threading.Thread(target=_fatal, args=(part,), daemon=True) for part in (self._work, self._lead)]
        for thread in threads:
            thread.start()
        try:
            while True:
                for message in self._wire.receive():
                    if message[0] == "lease":
                        self._extend()
                    else:
                        self._tasks.put(message)
        except EOFError:
            with self._wake:
                self._ended = True
                self._wake.notify_all()
            self._tasks.put(None)
            for thread in threads:
                thread.join()

    # ---- the thread that leads ----

    def _extend(self) -> None:
        with self._wake:
            self._until = time.monotonic() + LEASE
            self._wake.notify_all()

    def _may_rest(self) -> bool:
        return self._ended or time.monotonic() > self._until

    def _lead(self) -> None:
        while not self._ended:
            with self._wake:
                running = list(self._running.items())
                if not running or self._may_rest():
                    self._wake.wait(LEASE)
                    continue
            self._wait([generation for _, generation in running])
            for number, generation in running:
                if generation.done:
                    self._tell_end(number, generation)

    def _wait(self, generations: list[Generation]) -> None:
        self._engine.wait_for(generations, lambda: self._may_rest() or any(g.done for g in generations))

    def _tell_end(self, number: int, generation: Generation) -> None:
        with self._wake:
            del self._running[number]
        queued = (generation.started or generation.ended) - generation.submitted
        with suppress(OSError):
            self._wire.send("begun", number, generation.cached, queued)
            self._wire.send(
                "ended", number, generation.finish_reason, _portable(generation.error), generation.context_full
            )

    # ---- the thread that does what is asked ----

    def _work(self) -> None:
        while (message := self._tasks.get()) is not None:
            name, *arguments = message
            with suppress(OSError):
                getattr(self, f"do_{name}")(*arguments)

    def _sequence(self, number: int, name: str, adapters: tuple[Adapter, ...]) -> Sequence:
        sequence = self._sequences.get(number)
        if sequence is None:
            sequence = self._sequences[number] = self._engine.sequence(name, adapters)
        elif sequence.adapters != adapters:
            self._engine.set_adapters(sequence, adapters)
        return sequence

    def do_generate(
        self,
        number: int,
        sequence: int,
        name: str,
        adapters: tuple[Adapter, ...],
        ids: list[int],
        recipe: Any,
        most: int | None,
        limit: Any,
    ) -> None:
        """Start a generation; its tokens and its end are told."""
        try:
            place = self._sequence(sequence, name, adapters)
            chooser = None if recipe is None else recipe.make(self._engine.model, ids)
            forcing = None if limit is None else limit.make(self._engine.model)
            forward = _Forward(self._wire, number, place)
            generation = self._engine.generate(
                place, ids, chooser=chooser, max_tokens=most, sink=forward, forcing=forcing
            )
        except BaseException as error:  # noqa: BLE001 - it belongs to this generation
            self._wire.send("ended", number, "error", _portable(error), False)
            return
        with self._wake:
            self._running[number] = generation
            self._wake.notify_all()

    def do_cancel(self, number: int) -> None:
        """End a generation."""
        generation = self._running.get(number)
        if generation is not None:
            self._engine.cancel(generation)

    def do_unwatch(self, number: int) -> None:
        """Nobody reads along any more."""
        generation = self._running.get(number)
        if generation is not None:
            generation.watched = False

    def do_fork(self, parent: int, child: int) -> None:
        """Share what a sequence holds; where that is impossible, the other one begins empty."""
        with suppress(CauserieError, KeyError):
            self._sequences[child] = self._engine.fork(self._sequences[parent])

    def do_close_sequence(self, number: int) -> None:
        """Forget a sequence."""
        sequence = self._sequences.pop(number, None)
        if sequence is not None:
            self._engine.close_sequence(sequence)

    def do_call(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        """What the other process waits for the answer of."""
        try:
            answer, error = getattr(self, f"answer_{name}")(*arguments), None
        except BaseException as caught:  # noqa: BLE001 - it is raised where the answer is waited for
            answer, error = None, _portable(caught)
        self._wire.send("answer", number, answer, error)

    def answer_stats(self) -> Any:
        """`TokenEngine.stats`."""
        return self._engine.stats()

    def answer_cache_map(self) -> Any:
        """`TokenEngine.cache_map`."""
        return self._engine.cache_map()

    def answer_load_adapters(self, adapters: tuple[Adapter, ...]) -> tuple[Adapter, ...]:
        """`TokenEngine.load_adapters`."""
        return self._engine.load_adapters(adapters)

    def answer_take_state(
        self, sequence: int, name: str, adapters: tuple[Adapter, ...], ids: list[int]
    ) -> SequenceState | None:
        """`TokenEngine.take_state`, with data that can be sent."""
        state = self._engine.take_state(self._sequence(sequence, name, adapters), ids)
        return None if state is None else replace(state, data=bytes(state.data), lasting=True)

    def answer_put_state(self, sequence: int, state: SequenceState, name: str) -> None:
        """`TokenEngine.put_state`."""
        self._sequences[sequence] = self._engine.put_state(state, name)


def _portable(error: BaseException | None) -> BaseException | None:
    """An exception that the other process can read."""
    if error is None:
        return None
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - of its own classes, anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _fatal(work: Callable[[], object]) -> None:
    """Run a part of the helper that the others cannot do without: if it fails, the process ends, which is noticed."""
    try:
        work()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main(argument: str) -> None:
    """Run the helper; the argument tells how to reach the other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the other process, which tells
    wire = connected(argument)
    _fatal(lambda: _serve(wire))
    os._exit(0)  # a driver's threads, or another machine's silence, must not keep it


def _serve(wire: Wire) -> None:
    ((_, options, level),) = wire.receive()
    logger = logging.getLogger("causerie")
    logger.setLevel(level)
    logger.addHandler(_Log(wire))
    try:
        engine = TokenEngine(**options)
    except BaseException as error:  # noqa: BLE001 - raised in the other process
        with suppress(OSError):
            wire.send("failed", _portable(error))
        return
    with engine, suppress(OSError):
        wire.send("hello", {"n_ctx": engine.n_ctx})
        Helper(wire, engine).run()
