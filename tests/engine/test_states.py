"""What is evaluated of a sequence goes out of an engine and into another one, and is what it was."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from engine_oracle import check_slots

from causerie.engine import SequenceState, TokenEngine
from causerie.errors import BusyError, CacheFullError, ClosedError, StateError
from causerie.llama import Chooser, Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

N = 60


def ids(n: int, seed: int = 0) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randint(10, 120) for _ in range(n)]


def generate(engine: TokenEngine, sequence: Any, prompt: list[int], n: int = 8) -> Any:
    generation = engine.generate(sequence, prompt, chooser=Chooser(), max_tokens=n)
    engine.wait(generation)
    assert generation.error is None
    return generation


@pytest.fixture
def make(tiny: Model) -> Iterator[Callable[..., TokenEngine]]:
    with ExitStack() as stack:

        def made(model: Model = tiny, **options: Any) -> TokenEngine:
            return stack.enter_context(
                TokenEngine(model, **{"n_ctx": 512, "max_resident": 4, "n_threads": 1, **options})
            )

        yield made


@pytest.mark.several_threads
@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "mamba-dense", "falcon-h1-dense", "cohere2-dense"])
def test_goes_on_as_the_original_in_another_engine(
    tiny_models: dict[str, Path], name: str, make: Callable[..., TokenEngine]
) -> None:
    with Model(tiny_models[name]) as model:
        engine, other = make(model), make(model, n_ctx=1024, max_resident=2, n_threads=2)
        sequence = engine.sequence()
        first = generate(engine, sequence, ids(N))
        state = engine.take_state(sequence, first.target)
        assert state is not None
        assert state.ids == tuple(first.target[:-1])
        generate(other, other.sequence(), ids(5, 1))  # it gets another sequence id
        restored = other.put_state(state)
        prompt = [*first.target, *ids(5, 2)]
        again = generate(other, restored, prompt)
        assert again.cached == len(state)
        assert again.tokens == generate(engine, sequence, prompt).tokens
        check_slots(other, idle=True)


def test_only_what_the_ids_begin_with_is_taken(make: Callable[..., TokenEngine]) -> None:
    engine = make()
    sequence = engine.sequence()
    generate(engine, sequence, ids(N))
    state = engine.take_state(sequence, [*ids(N)[:30], 5, 6])
    assert state is not None
    assert state.ids == tuple(ids(N)[:30])
    assert sequence.held == 30
    assert engine.take_state(sequence, ids(N, 1)) is None


def test_of_a_parked_sequence_the_parked_bytes_are_taken(make: Callable[..., TokenEngine]) -> None:
    engine = make(max_resident=1)
    sequence = engine.sequence()
    target = generate(engine, sequence, ids(N)).target
    generate(engine, engine.sequence(), ids(N, 1))
    assert sequence.slot is None
    state = engine.take_state(sequence, target)
    assert state is not None
    assert sequence.parked is not None
    assert state.data is sequence.parked.data
    assert sequence.slot is None


def test_of_a_fork_that_shares_cells_all_is_taken(make: Callable[..., TokenEngine]) -> None:
    engine = make(max_resident=2)
    parent = engine.sequence()
    target = generate(engine, parent, ids(N)).target
    children = [engine.fork(parent) for _ in range(4)]
    for child in children:
        state = engine.take_state(child, target)
        assert state is not None
        assert len(state) == len(target) - 1
    check_slots(engine, idle=True)


def test_taking_does_not_change_the_sequence(make: Callable[..., TokenEngine]) -> None:
    engine = make()
    sequence = engine.sequence()
    target = generate(engine, sequence, ids(N)).target
    engine.take_state(sequence, target)
    assert generate(engine, sequence, [*target, 5]).cached == len(target) - 1


def test_a_state_that_finds_no_place_waits_in_ram(make: Callable[..., TokenEngine]) -> None:
    engine, other = make(), make(max_resident=1)
    sequence = engine.sequence()
    target = generate(engine, sequence, ids(N)).target
    state = engine.take_state(sequence, target)
    busy = other.sequence()
    mine = generate(other, busy, ids(N, 1)).target
    restored = other.put_state(state)
    assert busy.held == len(mine) - 1
    assert restored.parked is not None
    assert generate(other, restored, [*target, 7]).cached == len(state)
    assert generate(other, busy, [*mine, 7]).cached == len(mine) - 1


def test_without_parking_somebody_leaves(make: Callable[..., TokenEngine]) -> None:
    engine = make(max_resident=1, parking_bytes=0)
    sequence = engine.sequence()
    target = generate(engine, sequence, ids(N)).target
    state = engine.take_state(sequence, target)
    restored = engine.put_state(state)
    assert (sequence.held, restored.held) == (0, len(state))


def test_a_context_that_is_too_small_is_refused(make: Callable[..., TokenEngine]) -> None:
    engine, small = make(), make(n_ctx=256)
    sequence = engine.sequence()
    target = generate(engine, sequence, ids(300)).target
    state = engine.take_state(sequence, target)
    with pytest.raises(CacheFullError, match="tokens needs"):
        small.put_state(state)
    assert small.stats().sequences == 0


@pytest.mark.parametrize("options", [{"type_k": "q8_0"}, {"kv_unified": False}, {"rope_freq_base": 5.0}])
def test_another_kind_of_cache_is_refused(make: Callable[..., TokenEngine], options: dict[str, Any]) -> None:
    engine, other = make(), make(**options)
    sequence = engine.sequence()
    state = engine.take_state(sequence, generate(engine, sequence, ids(N)).target)
    with pytest.raises(StateError) as caught:
        other.put_state(state)
    assert caught.value.expected != caught.value.found
    check_slots(other, idle=True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: SequenceState(s.ids[:-1], s.data),
        lambda s: SequenceState((*s.ids, 5), s.data),
        lambda s: SequenceState((), s.data),
        lambda s: SequenceState((1 << 20, *s.ids[1:]), s.data),
        lambda s: SequenceState((-1, *s.ids[1:]), s.data),
        lambda s: SequenceState(s.ids, bytes(s.data)[:-1]),
        lambda s: SequenceState(s.ids, b""),
    ],
)
def test_ids_and_data_that_do_not_belong_together_are_refused(
    make: Callable[..., TokenEngine], spoil: Callable[[SequenceState], SequenceState]
) -> None:
    engine = make()
    sequence = engine.sequence()
    state = engine.take_state(sequence, generate(engine, sequence, ids(N)).target)
    assert state is not None
    before = engine.stats()
    with pytest.raises(StateError):
        engine.put_state(spoil(state))
    assert engine.stats().cells_used == before.cells_used
    check_slots(engine, idle=True)


def test_a_running_sequence_is_refused_and_so_is_a_closed_engine(make: Callable[..., TokenEngine]) -> None:
    engine = make()
    sequence = engine.sequence()
    generation = engine.generate(sequence, ids(N), chooser=Chooser(), max_tokens=4)
    with pytest.raises(BusyError):
        engine.take_state(sequence, ids(N))
    engine.wait(generation)
    state = engine.take_state(sequence, ids(N))
    engine.close()
    for call in (lambda: engine.take_state(sequence, ids(N)), lambda: engine.put_state(state)):
        with pytest.raises(ClosedError):
            call()


def test_a_state_outlives_its_engine(tiny: Model, make: Callable[..., TokenEngine]) -> None:
    with TokenEngine(tiny, n_ctx=256, n_threads=1) as engine:
        sequence = engine.sequence()
        target = generate(engine, sequence, ids(N)).target
        state = engine.take_state(sequence, target)
    other = make()
    assert generate(other, other.put_state(state), [*target, 9]).cached == len(state)
