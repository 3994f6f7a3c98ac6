"""Random programs for an engine, and the judge: each row of logits equals that of a fresh context fed the same tokens."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import CacheFullError, CauserieError
from causerie.llama import Batch, Chooser, Context, Sampler
from causerie.llama.step import Chosen, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from causerie.engine import Adapter, Generation, Sequence, TokenEngine
    from causerie.llama import LoraAdapter, Model


# How far logits may be from those of a fresh context. Random weights hardly look back: one wrong token, ten before the
# last of 60, changes the logits by an NMSE of 6e-7 or more (3e-11 in mamba). The CPU's flash attention rounds as much where cells lie in another order,
# so there is none here, and the cache is in f32.
KINDS = {
    "llama-dense": 1e-11,
    "gemma3-dense": 1e-9,  # sliding window; ggml looks GELU up in a table of f16
    "mamba-dense": 1e-12,  # recurrent
    "falcon-h1-dense": 1e-11,  # hybrid
}
WIDE: dict[str, Any] = {"flash_attn": "disabled", "type_k": "f32", "type_v": "f32"}


def small(seed: int) -> dict[str, Any]:
    """Options of an engine, small in one way or the other."""
    r = random.Random(seed)
    return {
        "n_ctx": r.choice([256, 300, 512, 1024]),
        "max_resident": r.choice([1, 2, 3, 6]),
        "n_batch": r.choice([48, 64, 512]),
        "n_ubatch": r.choice([8, 32, 48]),
        "kv_unified": r.random() < 0.7,
        "parking_bytes": r.choice([0, 3_000_000, 1 << 30]),
        "swa_full": r.random() < 0.7,
    }


def some_ids(n: int, seed: int = 0) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randrange(3, 120) for _ in range(n)]


def endless(model: Model) -> Chooser:
    """The likeliest token that does not end a turn."""
    never = {token: float("-inf") for token in range(model.n_vocab) if model.vocab.is_eog(token)}
    return Chooser(Sampler.chain([Sampler.logit_bias(model.vocab, never), Sampler.greedy()]))


def finished(engine: TokenEngine, sequence: Any, prompt: list[int], n: int = 6) -> Any:
    generation = engine.generate(sequence, prompt, chooser=endless(engine.model), max_tokens=n)
    engine.wait(generation)
    assert generation.error is None
    return generation


class SeenRow(Chosen):
    """A choice with the logits that it was made from."""

    logits: Any


class SeeingStep(Step):
    """A step that keeps, with each choice, a copy of the row."""

    def _run(self, *args: Any, **options: Any) -> list[Chosen | BaseException]:
        results = super()._run(*args, **options)
        return [self._seen(self._rows[i].index, result) for i, result in enumerate(results)]

    def _seen(self, index: int, result: Chosen | BaseException) -> Chosen | BaseException:
        if not isinstance(result, Chosen):
            return result
        seen = SeenRow(*result)
        seen.logits = np.array(self._context.logits(index))
        return seen


def watch(engine: TokenEngine) -> TokenEngine:
    """Let the engine's sinks see logits."""
    engine._scheduler._step = engine._scheduler._evaluator.step = SeeingStep(engine._context)
    return engine


@dataclass
class Log:
    """A sink that keeps all it is given."""

    rows: list[Any] = field(default_factory=list)
    stop_after: int = -1

    def token(self, chosen: Chosen) -> bool:
        self.rows.append(chosen)
        return len(self.rows) == self.stop_after


class Reference:
    """What a fresh context gives.

    Args:
        model: of the engine that is judged.
        nmse: how far two rows may be apart, as mean of squares over the mean of squares; 0.0: not a bit.
        n_ctx: tokens of the longest prompt.
        adapters: LoRA adapters to compute with.
        options: further ones of the context.
    """

    def __init__(
        self,
        model: Model,
        nmse: float = 0.0,
        n_ctx: int = 512,
        adapters: Iterable[tuple[LoraAdapter, float]] = (),
        **options: Any,
    ) -> None:
        self.nmse = nmse
        self.worst = 0.0
        self._context = Context(model, n_ctx=n_ctx, n_batch=n_ctx, n_ubatch=32, n_threads=1, **options)
        self._context.set_adapters(list(adapters))
        self._known: dict[tuple[int, ...], Any] = {}
        self._lock = threading.Lock()

    def _evaluate(self, ids: list[int], lengths: list[int]) -> None:
        self._context.memory.clear()
        batch = Batch(len(ids))
        for i, token in enumerate(ids):
            batch.add(token, i, [0], output=i + 1 in lengths)
        self._context.decode(batch)
        for length in lengths:
            self._known[tuple(ids[:length])] = self._kept(np.array(self._context.logits(length - 1)))

    def _kept(self, row: Any) -> Any:
        return row if self.nmse else hashlib.blake2b(row.tobytes(), digest_size=16).digest()

    def check(self, prompt: list[int], rows: list[Any], what: str) -> None:
        """Every row that was seen is the right one."""
        ids = prompt + [row.token for row in rows]
        with self._lock:
            lengths = [n for n in range(len(prompt), len(ids)) if tuple(ids[:n]) not in self._known]
            if lengths:
                self._evaluate(ids[: lengths[-1]], lengths)
            for n, row in zip(range(len(prompt), len(ids)), rows, strict=True):
                if not isinstance(row, SeenRow):  # of several steps in one call only the last row can be seen
                    continue
                self._compare(self._known[tuple(ids[:n])], row.logits, f"{what}: row {n - len(prompt)} behind {n} ids")

    def _compare(self, want: Any, got: Any, what: str) -> None:
        if not self.nmse:
            assert self._kept(got) == want, f"{what} differs"
            return
        error = float(np.square(got - want, dtype=np.float64).mean() / np.square(want, dtype=np.float64).mean())
        self.worst = max(self.worst, error)
        assert error <= self.nmse, f"{what}: NMSE {error}"

    def close(self) -> None:
        self._context.close()


