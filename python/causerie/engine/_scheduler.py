"""What goes into the next step, and what becomes of it. Everything here runs on the thread that leads the engine."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from causerie.engine._delivery import Delivery
from causerie.engine._evaluator import Evaluator
from causerie.engine._turns import TURN, Turns
from causerie.errors import CacheFullError, DecodeError, NativeError

if TYPE_CHECKING:
    import threading

    from causerie.engine._cache import Cache
    from causerie.engine._counters import Counters
    from causerie.engine._loaded_adapters import LoadedAdapters
    from causerie.engine._pace import Pace
    from causerie.engine._slots import Slot
    from causerie.engine.generation import Generation
    from causerie.llama.context import Context

__all__ = ["Scheduler"]

logger = logging.getLogger("causerie.engine")

_CANCELLED = 2  # llama_decode's code


class Scheduler(Delivery):
    """All unfinished generations, in the order they came, and the steps that bring them forward.

    A generation needs `target[len(held):]` evaluated before its next token can be chosen. One that was chosen before
    needs one token, a new one its prompt, and one that had to leave the cache whatever is not there any more: they are
    all treated alike.

    Args:
        context: evaluates.
        cache: what its memory holds.
        adapters: those that are loaded.
        pace: how many prompt tokens a step takes.
        counters: what happened, for `Engine.stats`.
        lock: held where `active` changes, and where somebody is told.
        n_ctx: tokens of the longest sequence.
    """

    def __init__(
        self,
        context: Context,
        cache: Cache,
        adapters: LoadedAdapters,
        pace: Pace,
        counters: Counters,
        lock: threading.RLock,
        n_ctx: int,
    ) -> None:
        super().__init__(context.model.vocab, cache, counters, lock, n_ctx)
        self._context = context
        self._pace = pace
        self._turns = Turns()
        self._evaluator = Evaluator(context, cache, adapters, pace, counters, lock)
        self._step = self._evaluator.step
        self.broken: BaseException | None = None  # why nothing can be evaluated any more
        self._incoming: list[Generation] = []  # under the lock: submitted since the last step
        self._together: list[tuple[Generation, Slot]] = []  # those in the last step, if it can be repeated

    @property
    def running(self) -> tuple[Generation, ...]:
        """The generations in the evaluation that runs now."""
        return self._evaluator.running

    def submit(self, generation: Generation) -> None:
        """Take in a generation, from any thread, under the lock."""
        self._incoming.append(generation)
        self._counters.prompt_tokens += generation.n_prompt
        self.hurry()

    def hurry(self) -> None:
        """Let the steps that run now end soon, as there is something else to do. From any thread."""
        self._step.hurry()

    def unfinished(self) -> list[Generation]:
        """All that have not ended."""
        with self._lock:
            self.active += self._incoming
            self._incoming.clear()
        return self.active[:]

    # ---- one step ----

    def step(self) -> None:
        """Bring every generation forward as far as one evaluation can."""
        if self._can_repeat():
            self._repeat()
            return
        self.collect()
        plan = self._plan()
        if plan:
            self._run(plan)

    def _can_repeat(self) -> bool:
        """Whether all that there is to do is the next token of those in the last step."""
        together = self._together
        if not together or self._incoming or not self._step.repeatable:
            return False
        if not self._turns.all_in(len(together), self.active):
            return False
        for generation, slot in together:
            ready = generation.finish_reason is None and not generation.cancelled and slot.owner is generation.sequence
            if not ready or len(slot.held) + 1 != len(generation.target):
                return False
        return self._cache.pool.free >= len(together)

    def collect(self) -> None:
        """End those that nobody wants any more."""
        for generation in self.unfinished():
            if generation.cancelled:
                self.finish(generation, "cancelled")

    def _plan(self) -> list[Generation]:
        """Fill the step; gives the generations in it. Empty only if there is nothing to do."""
        while self.active:
            unfinished = len(self.active)
            plan = self._next()
            if plan:
                return plan
            if len(self.active) < unfinished:
                continue  # one was ready at once, which may be what another one waited for
            if not self._yield_place():
                # Nobody can go on, and nobody is left to make room.
                self.fail(self.active[0], CacheFullError("there are too few KV cache cells for this prompt"))
        return []

    def _next(self) -> list[Generation]:
        """The step of the first that can have one: of those with the adapters whose turn it is, then of the others."""
        alone = next((g for g in self.active if g.alone and g.placed), None)
        unfinished = len(self.active)
        for candidates in self._turns.groups(self.active) if alone is None else [[alone]]:
            plan = self._fill(candidates)
            if plan:
                self._turns.begin(plan[0].sequence.adapters)
                return plan
            if len(self.active) < unfinished:
                break
        return []

    def _fill(self, candidates: list[Generation]) -> list[Generation]:
        self._step.clear()
        rows = [g for g in candidates if g.placed and self._remaining(g) == 1 and g.n_generated]
        while not self._cache.make_room(len(rows)):
            if not self._yield_place():
                return []
            rows = [g for g in rows if g.placed]
        plan = rows[:]
        for generation in rows:
            self._add(generation, 1)
        # Those that came at the same moment begin together: who has only its first token does not hold the others up.
        begun = sum(g.n_generated > 1 for g in rows)
        budget = min(self._pace.budget(len(rows) if begun else 0), self._step.room)
        mine = candidates[0].sequence.adapters
        if any(g.n_generated and g.sequence.adapters != mine for g in self.active):
            budget = min(budget, self._pace.within(TURN))
        for generation in candidates:
            if generation in rows:
                continue
            if budget <= 0:
                break
            count = self._chunk(generation, budget, reserved=len(self._step))
            if count:
                self._add(generation, count)
                plan.append(generation)
                budget -= count
        return plan

    def _chunk(self, generation: Generation, budget: int, reserved: int) -> int:
        """How many tokens of a prompt go into this step; places it first if need be."""
        if not generation.placed:
            if not self._placing.place(generation, self.active, reserved):
                return 0
            if not generation.started:
                generation.started = time.perf_counter()
                generation.cached = len(generation.slot.held)
                self._counters.cached_tokens += generation.cached
                if generation.forcing is not None:
                    self._put_in(generation, generation.forcing, generation.forcing.begin)
                    if generation.done:
                        return 0
            if self._remaining(generation) == 0:  # only asked to be evaluated, and is
                self.finish(generation, "length")
                return 0
        count = min(self._placing.stretch(generation, self._remaining(generation)), budget)
        self._cache.make_room(reserved + count)
        return max(0, min(count, self._cache.pool.free - reserved))

    def _add(self, generation: Generation, count: int) -> None:
        slot = generation.slot
        start = len(slot.held)
        ids = generation.target[start : start + count]
        last = start + count == len(generation.target)
        self._step.add(ids, start, slot.id, generation.chooser if last else None)
        slot.pending = ids

    def _remaining(self, generation: Generation) -> int:
        return len(generation.target) - len(generation.slot.held)

    def _yield_place(self) -> bool:
        """Let the youngest generation but the first leave the cache, to go on later."""
        placed = [g for g in self.active if g.placed]
        if len(placed) < 2 and (not placed or placed[0] is self.active[0]):
            return False
        youngest = placed[-1]
        self._cache.vacate(youngest.slot)
        youngest.placed = False
        self._counters.preempted += 1
        return True

    # ---- evaluation ----

    def _run(self, plan: list[Generation]) -> None:
        choosing = [g for g in plan if g.chooser is not None and self._ends_with(g)]
        rows = sum(g.n_generated > 0 for g in choosing)
        slots = [g.slot for g in plan]
        try:
            results = self._evaluator.run(plan, slots, rows)
        except BaseException as error:  # noqa: BLE001 - it is raised by those whom it concerns
            self._evaluation_failed(plan, error)
            return
        for generation in plan:
            held = min(generation.sequence.held, generation.n_prompt)
            generation.evaluated = max(generation.evaluated, held - generation.cached)
            generation.alone = False
            self._placing.evaluated(generation)
        self._deliver(choosing, results)
        for generation in plan:
            if generation.placed and generation.chooser is None and self._ends_with(generation):
                self.finish(generation, "length")
        self._together = list(zip(plan, slots, strict=True)) if self._step.repeatable else []

    def _repeat(self) -> None:
        """The next token of all, or the next few, without planning: what most steps are."""
        plan, slots = [pair[0] for pair in self._together], [pair[1] for pair in self._together]
        for generation, slot in self._together:
            slot.pending = [generation.target[-1]]
        try:
            done = self._evaluator.again(plan, slots, self._times(plan))
        except BaseException as error:  # noqa: BLE001 - as above
            self._evaluation_failed(plan, error)
            return
        for results in done:
            self._deliver(plan, results)

    def _times(self, plan: list[Generation]) -> int:
        """How many tokens each may go on by at once: so few that nobody notices, and none that would be too many.

        What is evaluated behind a token at which a reader says "enough" must be taken back, so the memory must be able
        to.
        """
        watched = any(generation.watched for generation in self.active)
        most = self._pace.times(len(plan), watched=watched) if self._cache.can_cut else 1
        if most > 1:
            most = min(most, self._cache.pool.free // len(plan))
            for generation in plan:
                most = min(most, self._n_ctx - len(generation.target))
                if generation.max_tokens is not None:
                    most = min(most, generation.max_tokens - generation.n_generated)
                if generation.ahead is not None:
                    most = min(most, generation.ahead)
        return max(1, most)

    def _ends_with(self, generation: Generation) -> bool:
        slot = generation.slot
        return len(slot.held) + len(slot.pending) == len(generation.target)

    def _beyond_repair(self, error: BaseException) -> bool:
        """Whether the context cannot be used any more."""
        return self._context.closed or (isinstance(error, NativeError) and error.aborted)

    def _evaluation_failed(self, plan: list[Generation], error: BaseException) -> None:
        """Nothing was chosen, and the slots say what the memory holds now."""
        self._together = []  # the next step is planned anew
        if not self._beyond_repair(error):
            self._leave_last(plan)
        if isinstance(error, DecodeError) and error.code == _CANCELLED:
            return  # those who were cancelled are collected by the next step, the others go on
        if isinstance(error, CacheFullError):
            self._not_enough_cells(plan, error)
            return
        if not isinstance(error, Exception):  # of a callback that the user gave the context
            for generation in plan:
                self.fail(generation, error)
            raise error
        logger.warning("an evaluation of %d sequences failed: %s", len(plan), error)
        if len(plan) == 1:
            self.fail(plan[0], error)
        else:
            self._one_by_one(plan)

    def _leave_last(self, plan: list[Generation]) -> None:
        """What was evaluated to its end, and not chosen from, has its last token evaluated again: for its logits."""
        for generation in plan:
            if generation.chooser is not None and generation.placed:
                self._cache.cut(generation.slot, len(generation.target) - 1)

    @staticmethod
    def _one_by_one(plan: list[Generation]) -> None:
        """The next steps are for one generation each: the one that fails will show itself, the others go on."""
        for generation in plan:
            generation.alone = True

    def _not_enough_cells(self, plan: list[Generation], error: CacheFullError) -> None:
        """llama.cpp found fewer cells than were counted: each round somebody leaves, or somebody is evaluated."""
        if self._cache.evict_one():
            return
        if len(plan) > 1:
            self._one_by_one(plan)
        elif not self._yield_place():
            self.fail(plan[0], error)

    # ---- ends ----

    def fail_all(self, error: BaseException) -> None:
        """End every generation with an exception, as nothing can be evaluated any more."""
        self.broken = error
        for generation in self.unfinished():
            self.fail(generation, error)
