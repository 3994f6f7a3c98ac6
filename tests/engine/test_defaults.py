"""What an engine does if nobody chooses otherwise: exact in company, and quick where many begin at once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from causerie.engine import TokenEngine
from causerie.llama import Chooser, Chosen, Model, devices

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = list(range(1000, 1024))


def prompt(seed: int) -> list[int]:
    chosen = random.Random(seed)
    return [*PREFIX, *(chosen.randint(1000, 40000) for _ in range(10 + seed % 9))]


class Kept:
    """Keeps what was chosen, log-probabilities included: they tell of the whole row of logits."""

    def __init__(self) -> None:
        self.chosen: list[Chosen] = []

    def token(self, chosen: Chosen) -> bool:
        self.chosen.append(chosen)
        return False


def answers(engine: TokenEngine, seeds: Iterable[int], n: int = 12) -> list[list[Chosen]]:
    """All at the same moment."""
    kept = []
    running = []
    for seed in seeds:
        kept.append(Kept())
        chooser = Chooser(n_top=3)
        running.append(engine.generate(engine.sequence(), prompt(seed), chooser=chooser, max_tokens=n, sink=kept[-1]))
    engine.wait_for(running)
    assert all(generation.finish_reason in {"length", "stop"} for generation in running)
    return [each.chosen for each in kept]


@pytest.mark.skipif(any(d.kind in {"gpu", "igpu"} for d in devices()), reason="kernels of GPUs are exact in no company")
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.several_threads)])
def test_company_changes_nothing(smollm2: Model, threads: int) -> None:
    with TokenEngine(smollm2, n_ctx=512, max_resident=1, n_threads=threads) as engine:
        alone = [answers(engine, [seed])[0] for seed in range(6)]
    # Six prompts of 24 + 10 to 15 tokens are more than 64 rows, from which on the CPU's attention takes another path.
    with TokenEngine(smollm2, n_threads=threads) as engine:
        assert answers(engine, range(6)) == alone


def test_prompts_that_come_together_begin_together(smollm2: Model) -> None:
    with TokenEngine(smollm2, n_threads=1) as engine:
        generations: list[Any] = [
            engine.generate(engine.sequence(), prompt(seed), chooser=Chooser(), max_tokens=6) for seed in range(8)
        ]
        engine.wait_for(generations)
        assert engine.stats().steps <= 6 + 2  # the shared beginning, the rest of all, and then one token of each


def test_waiting_for_several_ends_with_the_last(smollm2: Model) -> None:
    with TokenEngine(smollm2, n_threads=1) as engine:
        short, long = (engine.generate(engine.sequence(), prompt(n), chooser=Chooser(), max_tokens=n) for n in (2, 9))
        engine.wait_for([short, long], lambda: short.done)
        assert not long.done
        engine.wait_for([short, long])
        assert long.done
        engine.wait_for([])