def check_slots(engine: TokenEngine, *, idle: bool) -> None:
    """The engine's log is what the memory reports, and cells are counted right."""
    with engine._leadership.between_steps():
        engine._settle()
        cache, memory = engine._cache, engine._context.memory
        holders: dict[int, int] = {}
        for slot in cache.slots:
            assert memory.seq_pos_max(slot.id) + 1 == len(slot.held) == len(slot.cells), slot
            assert not slot.pending
            assert slot.owner is None or slot.owner.slot is slot
            if idle:
                assert not slot.busy
            for cell in slot.cells:
                holders[cell] = holders.get(cell, 0) + 1
        pool = cache.pool
        assert holders == {cell: n for cell, n in enumerate(pool._holders) if n}
        assert len(holders) + pool.free + pool.garbage == pool.size
        parking = cache.saved.parking
        assert parking.used == sum(len(p.data) for p in parking._kept) <= parking.budget
        assert parking.disk_used == sum(p.size for p in parking._on_disk) <= parking.disk_budget
        assert all(p.users > 0 and p.kept for p in (*parking._kept, *parking._on_disk))
        if idle:
            assert not engine._scheduler.unfinished()
            assert not engine._scheduler._placing._stops


@dataclass
class Actor:
    """A conversation as the engine sees it."""

    sequence: Sequence
    ids: list[int]


