"""Whatever happened before and whatever else runs, a sequence gets the logits that it would get alone."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_oracle import KINDS, WIDE, Log, Program, Reference, check_slots, run_programs, small, watch

from causerie.engine import TokenEngine
from causerie.llama import Chooser, Model, Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = int(os.environ.get("CAUSERIE_ORACLE_SEEDS", "3"))


def judge(
    model: Model, reference: Reference, seed: int, words: list[int], operations: int, longest: int, **more: str
) -> None:
    chosen = small(seed)
    with tempfile.TemporaryDirectory() as folder:
        if seed % 2:
            chosen = {**chosen, "parking_bytes": 200_000, "parking_folder": folder, "parking_disk_bytes": 3_000_000}
        _judge(TokenEngine(model, n_threads=1, **chosen, **more), reference, seed, words, operations, longest)  # type: ignore[arg-type]
        assert not list(Path(folder).iterdir())


def _judge(
    engine: TokenEngine, reference: Reference, seed: int, words: list[int], operations: int, longest: int
) -> None:
    with watch(engine):
        threads = random.Random(seed).choice([1, 3])
        programs = [Program(engine, reference, seed * 10 + i, words, longest) for i in range(threads)]
        run_programs(programs, operations // threads)
        check_slots(engine, idle=True)


@pytest.fixture(scope="module")
def exact(smollm2: Model) -> Iterator[Reference]:
    reference = Reference(smollm2)
    yield reference
    reference.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_smollm2_gives_the_same_to_the_last_bit(smollm2: Model, exact: Reference, seed: int) -> None:
    judge(smollm2, exact, seed, list(range(1000, 1400)), operations=9, longest=110)


@pytest.mark.parametrize("seed", range(2 * SEEDS))
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_memory(tiny_models: dict[str, Path], name: str, seed: int) -> None:
    with Model(tiny_models[name]) as model:
        reference = Reference(model, KINDS[name], **WIDE)
        judge(model, reference, seed, list(range(3, model.n_vocab)), operations=18, longest=150, **WIDE)
        reference.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_far_too_few_cells(tiny: Model, seed: int) -> None:
    reference = Reference(tiny, 1e-11, **WIDE)
    with watch(TokenEngine(tiny, n_ctx=256, max_resident=9, n_batch=64, n_ubatch=32, n_threads=1, **WIDE)) as engine:
        words = list(range(3, tiny.n_vocab))
        run_programs([Program(engine, reference, seed * 10 + i, words, longest=250) for i in range(4)], 8)
        check_slots(engine, idle=True)
        assert engine.stats().compactions
    reference.close()


@pytest.mark.parametrize("name", KINDS)
def test_the_judge_notices_one_wrong_token(tiny_models: dict[str, Path], name: str) -> None:
    with (
        Model(tiny_models[name]) as model,
        watch(TokenEngine(model, n_ctx=256, n_batch=32, n_threads=1, **WIDE)) as engine,
    ):
        reference = Reference(model, KINDS[name], **WIDE)
        program = Program(engine, reference, 1, list(range(3, model.n_vocab)), 100)
        program.new()
        seen = Log(stop_after=1)
        prompt = program.some(60, 60)
        never = {token: float("-inf") for token in range(model.n_vocab) if model.vocab.is_eog(token)}
        chooser = Chooser(Sampler.chain([Sampler.logit_bias(model.vocab, never), Sampler.greedy()]))
        engine.wait(engine.generate(program.actors[0].sequence, prompt, chooser=chooser, sink=seen))
        reference.check(prompt, seen.rows, "right")
        with pytest.raises(AssertionError, match="NMSE"):
            reference.check([*prompt[:50], prompt[50] % 50 + 10, *prompt[51:]], seen.rows, "wrong")
        reference.close()
