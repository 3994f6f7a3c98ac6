"""Tokens that nobody chose: they go where they belong, and everything behind them is what a replay gives."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from engine_oracle import check_slots

from causerie.engine import TokenEngine
from causerie.errors import GrammarError
from causerie.llama import Chooser, Model, Sampler

if TYPE_CHECKING:
    from pathlib import Path

    from causerie.engine import Generation
    from causerie.llama.step import Chosen


class Each:
    """Puts in these ids at the beginning, and behind every so many chosen tokens."""

    def __init__(self, ids: tuple[int, ...], every: int, begin: tuple[int, ...] = ()) -> None:
        self.ids, self.every, self.first = ids, every, begin
        self.heard: list[int] = []

    @property
    def ahead(self) -> int | None:
        return self.every - len(self.heard) % self.every

    def begin(self) -> tuple[int, ...]:
        return self.first

    def after(self, token: int) -> tuple[int, ...]:
        self.heard.append(token)
        return () if len(self.heard) % self.every else self.ids


class Listening:
    def __init__(self) -> None:
        self.said: list[Chosen] = []

    def token(self, chosen: Chosen) -> bool:
        self.said.append(chosen)
        return False


def prompt(seed: int, n: int = 20) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randint(10, 120) for _ in range(n)]


def replayed(model: Model, ids: list[int], forcing: Each, n: int) -> list[int]:
    """Each chosen token by itself, in an engine that knows nothing of forcing."""
    ids = [*ids, *forcing.first]
    chosen: list[int] = []
    out = list(forcing.first)
    with TokenEngine(model, n_ctx=1024, max_resident=1, n_threads=1, parking_bytes=0) as engine:
        sequence = engine.sequence()
        while len(out) < n:
            generation = engine.generate(sequence, ids, chooser=Chooser(), max_tokens=1)
            engine.wait(generation)
            if not generation.tokens:
                break
            chosen.append(generation.tokens[0])
            more = [generation.tokens[0], *(() if len(chosen) % forcing.every else forcing.ids)]
            ids, out = [*ids, *more], [*out, *more]
    return out[:n]


def run(engine: TokenEngine, ids: list[int], n: int, **options: Any) -> Any:
    generation = engine.generate(engine.sequence(), ids, **{"chooser": Chooser(), "max_tokens": n, **options})
    engine.wait(generation)
    return generation


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "mamba-dense", "jamba-dense"])
def test_a_replay_gives_the_same(tiny_models: dict[str, Path], name: str) -> None:
    with Model(tiny_models[name]) as model, TokenEngine(model, n_ctx=512, max_resident=3, n_threads=1) as engine:
        for every in (1, 2, 3, 7):
            cases = [(prompt(k), Each((5, 6, 7), every, (8, 9) if k % 2 else ()), 25 + k) for k in range(5)]
            with ThreadPoolExecutor(5) as pool:  # more than have room
                got = list(pool.map(lambda case: run(engine, case[0], case[2], forcing=case[1]).tokens, cases))
            assert got == [replayed(model, ids, Each(f.ids, f.every, f.first), n) for ids, f, n in cases]
        check_slots(engine, idle=True)


def test_the_sink_is_told_which_they_are(engine: TokenEngine) -> None:
    sink, forcing = Listening(), Each((5, 6), 2, (7,))
    generation = run(engine, prompt(1), 9, forcing=forcing, sink=sink)
    assert [chosen.token for chosen in sink.said] == generation.tokens
    assert [chosen.forced for chosen in sink.said] == [True, False, False, True, True, False, False, True, True]
    assert forcing.heard == [chosen.token for chosen in sink.said if not chosen.forced]


def test_several_tokens_in_one_go_end_before_one_is_put_in(engine: TokenEngine) -> None:
    plain = run(engine, prompt(2), 40)
    assert engine.stats().steps
    never = run(engine, prompt(2), 40, forcing=Each((), 1000))
    assert never.tokens == plain.tokens


@pytest.mark.parametrize("where", ["begin", "after", "ahead"])
def test_an_exception_ends_this_one_alone(engine: TokenEngine, where: str) -> None:
    class Failing(Each):
        def fail(self, *_: object) -> tuple[int, ...]:
            raise ZeroDivisionError("its own")

    forcing: Any = Failing((), 1000)
    if where == "ahead":
        type(forcing).ahead = property(forcing.fail)
    else:
        setattr(forcing, where, forcing.fail)
    failing = engine.generate(engine.sequence(), prompt(3), chooser=Chooser(), max_tokens=60, forcing=forcing)
    other = engine.generate(engine.sequence(), prompt(4), chooser=Chooser(), max_tokens=60)
    engine.wait_for((failing, other))
    assert isinstance(failing.error, ZeroDivisionError)
    assert (other.error, len(other.tokens)) == (None, 60)


@pytest.mark.parametrize("times", [1, 1000])
def test_a_step_that_fails_before_it_begins_is_not_tried_for_ever(
    engine: TokenEngine, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    expected = [run(engine, prompt(k), 20).tokens for k in (5, 6)]
    count = engine._scheduler._times
    left = times

    def failing(plan: list[Generation]) -> int:
        nonlocal left
        left -= 1
        if left >= 0:
            raise MemoryError
        return count(plan)

    monkeypatch.setattr(engine._scheduler, "_times", failing)
    both = [engine.generate(engine.sequence(), prompt(k), chooser=Chooser(), max_tokens=20) for k in (5, 6)]
    engine.wait_for(both)
    for generation, tokens in zip(both, expected, strict=True):
        assert generation.tokens == tokens or (times > 1 and isinstance(generation.error, MemoryError))
    monkeypatch.undo()
    assert run(engine, prompt(5), 20).tokens == expected[0]
    check_slots(engine, idle=True)


def test_what_the_grammar_refuses_ends_it(smollm2: Model) -> None:
    with TokenEngine(smollm2, n_ctx=256) as engine:
        ids = smollm2.vocab.tokenize("Yes or no?").tolist()
        no = smollm2.vocab.tokenize("no", add_special=False).tolist()
        grammar = Sampler.grammar(smollm2.vocab, 'root ::= "yes" "yes"')
        generation = run(engine, ids, 9, chooser=Chooser(grammar=grammar), forcing=Each((), 99, tuple(no)))
        assert isinstance(generation.error, GrammarError)
        grammar = Sampler.grammar(smollm2.vocab, 'root ::= "no, " "yes"')
        generation = run(engine, ids, 9, chooser=Chooser(grammar=grammar), forcing=Each((), 99, tuple(no)))
        assert smollm2.vocab.detokenize(generation.tokens) == "no, yes"
