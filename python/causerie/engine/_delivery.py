"""Tokens join their generations, and generations end. Everything here runs on the thread that leads the engine."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from causerie.engine._placing import Placing
from causerie.errors import NativeError, NotFiniteError
from causerie.llama.step import Chosen

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from causerie.engine._cache import Cache
    from causerie.engine._counters import Counters
    from causerie.engine.generation import FinishReason, Forcing, Generation
    from causerie.llama.vocab import Vocab

__all__ = ["Delivery"]

logger = logging.getLogger("causerie.engine")


class Delivery:
    """What becomes of the tokens that a step chose.

    Args:
        vocab: knows which tokens end a turn.
        cache: what the memory holds.
        counters: told what was done.
        lock: held where `active` changes, and where somebody is told.
        n_ctx: tokens of the longest sequence.

    Attributes:
        active: all generations that have not ended, in the order they came.
    """

    def __init__(self, vocab: Vocab, cache: Cache, counters: Counters, lock: threading.RLock, n_ctx: int) -> None:
        self._vocab = vocab
        self._cache = cache
        self._counters = counters
        self._lock = lock
        self._n_ctx = n_ctx
        self._placing = Placing(cache)
        self.active: list[Generation] = []

    def _deliver(self, choosing: list[Generation], results: list[Chosen | BaseException]) -> None:
        spoiled = False
        for generation, result in zip(choosing, results, strict=True):
            if generation.finish_reason is not None:
                continue  # it was enough before
            if isinstance(result, NotFiniteError):
                spoiled = True
                self._cache.saved.forget(generation.sequence)
            if isinstance(result, BaseException):
                self.fail(generation, result)
            else:
                self._take(generation, result)
        if spoiled:
            self._start_anew()

    def _start_anew(self) -> None:
        """All are evaluated again, in a memory without NaN."""
        self._cache.purge()
        for generation in self.active:
            self._counters.preempted += generation.placed
            generation.placed = False

    def _take(self, generation: Generation, chosen: Chosen) -> None:
        """One more token that was chosen."""
        if not generation.first_token:
            generation.first_token = time.perf_counter()
        if self._vocab.is_eog(chosen.token):
            self.finish(generation, "stop")
            return
        self._append(generation, chosen)
        forcing = generation.forcing
        if forcing is not None and not generation.done:
            self._put_in(generation, forcing, lambda: forcing.after(chosen.token))

    def _put_in(self, generation: Generation, forcing: Forcing, ids: Callable[[], tuple[int, ...]]) -> None:
        """Tokens that nobody chose; the next step evaluates them like what is left of a prompt."""
        try:
            forced = ids()
            generation.ahead = forcing.ahead
            for token in forced:
                if generation.chooser is not None:
                    generation.chooser.accept(token)
        except BaseException as error:  # noqa: BLE001 - it is raised where the generation is waited for
            self.fail(generation, error)
            return
        for token in forced:
            if not generation.done:
                self._append(generation, Chosen(token, forced=True))

    def _append(self, generation: Generation, chosen: Chosen) -> None:
        generation.target.append(chosen.token)
        self._counters.generated += 1
        enough = False
        if generation.sink is not None:
            try:
                enough = generation.sink.token(chosen)
            except BaseException as error:  # noqa: BLE001 - it is raised where the generation is waited for
                self.fail(generation, error)
                return
        if enough:
            self.finish(generation, "stop")
        elif len(generation.target) >= self._n_ctx:
            generation.context_full = True
            self.finish(generation, "length")
        elif generation.n_generated == generation.max_tokens:
            self.finish(generation, "length")
        elif generation.watched:
            self._tell(generation)

    def fail(self, generation: Generation, error: BaseException) -> None:
        """End a generation with an exception."""
        generation.error = error
        if isinstance(error, NativeError) and error.aborted:
            logger.error("llama.cpp stopped at an internal check: %s", error)
        self.finish(generation, "error")

    def finish(self, generation: Generation, reason: FinishReason) -> None:
        """End a generation; what its slot holds stays there."""
        slot = generation.sequence.slot
        if generation.placed and slot is not None:
            slot.busy = False
            slot.used = self._cache.clock
        generation.placed = False
        self._placing.forget(generation)
        if generation.chooser is not None:
            generation.chooser.close()
        generation.ended = time.perf_counter()
        with self._lock:
            self.active.remove(generation)
            generation.finish_reason = reason
        self._tell(generation)

    def _tell(self, generation: Generation) -> None:
        with self._lock:
            for news in tuple(generation.listeners):
                news()