class Program:
    """One thread's random operations on an engine that may have others.

    Args:
        engine: watched (`watch`).
        reference: the judge.
        seed: of all choices.
        words: ids that prompts are made of.
        longest: tokens that a prompt and its answer may have together.
        most: sequences that live at the same time.
        adapted: sets of adapters that sequences may have besides none, each with its judge.
    """

    def __init__(
        self,
        engine: TokenEngine,
        reference: Reference,
        seed: int,
        words: list[int],
        longest: int,
        most: int = 12,
        adapted: Mapping[tuple[Adapter, ...], Reference] | None = None,
    ) -> None:
        self.engine = engine
        self.references = {(): reference, **(adapted or {})}
        self.random = random.Random(seed)
        self.words = words
        self.longest = min(longest, engine.n_ctx)
        self.most = most
        self.actors: list[Actor] = []
        self.history: list[str] = []
        shared = random.Random(7)  # the same for all programs: they share what their prompts begin with
        self.beginnings = [[shared.choice(words) for _ in range(n)] for n in (0, 5, 40, 70)]

    def run(self, operations: int) -> None:
        """Do so many, and judge each."""
        doing = {self.generate: 10, self.fork: 2, self.close_one: 1, self.new: 2, self.drop: 1, self.carry: 2}
        if len(self.references) > 1:
            doing[self.adapt] = 3
        try:
            for _ in range(operations):
                self.random.choices([*doing], [*doing.values()])[0]()
        except BaseException as error:
            error.add_note("after: " + "; ".join(self.history[-40:])) if hasattr(error, "add_note") else None
            raise

    def some(self, low: int, high: int) -> list[int]:
        return [self.random.choice(self.words) for _ in range(self.random.randint(low, high))]

    def new(self) -> None:
        if len(self.actors) >= self.most:
            self.close_one()
        self.actors.append(Actor(self.engine.sequence(f"s{len(self.history)}", self.some_adapters()), []))
        self.history.append("new")

    def some_adapters(self) -> tuple[Adapter, ...]:
        return self.random.choice([*self.references]) if len(self.references) > 1 else ()

    def adapt(self) -> None:
        """A sequence gets other adapters, or none."""
        if self.actors:
            actor = self.random.choice(self.actors)
            self.engine.set_adapters(actor.sequence, self.some_adapters())
            self.history.append(f"adapters {[a.scale for a in actor.sequence.adapters]}")

    def close_one(self) -> None:
        if self.actors:
            self.engine.close_sequence(self.actors.pop(self.random.randrange(len(self.actors))).sequence)
            self.history.append("close")

    def drop(self) -> None:
        """As a finalizer does."""
        if len(self.actors) > 2:
            self.engine.discard_sequence(self.actors.pop(0).sequence)
            self.history.append("drop")

    def fork(self) -> None:
        if self.actors:
            parent = self.random.choice(self.actors)
            for _ in range(self.random.randint(1, 3)):
                if len(self.actors) >= self.most:
                    self.close_one()
                self.actors.append(Actor(self.engine.fork(parent.sequence), parent.ids[:]))
            self.history.append("fork")

    def carry(self) -> None:
        """What one holds is taken out, and put in as another one."""
        if self.actors:
            actor = self.random.choice(self.actors)
            ids = actor.ids[: self.random.choice([len(actor.ids), self.random.randint(0, len(actor.ids))])]
            state = self.engine.take_state(actor.sequence, ids)
            self.history.append(f"carry {len(ids)}: {state}"[:40])
            if state is None:
                return
            assert list(state.ids) == ids[: len(state)]
            assert state.adapters == actor.sequence.adapters
            if len(self.actors) >= self.most:
                self.close_one()
            try:
                self.actors.append(Actor(self.engine.put_state(state), list(state.ids)))
            except CacheFullError:
                self.history.append("full")

    def prompt(self, actor: Actor) -> list[int]:
        """What the actor says next."""
        ids = actor.ids
        kind = self.random.choice(["extend", "extend", "rewind", "edit", "again", "restart"]) if ids else "restart"
        cut = self.random.randint(0, len(ids))
        prompt = {
            "extend": lambda: ids + self.some(1, 25),
            "rewind": lambda: ids[:cut] + self.some(0, 3),
            "edit": lambda: ids[:cut] + self.some(1, 4) + ids[cut + 2 :],
            "again": lambda: ids[:],
            "restart": lambda: self.random.choice(self.beginnings) + self.some(1, 30),
        }[kind]()
        self.history.append(f"{kind} {len(prompt)}")
        if not prompt or len(prompt) > self.longest - 20:
            prompt = prompt[: self.longest // 3] or self.some(1, 9)
        return prompt

    def chooser(self) -> Chooser | None:
        kind = self.random.randrange(8)
        if kind == 0:
            return None
        if kind < 3:
            return Chooser()
        k = self.random.choice([0, 40])
        parts = [Sampler.top_k(k)] if k else []
        return Chooser(Sampler.chain([*parts, Sampler.dist(self.random.randrange(99))]), preselect=k)

    def generate(self) -> None:
        """Several at the same time; some are cancelled while they run."""
        if not self.actors:
            self.new()
        chosen = self.random.sample(self.actors, min(len(self.actors), self.random.randint(1, 5)))
        runs: list[tuple[Actor, Generation, Log, list[int]]] = []
        for actor in chosen:
            prompt, sink = self.prompt(actor), Log(stop_after=self.random.choice([-1, -1, 1, 3]))
            room = self.longest - len(prompt)
            generation = self.engine.generate(
                actor.sequence,
                prompt,
                chooser=self.chooser(),
                sink=sink,
                max_tokens=self.random.randint(1, min(12, room)),
            )
            runs.append((actor, generation, sink, prompt))
        threads = [self.cancel_later(g) for _, g, _, _ in runs if not self.random.randrange(5)]
        self.random.shuffle(runs)
        for _, generation, _, _ in runs:
            self.engine.wait(generation)
        for thread in threads:
            thread.join()
        for actor, generation, sink, prompt in runs:
            self.judge(actor, generation, sink, prompt)

    def cancel_later(self, generation: Generation) -> threading.Thread:
        seconds = self.random.choice([0, 0.001, 0.01, 0.05])
        thread = threading.Thread(target=lambda: (time.sleep(seconds), self.engine.cancel(generation)))
        thread.start()
        self.history.append("cancel")
        return thread

    def judge(self, actor: Actor, generation: Generation, sink: Log, prompt: list[int]) -> None:
        """The generation is what it would be alone."""
        what = f"{generation} of {actor.sequence}"
        if generation.error is not None:
            raise generation.error
        assert generation.target == prompt + [row.token for row in sink.rows], what
        assert 0 <= generation.cached <= len(prompt) - (generation.chooser is not None), what
        if sink.rows:
            assert generation.cached + generation.evaluated == len(prompt), what
        self.references[actor.sequence.adapters].check(prompt, sink.rows, what)
        actor.ids = generation.target[:]


def run_programs(programs: list[Program], operations: int) -> None:
    """Each in a thread of its own; the first failure is raised."""
    failures: list[BaseException] = []

    def one(program: Program) -> None:
        try:
            program.run(operations)
        except (Exception, CauserieError) as error:
            failures.append(error)

    if len(programs) == 1:
        programs[0].run(operations)
        return
    threads = [threading.Thread(target=one, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
