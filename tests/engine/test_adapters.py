"""LoRA adapters of sequences: each is evaluated with its own, whatever runs beside it, and caches never mix."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from engine_oracle import (
    KINDS,
    WIDE,
    Log,
    Program,
    Reference,
    check_slots,
    endless,
    finished,
    run_programs,
    small,
    some_ids,
    watch,
)
from lora_files import write_lora_for

from causerie.engine import Adapter, TokenEngine, as_adapters
from causerie.engine._turns import TURN, Turns
from causerie.errors import BusyError, ClosedError, ModelLoadError, StateError, UnsupportedError
from causerie.llama import Chooser, LoraAdapter, Model

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = int(os.environ.get("CAUSERIE_ORACLE_SEEDS", "3"))
# ggml multiplies an adapter's f32 differently with one row and with several.
LIMITS = {**KINDS, "mamba-dense": 1e-11}


@pytest.fixture(scope="session")
def files(tiny_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters for the tiny llama."""
    folder = tmp_path_factory.mktemp("lora")
    return [write_lora_for(tiny_models["llama-dense"], folder / f"{k}.gguf", seed=k) for k in range(2)]


# ---- right, whatever happens ----


@pytest.mark.parametrize("seed", range(2 * SEEDS))
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_memory_with_any_adapters_in_any_company(
    tiny_models: dict[str, Path], name: str, seed: int, tmp_path: Path
) -> None:
    paths = [write_lora_for(tiny_models[name], tmp_path / f"{k}.gguf", seed=k) for k in range(2)]
    with Model(tiny_models[name]) as model, LoraAdapter(model, paths[0]) as a, LoraAdapter(model, paths[1]) as b:
        with watch(TokenEngine(model, n_threads=1, **small(seed), **WIDE)) as engine:
            sets = {
                engine.load_adapters(paths[0]): [(a, 1.0)],
                engine.load_adapters([(paths[0], 0.5)]): [(a, 0.5)],
                engine.load_adapters({paths[0]: 1, paths[1]: -0.5}): [(a, 1.0), (b, -0.5)],
            }
            judges = {key: Reference(model, LIMITS[name], adapters=pairs, **WIDE) for key, pairs in sets.items()}
            plain = Reference(model, LIMITS[name], **WIDE)
            words = list(range(3, model.n_vocab))
            threads = random.Random(seed).choice([1, 3])
            programs = [
                Program(engine, plain, seed * 10 + i, words, longest=150, adapted=judges) for i in range(threads)
            ]
            run_programs(programs, 24 // threads)
            check_slots(engine, idle=True)
        for judge in (plain, *judges.values()):
            judge.close()


@pytest.mark.parametrize("name", KINDS)
def test_the_judge_tells_adapters_apart(tiny_models: dict[str, Path], name: str, tmp_path: Path) -> None:
    path = write_lora_for(tiny_models[name], tmp_path / "lora.gguf")
    with (
        Model(tiny_models[name]) as model,
        LoraAdapter(model, path) as lora,
        watch(TokenEngine(model, n_ctx=256, n_threads=1, **WIDE)) as engine,
    ):
        sequence, sink = engine.sequence(adapters=[(path, 0.5)]), Log()
        engine.wait(engine.generate(sequence, some_ids(40), chooser=endless(model), max_tokens=1, sink=sink))
        assert len(sink.rows) == 1
        right = Reference(model, LIMITS[name], adapters=[(lora, 0.5)], **WIDE)
        right.check(some_ids(40), sink.rows, "right")
        right.close()
        for wrong in ([], [(lora, 0.51)]):
            reference = Reference(model, LIMITS[name], adapters=wrong, **WIDE)
            with pytest.raises(AssertionError, match="NMSE"):
                reference.check(some_ids(40), sink.rows, "wrong")
            reference.close()


# ---- caches ----


def test_what_is_evaluated_with_others_is_not_used(engine: TokenEngine, files: list[Path]) -> None:
    prompt = some_ids(100)
    sets: list[Any] = [(), files[0], [(files[0], 0.5)], files[1], files]
    for adapters in sets:
        assert finished(engine, engine.sequence(adapters=adapters), prompt).cached == 0
    for adapters in sets:
        assert finished(engine, engine.sequence(adapters=adapters), prompt).cached == len(prompt) - 1


def test_equal_content_and_scale_share_whatever_the_file_is_called(
    engine: TokenEngine, files: list[Path], tmp_path: Path
) -> None:
    copy = shutil.copy(files[0], tmp_path / "copy.gguf")
    finished(engine, engine.sequence(adapters=files), some_ids(50))
    for same in ([files[1], copy], {copy: 1, files[1]: 1.0}, [(files[0], 1), (files[1], 1)]):
        assert finished(engine, engine.sequence(adapters=same), some_ids(50)).cached == 49


def test_one_number_makes_another_adapter(engine: TokenEngine, tiny_models: dict[str, Path], tmp_path: Path) -> None:
    path, other = write_lora_for(tiny_models["llama-dense"], tmp_path / "a.gguf", most=40), tmp_path / "b.gguf"
    tensors = gguf.GGUFReader(path).tensors
    for tensor in tensors:
        data = bytearray(path.read_bytes())
        data[int(tensor.data_offset) + 4] ^= 1
        other.write_bytes(data)
        one, two = engine.load_adapters(path), engine.load_adapters(other)
        assert one != two, tensor.name


def test_a_fork_has_the_adapters_and_the_cells(engine: TokenEngine, files: list[Path]) -> None:
    parent = engine.sequence(adapters=files[0])
    finished(engine, parent, some_ids(60))
    used = engine.stats().cells_used
    child = engine.fork(parent)
    assert child.adapters == parent.adapters != ()
    assert engine.stats().cells_used == used
    assert finished(engine, child, some_ids(60)).cached == 59


def test_other_adapters_and_back(engine: TokenEngine, files: list[Path]) -> None:
    plain = finished(engine, engine.sequence(), some_ids(60)).tokens
    sequence = engine.sequence(adapters=files[0])
    changed = finished(engine, sequence, some_ids(60))
    assert changed.tokens != plain
    engine.set_adapters(sequence, ())
    assert sequence.adapters == ()
    assert finished(engine, sequence, some_ids(60)).tokens == plain
    engine.set_adapters(sequence, files[0])
    again = finished(engine, sequence, some_ids(60))
    assert (again.tokens, again.cached) == (changed.tokens, 59)  # it was kept as a prefix
    engine.set_adapters(sequence, [(files[0], 0.0)])
    assert sequence.adapters == ()


def test_those_that_leave_the_context_come_back_right(tiny: Model, files: list[Path]) -> None:
    sets: list[Any] = [(), files[0], files[1], [(files[0], 0.5)]]
    with TokenEngine(tiny, n_ctx=128, max_resident=1, n_threads=1) as engine:
        sequences = [engine.sequence(adapters=adapters) for adapters in sets]
        prompts = [some_ids(40) for _ in sets]
        for _ in range(3):
            for k, sequence in enumerate(sequences):
                made = finished(engine, sequence, prompts[k], 5)
                with TokenEngine(tiny, n_ctx=128, n_threads=1) as other:
                    assert made.tokens == finished(other, other.sequence(adapters=sets[k]), prompts[k], 5).tokens
                assert len(prompts[k]) == 40 or made.cached >= len(prompts[k]) - 8
                prompts[k] = made.target + some_ids(3, k)
        assert engine.stats().restorations >= 8


def test_a_state_knows_its_adapters(engine: TokenEngine, tiny: Model, files: list[Path], tmp_path: Path) -> None:
    sequence = engine.sequence(adapters=[(files[0], 0.5)])
    made = finished(engine, sequence, some_ids(60))
    state = engine.take_state(sequence, made.target)
    assert state is not None
    assert [(a.path, a.scale) for a in state.adapters] == [(str(files[0]), 0.5)]
    with TokenEngine(tiny, n_ctx=256, n_threads=1) as other:
        put = other.put_state(state)
        assert put.adapters == sequence.adapters
        assert finished(other, put, [*made.target, 7]).cached >= len(state)
        assert finished(other, other.sequence(), [*made.target, 7]).cached == 0
    engine.set_adapters(sequence, ())
    assert engine.take_state(sequence, made.target) is None
    moved = tuple(replace(a, path=str(tmp_path / "none.gguf")) for a in state.adapters)
    with TokenEngine(tiny, n_ctx=256, n_threads=1) as other, pytest.raises(ModelLoadError, match=r"none\.gguf"):
        other.put_state(replace(state, adapters=moved))
    assert engine.put_state(replace(state, adapters=moved)).adapters[0].path == str(files[0])  # it is loaded there


# ---- files ----


def test_a_file_that_cannot_be_used_is_refused_when_the_sequence_is_made(
    engine: TokenEngine, files: list[Path], tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(files[0].read_bytes()[:-100])
    empty = tmp_path / "empty.gguf"
    empty.touch()
    other = write_lora_for(tiny_models["gemma3-dense"], tmp_path / "other.gguf")
    for bad in (damaged, empty, other, tiny_models["llama-dense"], tmp_path / "missing.gguf", [files[0], damaged]):
        with pytest.raises(ModelLoadError):
            engine.sequence(adapters=bad)
    assert engine.stats().sequences == 0
    sequence = engine.sequence(adapters=files[0])
    before = finished(engine, sequence, some_ids(30)).tokens
    with pytest.raises(ModelLoadError):
        engine.set_adapters(sequence, damaged)
    assert finished(engine, sequence, some_ids(30)).tokens == before


def test_an_activated_lora_is_refused(engine: TokenEngine, tiny_models: dict[str, Path], tmp_path: Path) -> None:
    file = write_lora_for(tiny_models["llama-dense"], tmp_path / "alora.gguf", invocation=[5, 6])
    with pytest.raises(UnsupportedError, match="activated"):
        engine.sequence(adapters=file)


def test_a_file_that_is_replaced_is_another_adapter(engine: TokenEngine, files: list[Path], tmp_path: Path) -> None:
    path, new = tmp_path / "style.gguf", tmp_path / "new.gguf"
    for source, target in ((files[0], path), (files[1], new)):
        shutil.copy(source, target)
        os.utime(target, ns=(1, 1))
    first = engine.sequence(adapters=path)
    new.replace(path)
    second = engine.sequence(adapters=path)
    assert first.adapters != second.adapters == engine.sequence(adapters=files[1]).adapters
    for adapters, sequence in ((files[0], first), (files[1], second)):
        want = finished(engine, engine.sequence(adapters=adapters), some_ids(30)).tokens
        assert finished(engine, sequence, some_ids(30)).tokens == want
    unknown = Adapter(str(path), fingerprint="0" * 32)
    with pytest.raises(StateError) as caught:
        engine.sequence(adapters=unknown)
    assert caught.value.expected == "0" * 32
    assert caught.value.found == second.adapters[0].fingerprint


def test_ways_to_name_them(files: list[Path]) -> None:
    a, b = (str(path) for path in files)
    named = [(each.path, each.scale) for each in as_adapters([files[0], (b, 2)])]
    assert named == [(a, 1.0), (b, 2.0)]
    assert [(each.path, each.scale) for each in as_adapters({files[0]: 0.5})] == [(a, 0.5)]
    assert [each.path for each in as_adapters(Adapter(a))] == [a]
    assert as_adapters([(a, np.float32(0.5))])[0].scale == 0.5
    assert as_adapters(None) == as_adapters(()) == as_adapters([]) == as_adapters({}) == ()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (5, TypeError),
        ([5], TypeError),
        (("a.gguf", 0.5), TypeError),
        (b"a.gguf", TypeError),
        ([(b"a.gguf", 0.5)], TypeError),
        ([("a.gguf", "0.5")], TypeError),
        ([("a.gguf", True)], TypeError),
        ([("a.gguf", 1.0, 2)], TypeError),
        ({"a.gguf": float("nan")}, ValueError),
        ({"a.gguf": 1e39}, ValueError),
        ({"a.gguf": 10**400}, ValueError),
        ({b"a.gguf": 1.0}, TypeError),
    ],
)
def test_what_names_none(engine: TokenEngine, bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        engine.sequence(adapters=bad)


def test_the_same_one_twice(engine: TokenEngine, files: list[Path]) -> None:
    with pytest.raises(ValueError, match="add up"):
        engine.sequence(adapters=[files[0], (files[0], 0.5)])


# ---- together ----


class Clock:
    """Tells a later time whenever it is asked: so many times are one turn."""

    def __init__(self, times: int) -> None:
        self.now = 0.0
        self.tick = TURN / times

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_sets_take_turns(engine: TokenEngine, files: list[Path]) -> None:
    """Nobody waits until the others are done."""
    engine._scheduler._turns = Turns(Clock(10))
    seen: list[int] = []

    class Notes:
        def __init__(self, number: int) -> None:
            self.number = number

        def token(self, chosen: Any) -> bool:
            seen.append(self.number)
            return False

    sets: list[Any] = [(), files[0], files[1]]
    n = 1200
    running = [
        engine.generate(
            engine.sequence(adapters=sets[k]),
            some_ids(20, k),
            chooser=endless(engine.model),
            max_tokens=n // 3,
            sink=Notes(k),
        )
        for k in range(3)
    ]
    engine.wait_for(running)
    assert [g.error for g in running] == [None] * 3
    assert len(seen) == n
    for k in range(3):
        assert seen.index(k) < n / 6
    assert len(list(itertools.groupby(seen))) < n / 2  # and each has several tokens in its turn
    alone = [finished(engine, engine.sequence(adapters=sets[k]), some_ids(20, k), n // 3).tokens for k in range(3)]
    assert [g.tokens for g in running] == alone


def test_one_that_finds_no_room_is_not_overtaken_for_ever(tiny: Model, files: list[Path]) -> None:
    """Small newcomers with other adapters keep coming; the one that needs all the cells has its turn."""
    with TokenEngine(tiny, n_ctx=256, max_resident=6, n_threads=1) as engine:
        engine._scheduler._turns = Turns(Clock(1))
        first = engine.generate(engine.sequence(), some_ids(30), chooser=endless(tiny), max_tokens=60)
        large = engine.generate(
            engine.sequence(adapters=files[0]), some_ids(200, 1), chooser=endless(tiny), max_tokens=5
        )
        small = [
            engine.generate(engine.sequence(adapters=files[1]), some_ids(30, k), chooser=endless(tiny), max_tokens=30)
            for k in range(8)
        ]
        engine.wait(large)
        assert first.done
        assert not any(generation.done for generation in small)
        engine.wait_for(small)
        assert all(g.error is None for g in (first, large, *small))


def test_a_failure_is_that_of_its_own(engine: TokenEngine, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    attach = engine._adapters.attach

    def failing(adapters: tuple[Adapter, ...]) -> bool:
        if adapters:
            raise MemoryError("no room for it")
        return attach(adapters)

    monkeypatch.setattr(engine._adapters, "attach", failing)
    good = engine.generate(engine.sequence(), some_ids(20), chooser=Chooser(), max_tokens=20)
    bad = [
        engine.generate(engine.sequence(adapters=files[0]), some_ids(20, k), chooser=Chooser(), max_tokens=20)
        for k in range(2)
    ]
    engine.wait_for([good, *bad])
    assert good.error is None
    assert [type(g.error) for g in bad] == [MemoryError] * 2
    check_slots(engine, idle=True)


def test_none_are_changed_while_a_generation_runs(engine: TokenEngine, files: list[Path]) -> None:
    sequence = engine.sequence()
    running = engine.generate(sequence, some_ids(20), chooser=endless(engine.model), max_tokens=50)
    with pytest.raises(BusyError):
        engine.set_adapters(sequence, files[0])
    engine.cancel(running)
    engine.set_adapters(sequence, files[0])
    assert len(sequence.adapters) == 1
    engine.close_sequence(sequence)
    with pytest.raises(ClosedError):
        engine.set_adapters(sequence, ())


def test_nothing_is_left_when_the_engine_is_closed(tiny: Model, files: list[Path]) -> None:
    for _ in range(3):
        with TokenEngine(tiny, n_ctx=256, n_threads=1) as engine:
            finished(engine, engine.sequence(adapters=files), some_ids(20))
            loaded = list(engine._adapters._by_fingerprint.values())
            assert len(loaded) == 2
        assert all(lora.closed for lora in loaded)
    with pytest.raises(ClosedError):
        engine.sequence(adapters=files[0])
