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
from engine_oracle import Log, Program, Reference, check_slots, run_programs, watch
from lora_files import write_lora_for

from causerie.engine import Adapter, TokenEngine, as_adapters
from causerie.engine._turns import TURN, Turns
from causerie.errors import BusyError, ClosedError, ModelLoadError, NotFiniteError, StateError, UnsupportedError
from causerie.llama import Chooser, LoraAdapter, Model, Sampler

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = int(os.environ.get("CAUSERIE_ORACLE_SEEDS", "3"))
# As in test_oracle.py, with room for what ggml rounds differently when it multiplies an adapter's f32 with more rows.
KINDS = {"llama-dense": 1e-11, "gemma3-dense": 1e-9, "mamba-dense": 1e-11, "falcon-h1-dense": 1e-11}
WIDE: dict[str, Any] = {"flash_attn": "disabled", "type_k": "f32", "type_v": "f32"}


@pytest.fixture(scope="session")
def files(tiny_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters for the tiny llama."""
    folder = tmp_path_factory.mktemp("lora")
    return [write_lora_for(tiny_models["llama-dense"], folder / f"{k}.gguf", seed=k) for k in range(2)]


def ids(n: int, seed: int = 0) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randrange(3, 120) for _ in range(n)]


def endless(model: Model) -> Chooser:
    """The likeliest token that does not end a turn."""
    never = {token: float("-inf") for token in range(model.n_vocab) if model.vocab.is_eog(token)}
    return Chooser(Sampler.chain([Sampler.logit_bias(model.vocab, never), Sampler.greedy()]))


def generate(engine: TokenEngine, sequence: Any, prompt: list[int], n: int = 6) -> Any:
    generation = engine.generate(sequence, prompt, chooser=endless(engine.model), max_tokens=n)
    engine.wait(generation)
    assert generation.error is None
    return generation


# ---- right, whatever happens ----


@pytest.mark.parametrize("seed", range(2 * SEEDS))
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_memory_with_any_adapters_in_any_company(
    tiny_models: dict[str, Path], name: str, seed: int, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    paths = [write_lora_for(tiny_models[name], tmp_path / f"{k}.gguf", seed=k) for k in range(2)]
    options = {
        "n_ctx": chosen.choice([256, 300, 512]),
        "max_resident": chosen.choice([1, 2, 3, 6]),
        "n_batch": chosen.choice([48, 64, 512]),
        "n_ubatch": chosen.choice([8, 32, 48]),
        "kv_unified": chosen.random() < 0.7,
        "parking_bytes": chosen.choice([0, 3_000_000, 1 << 30]),
        "swa_full": chosen.random() < 0.7,
    }
    with Model(tiny_models[name]) as model, LoraAdapter(model, paths[0]) as a, LoraAdapter(model, paths[1]) as b:
        with watch(TokenEngine(model, n_threads=1, **options, **WIDE)) as engine:
            sets = {
                engine.load_adapters(paths[0]): [(a, 1.0)],
                engine.load_adapters([(paths[0], 0.5)]): [(a, 0.5)],
                engine.load_adapters({paths[0]: 1, paths[1]: -0.5}): [(a, 1.0), (b, -0.5)],
            }
            judges = {key: Reference(model, KINDS[name], adapters=pairs, **WIDE) for key, pairs in sets.items()}
            plain = Reference(model, KINDS[name], **WIDE)
            words = list(range(3, model.n_vocab))
            threads = chosen.choice([1, 3])
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
        engine.wait(engine.generate(sequence, ids(40), chooser=endless(model), max_tokens=1, sink=sink))
        assert len(sink.rows) == 1
        right = Reference(model, KINDS[name], adapters=[(lora, 0.5)], **WIDE)
        right.check(ids(40), sink.rows, "right")
        right.close()
        for wrong in ([], [(lora, 0.51)]):
            reference = Reference(model, KINDS[name], adapters=wrong, **WIDE)
            with pytest.raises(AssertionError, match="NMSE"):
                reference.check(ids(40), sink.rows, "wrong")
            reference.close()


# ---- caches ----


def test_what_is_evaluated_with_others_is_not_used(engine: TokenEngine, files: list[Path]) -> None:
    prompt = ids(100)
    sets: list[Any] = [(), files[0], [(files[0], 0.5)], files[1], files]
    for adapters in sets:
        assert generate(engine, engine.sequence(adapters=adapters), prompt).cached == 0
    for adapters in sets:
        assert generate(engine, engine.sequence(adapters=adapters), prompt).cached == len(prompt) - 1


def test_equal_content_and_scale_share_whatever_the_file_is_called(
    engine: TokenEngine, files: list[Path], tmp_path: Path
) -> None:
    copy = shutil.copy(files[0], tmp_path / "copy.gguf")
    generate(engine, engine.sequence(adapters=files), ids(50))
    for same in ([files[1], copy], {copy: 1, files[1]: 1.0}, [(files[0], 1), (files[1], 1)]):
        assert generate(engine, engine.sequence(adapters=same), ids(50)).cached == 49


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
    generate(engine, parent, ids(60))
    used = engine.stats().cells_used
    child = engine.fork(parent)
    assert child.adapters == parent.adapters != ()
    assert engine.stats().cells_used == used
    assert generate(engine, child, ids(60)).cached == 59


def test_other_adapters_and_back(engine: TokenEngine, files: list[Path]) -> None:
    plain = generate(engine, engine.sequence(), ids(60)).tokens
    sequence = engine.sequence(adapters=files[0])
    changed = generate(engine, sequence, ids(60))
    assert changed.tokens != plain
    engine.set_adapters(sequence, ())
    assert sequence.adapters == ()
    assert generate(engine, sequence, ids(60)).tokens == plain
    engine.set_adapters(sequence, files[0])
    again = generate(engine, sequence, ids(60))
    assert (again.tokens, again.cached) == (changed.tokens, 59)  # it was kept as a prefix
    engine.set_adapters(sequence, [(files[0], 0.0)])
    assert sequence.adapters == ()


def test_those_that_leave_the_context_come_back_right(tiny: Model, files: list[Path]) -> None:
    sets: list[Any] = [(), files[0], files[1], [(files[0], 0.5)]]
    with TokenEngine(tiny, n_ctx=128, max_resident=1, n_threads=1) as engine:
        sequences = [engine.sequence(adapters=adapters) for adapters in sets]
        prompts = [ids(40) for _ in sets]
        for _ in range(3):
            for k, sequence in enumerate(sequences):
                made = generate(engine, sequence, prompts[k], 5)
                with TokenEngine(tiny, n_ctx=128, n_threads=1) as other:
                    assert made.tokens == generate(other, other.sequence(adapters=sets[k]), prompts[k], 5).tokens
                assert len(prompts[k]) == 40 or made.cached >= len(prompts[k]) - 8
                prompts[k] = made.target + ids(3, k)
        assert engine.stats().restorations >= 8


def test_a_state_knows_its_adapters(engine: TokenEngine, tiny: Model, files: list[Path], tmp_path: Path) -> None:
    sequence = engine.sequence(adapters=[(files[0], 0.5)])
    made = generate(engine, sequence, ids(60))
    state = engine.take_state(sequence, made.target)
    assert state is not None
    assert [(a.path, a.scale) for a in state.adapters] == [(str(files[0]), 0.5)]
    with TokenEngine(tiny, n_ctx=256, n_threads=1) as other:
        put = other.put_state(state)
        assert put.adapters == sequence.adapters
        assert generate(other, put, [*made.target, 7]).cached >= len(state)
        assert generate(other, other.sequence(), [*made.target, 7]).cached == 0
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
    before = generate(engine, sequence, ids(30)).tokens
    with pytest.raises(ModelLoadError):
        engine.set_adapters(sequence, damaged)
    assert generate(engine, sequence, ids(30)).tokens == before


def test_an_activated_lora_is_refused(engine: TokenEngine, files: list[Path], tmp_path: Path) -> None:
    reader = gguf.GGUFReader(files[0])
    writer = gguf.GGUFWriter(tmp_path / "alora.gguf", "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 4.0)
    writer.add_key_value("adapter.alora.invocation_tokens", [5, 6], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedError, match="activated"):
        engine.sequence(adapters=tmp_path / "alora.gguf")


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
        want = generate(engine, engine.sequence(adapters=adapters), ids(30)).tokens
        assert generate(engine, sequence, ids(30)).tokens == want
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
            ids(20, k),
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
    alone = [generate(engine, engine.sequence(adapters=sets[k]), ids(20, k), n // 3).tokens for k in range(3)]
    assert [g.tokens for g in running] == alone


def test_one_that_finds_no_room_is_not_overtaken_for_ever(tiny: Model, files: list[Path]) -> None:
    """Small newcomers with other adapters keep coming; the one that needs all the cells has its turn."""
    with TokenEngine(tiny, n_ctx=256, max_resident=6, n_threads=1) as engine:
        engine._scheduler._turns = Turns(Clock(1))
        first = engine.generate(engine.sequence(), ids(30), chooser=endless(tiny), max_tokens=60)
        large = engine.generate(engine.sequence(adapters=files[0]), ids(200, 1), chooser=endless(tiny), max_tokens=5)
        small = [
            engine.generate(engine.sequence(adapters=files[1]), ids(30, k), chooser=endless(tiny), max_tokens=30)
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
    good = engine.generate(engine.sequence(), ids(20), chooser=Chooser(), max_tokens=20)
    bad = [
        engine.generate(engine.sequence(adapters=files[0]), ids(20, k), chooser=Chooser(), max_tokens=20)
        for k in range(2)
    ]
    engine.wait_for([good, *bad])
    assert good.error is None
    assert [type(g.error) for g in bad] == [MemoryError] * 2
    check_slots(engine, idle=True)


@pytest.mark.parametrize("flash_attn", ["auto", "disabled"])
def test_logits_that_are_not_finite_spoil_nothing_that_comes_later(
    smollm2: Model, smollm2_path: Path, tmp_path: Path, flash_attn: str
) -> None:
    """Without flash attention, NaN in one cell makes what is computed beside it NaN, even when the cell is free."""
    file = write_lora_for(smollm2_path, tmp_path / "lora.gguf", strength=0.2, rank=8, most=20)
    sets: list[Any] = [(), [(file, 0.5)], ()]
    with TokenEngine(smollm2, n_ctx=512, max_resident=6, n_threads=1, flash_attn=flash_attn) as engine:
        idle = engine.sequence()
        generate(engine, idle, ids(30))
        running = [
            engine.generate(engine.sequence(adapters=s), ids(30, k), chooser=endless(smollm2), max_tokens=20)
            for k, s in enumerate(sets)
        ]
        left = engine.sequence(adapters=[(file, 1e6)])
        for bad in (left, left, engine.sequence(adapters=[(file, 1e7)])):
            failing = engine.generate(bad, ids(20, 9), chooser=Chooser(), max_tokens=5)
            beside = [failing]
            if flash_attn != "disabled":  # it has no logits that anybody looks at, and its NaN would stay
                beside.append(engine.generate(engine.sequence(adapters=bad.adapters), ids(20, 8), chooser=None))
            engine.wait_for(beside)
            assert isinstance(failing.error, NotFiniteError)
            assert [g.error for g in beside[1:]] == [None] * (len(beside) - 1)
            check_slots(engine, idle=False)
            if flash_attn == "disabled":  # of those who were beside it, some may have failed; who comes now does not
                generate(engine, engine.sequence(), ids(40, 3))
        engine.wait_for(running)
        for generation in running:
            assert generation.error is None or flash_attn == "disabled"
            if generation.error is None:
                assert generation.n_generated == 20
                assert generation.cached + generation.evaluated == generation.n_prompt
            else:
                assert isinstance(generation.error, NotFiniteError)
        generate(engine, idle, ids(30))
        generate(engine, engine.fork(idle), ids(60))
        check_slots(engine, idle=True)


def test_a_saved_state_with_nan_is_not_used_twice(smollm2: Model) -> None:
    """Whoever it belongs to fails once, and is evaluated anew then."""
    with TokenEngine(smollm2, n_ctx=256, max_resident=2, n_threads=1, flash_attn="disabled") as engine:
        sequence = engine.sequence()
        made = generate(engine, sequence, ids(40))
        state = engine.take_state(sequence, made.target)
        assert state is not None
        spoilt = np.frombuffer(bytearray(state.data), np.uint16).copy()
        spoilt[-4000:] = 0x7E00  # NaN in f16
        for k in range(2):  # take its place
            generate(engine, engine.sequence(), ids(40, 1 + k))
        copy = engine.put_state(replace(state, data=spoilt.tobytes()))
        assert copy.parked is not None
        prompt = [*made.target, 7]
        failing = engine.generate(copy, prompt, chooser=endless(smollm2), max_tokens=10)
        engine.wait(failing)
        assert isinstance(failing.error, NotFiniteError)
        again = generate(engine, copy, prompt, 10)
        assert again.tokens == generate(engine, engine.sequence(), prompt, 10).tokens
        check_slots(engine, idle=True)


def test_none_are_changed_while_a_generation_runs(engine: TokenEngine, files: list[Path]) -> None:
    sequence = engine.sequence()
    running = engine.generate(sequence, ids(20), chooser=endless(engine.model), max_tokens=50)
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
            generate(engine, engine.sequence(adapters=files), ids(20))
            loaded = list(engine._adapters._by_fingerprint.values())
            assert len(loaded) == 2
        assert all(lora.closed for lora in loaded)
    with pytest.raises(ClosedError):
        engine.sequence(adapters=files[0])


class TestTurns:
    """Who is next."""

    @staticmethod
    def generations(*sets: int) -> list[Any]:
        class Fake:
            def __init__(self, number: int) -> None:
                self.sequence = self
                self.adapters = (Adapter("x", number, "f"),) if number else ()

        return [Fake(number) for number in sets]

    def test_one_set_needs_no_turns(self) -> None:
        active = self.generations(0, 0)
        turns = Turns()
        assert turns.groups(active) == [active]
        turns.begin(())
        assert turns.all_in(2, active)
        assert not turns.all_in(1, active)

    def test_the_longest_waiting_is_next(self) -> None:
        now = [0.0]
        active = self.generations(0, 1, 0, 2)
        turns = Turns(lambda: now[0])
        order = []
        for _ in range(6):
            group = turns.groups(active)[0]
            turns.begin(group[0].adapters)
            order.append(group[0].adapters[0].scale if group[0].adapters else 0)
            assert turns.groups(active)[0] == group  # for a while
            assert turns.all_in(len(group), active)
            now[0] += 1
            assert not turns.all_in(len(group), active)
        assert order == [0, 1, 2, 0, 1, 2]

    def test_nobody_comes_before_those_who_wait(self) -> None:
        now = [0.0]
        turns = Turns(lambda: now[0])
        waiting, *others = self.generations(1, 2, 3)
        turns.begin(waiting.adapters)
        for k in range(6):  # two that end within their turns, and come back
            active = [waiting, others[k % 2]]
            now[0] += 1
            turns.groups(active)
            group = turns.groups(active)[0]
            turns.begin(group[0].adapters)
            if group[0] is waiting and k:
                return
        pytest.fail("it never had another turn")

    def test_the_change_is_not_counted(self) -> None:
        now = [0.0]
        active = self.generations(0, 1)
        turns = Turns(lambda: now[0])
        turns.begin(active[1].adapters)
        now[0] += 10 * TURN  # the first step
        assert turns.groups(active)[0] == [active[1]]
        now[0] += 0.9 * TURN
        assert turns.all_in(1, active)
        now[0] += 0.2 * TURN
        assert turns.groups(active)[0] == [active[0]]
