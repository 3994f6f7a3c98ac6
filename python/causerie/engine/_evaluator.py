"""Runs the steps, and keeps what the slots say true whatever becomes of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from causerie.llama.step import Chosen, Step

if TYPE_CHECKING:
    import threading

    from causerie.engine._cache import Cache
    from causerie.engine._counters import Counters
    from causerie.engine._loaded_adapters import LoadedAdapters
    from causerie.engine._pace import Pace
    from causerie.engine._slots import Slot
    from causerie.engine.generation import Generation
    from causerie.llama.context import Context

    Results: TypeAlias = list[Chosen | BaseException]

__all__ = ["Evaluator"]


class Evaluator:
    """Used by whoever leads the engine. Each slot's `pending` says what of it is in the step.

    Args:
        context: evaluates.
        cache: what its memory holds.
        adapters: attached to the context as the plan has them.
        pace: told how long steps take.
        counters: told what was done.
        lock: held where `running` is set.

    Attributes:
        step: what goes into the next evaluation.
        running: the generations in the evaluation that runs now.
    """

    def __init__(
        self,
        context: Context,
        cache: Cache,
        adapters: LoadedAdapters,
        pace: Pace,
        counters: Counters,
        lock: threading.RLock,
    ) -> None:
        self.step = Step(context)
        self.running: tuple[Generation, ...] = ()
        self._cache = cache
        self._adapters = adapters
        self._pace = pace
        self._counters = counters
        self._lock = lock

    def run(self, plan: list[Generation], slots: list[Slot], rows: int) -> Results:
        """Run the step.

        Args:
            plan: the generations in it, all with the same adapters.
            slots: theirs.
            rows: how many of them continue an answer.

        Raises:
            BaseException: it failed; the slots say what the memory holds now.
        """
        begun = self._begin(plan)
        try:
            changed = self._adapters.attach(plan[0].sequence.adapters)
            results = self.step.run()
            for slot in slots:
                self._cache.commit(slot)
        except BaseException:
            self._reconcile(slots)
            raise
        finally:
            self.running = ()
        self._measure(rows, len(self.step), time.perf_counter() - begun, usual=not changed)
        return results

    def again(self, plan: list[Generation], slots: list[Slot], times: int) -> list[Results]:
        """Run the step once more, or several times, for the tokens that it chose.

        Raises:
            BaseException: as `run`; no step was done.
        """
        begun = self._begin(plan)
        try:
            done = self.step.run_again(times)
            for k in range(len(done)):
                for i, slot in enumerate(slots):
                    if k:
                        chosen = done[k - 1][i]
                        slot.pending = [chosen.token] if isinstance(chosen, Chosen) else []
                    self._cache.commit(slot)
        except BaseException:
            self._reconcile(slots)
            raise
        finally:
            self.running = ()
        seconds = (time.perf_counter() - begun) / len(done)
        for _ in done:
            self._measure(len(plan), len(plan), seconds)
        return done

    def _begin(self, plan: list[Generation]) -> float:
        with self._lock:
            self.running = tuple(plan)
        return time.perf_counter()

    def _reconcile(self, slots: list[Slot]) -> None:
        for slot in slots:
            if slot.pending:
                self._cache.reconcile(slot)

    def _measure(self, rows: int, tokens: int, seconds: float, *, usual: bool = True) -> None:
        if usual:  # where adapters were changed, llama.cpp had more to do than to evaluate
            self._pace.measured(rows, tokens - rows, seconds)
        self._counters.step(rows=rows, tokens=tokens, seconds=seconds)
