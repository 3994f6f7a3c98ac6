"""Samplers written in Python: what they see, what they may answer, and what their exceptions do."""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
import weakref

import numpy as np
import pytest

from causerie.errors import BusyError, ClosedError, GrammarError
from causerie.llama import Batch
from causerie.llama._callbacks import CustomSampler
from causerie.llama.sampler import Candidates, Sampler

ROW = np.array([1.0, 3.0, -2.0, 0.5, 2.0], np.float32)


@pytest.fixture
def ready(context):
    """A context with logits."""
    batch = Batch(16)
    batch.add_sequence(context.model.vocab.tokenize("The capital of France is"), 0, 0)
    context.decode(batch)
    return context


def test_the_function_sees_the_row_and_changes_it_in_place():
    seen = []

    def only_two(candidates):
        seen.append(candidates)
        candidates.logits[:2] = -np.inf

    result = Sampler.chain([Sampler.custom(only_two), Sampler.greedy()]).apply(ROW)
    assert result.selected == 4
    (candidates,) = seen
    assert isinstance(candidates, Candidates)
    assert candidates.ids.tolist() == [0, 1, 2, 3, 4]
    assert candidates.logits.dtype == np.float32
    assert candidates.selected is None


def test_the_function_returns_other_logits():
    for other in (-ROW, (-ROW).tolist(), (-ROW).astype(np.float64), np.arange(5)[::-1]):
        sampler = Sampler.chain([Sampler.custom(lambda c, other=other: other), Sampler.greedy()])
        assert sampler.apply(ROW).selected == np.argmax(other)


@pytest.mark.parametrize("answer", [3, np.int32(3), np.int64(3)])
def test_the_function_returns_the_id_it_chooses(ready, answer):
    sampler = Sampler.chain([Sampler.top_k(0), Sampler.custom(lambda c: answer)])
    assert sampler.apply(ROW).selected == 3
    assert sampler.sample(ready) == 3
    assert Sampler.custom(lambda c: answer).sample(ready) == 3


def test_behind_others_ids_tell_which_candidates_are_left():
    seen = []
    Sampler.chain([Sampler.top_k(2), Sampler.custom(lambda c: seen.append(c.ids.tolist()))]).apply(ROW)
    assert seen == [[1, 4]]


def test_changed_logits_are_no_longer_taken_for_sorted():
    def worst_becomes_best(candidates):
        candidates.logits[-1] += 100

    for seed in range(5):
        chain = Sampler.chain(
            [Sampler.top_k(3), Sampler.custom(worst_becomes_best), Sampler.top_k(1), Sampler.dist(seed)]
        )
        assert chain.apply(ROW).selected == 0


def test_a_function_behind_the_choice_sees_it_and_may_let_it_stand():
    seen = []
    chain = Sampler.chain([Sampler.greedy(), Sampler.custom(lambda c: seen.append(c.selected))])
    assert chain.apply(ROW).selected == 1
    assert seen == [1]


def test_arrays_that_are_kept_are_copies(ready):
    kept = []
    sampler = Sampler.chain([Sampler.custom(kept.append), Sampler.greedy()])
    for _ in range(3):
        sampler.sample(ready)
    sampler.close()
    expected = ready.logits().copy()
    for candidates in kept:
        assert np.array_equal(candidates.logits, expected)
        candidates.logits[:] = 0
        with pytest.raises(ValueError, match="read-only"):
            candidates.ids[0] = 1


@pytest.mark.parametrize(("answer", "error", "message"), [
    ("text", TypeError, "must return"), (True, TypeError, "must return"), (1.5, TypeError, "must return"),
    (np.zeros((5, 1)), TypeError, "must return"), (np.zeros(4), ValueError, "4 logits for 5"), (5, ValueError, "not among"),
    (-1, ValueError, "not among"), (2**70, ValueError, "not among"), (np.full(5, np.nan), ValueError, "NaN"),
    (np.full(5, np.inf), ValueError, "NaN or \\+inf"), (np.full(5, 1e300), ValueError, "inf"), ({}, TypeError, "must return"),
])  # fmt: skip
def test_a_wrong_answer_is_an_error_of_the_call(answer, error, message):
    right = [False]
    sampler = Sampler.chain([Sampler.custom(lambda c: None if right[0] else answer), Sampler.greedy()])
    with pytest.raises(error, match=message):
        sampler.apply(ROW)
    right[0] = True
    assert sampler.apply(ROW).selected == 1


def test_logits_that_are_set_to_nan_in_place_are_refused():
    def spoil(candidates):
        candidates.logits[1] = np.nan

    with pytest.raises(ValueError, match="NaN"):
        Sampler.custom(spoil).apply(ROW)


class FailureError(Exception):
    pass


@pytest.mark.parametrize(
    "error", [FailureError("no"), KeyboardInterrupt(), SystemExit(3)], ids=lambda e: type(e).__name__
)
def test_an_exception_reaches_the_caller_with_its_traceback(ready, error, capfd):
    fail = [True]

    def here(*_):
        if fail[0]:
            raise error

    function = Sampler.custom(here, name="fails")
    observer = Sampler.custom(lambda c: None, accept=here, reset=here, clone=here, name="later")
    first, last = Sampler.chain([function, Sampler.greedy()]), Sampler.chain([Sampler.greedy(), observer])
    for sampler, call in (
        (first, lambda: first.sample(ready)), (first, lambda: first.apply(ROW)), (last, lambda: last.sample(ready)),
        (last, lambda: last.accept(1)), (last, last.reset), (last, last.clone),
    ):  # fmt: skip
        fail[0] = True
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error
        assert "here" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        fail[0] = False
        assert sampler.sample(ready) >= 0
    assert capfd.readouterr() == ("", "")


def test_accept_and_reset_are_told():
    told = []
    sampler = Sampler.chain([
        Sampler.custom(lambda c: None, accept=told.append, reset=lambda: told.append("reset")), Sampler.greedy(),
    ])  # fmt: skip
    sampler.accept(7)
    sampler.reset()
    assert told == [7, "reset"]


class Counter:
    """A sampler with state of its own: never the same token twice."""

    def __init__(self, seen=()):
        self.seen = list(seen)

    def __call__(self, candidates):
        candidates.logits[np.isin(candidates.ids, self.seen)] = -np.inf

    def sampler(self):
        return Sampler.custom(
            self, accept=self.seen.append, reset=self.seen.clear, clone=lambda: Counter(self.seen).sampler()
        )


def test_state_of_a_custom_sampler_is_cloned_by_its_own_function():
    first = Sampler.chain([Counter().sampler(), Sampler.greedy()])
    assert first.names == ("Counter", "greedy")
    order = np.argsort(-ROW).tolist()
    for expected in order[:2]:
        assert first.apply(ROW).selected == expected
        first.accept(expected)
    copy = first.clone()
    first.accept(order[2])
    assert (copy.apply(ROW).selected, first.apply(ROW).selected) == (order[2], order[3])
    first.copy_from(copy)
    first.accept(order[3])
    assert (copy.apply(ROW).selected, first.apply(ROW).selected) == (order[2], order[2])
    copy.reset()
    first.close()
    assert copy.apply(ROW).selected == order[0]


def test_without_state_copies_share_the_function():
    sampler = Sampler.chain([Sampler.custom(lambda c: -c.logits), Sampler.greedy()])
    copy = sampler.clone().clone()
    sampler.close()
    gc.collect()
    assert copy.apply(ROW).selected == 2


@pytest.mark.parametrize("answer", [None, 3, "x"])
def test_a_clone_function_must_return_a_custom_sampler(answer):
    sampler = Sampler.custom(lambda c: None, clone=lambda: answer)
    with pytest.raises(TypeError, match="clone"):
        sampler.clone()


def test_a_clone_function_that_returns_an_unsuitable_sampler_is_refused():
    holder = []
    sampler = Sampler.custom(lambda c: None, clone=lambda: holder[0])
    for bad in (sampler, Sampler.greedy()):
        holder[:] = [bad]
        with pytest.raises(TypeError, match="clone"):
            sampler.clone()
    assert not sampler.closed
    holder.clear()


def test_functions_must_be_callable():
    for arguments in (
        {"function": None},
        {"function": 3},
        {"function": len, "accept": 3},
        {"function": len, "clone": 3},
    ):
        with pytest.raises(TypeError, match="callable"):
            Sampler.custom(**arguments)


def test_functions_that_call_into_what_is_running_get_a_busy_error(ready):
    calls = {
        "sample": lambda: chain.sample(ready), "apply": lambda: chain.apply(ROW), "accept": lambda: chain.accept(1),
        "reset": lambda: chain.reset(), "clone": lambda: chain.clone(), "add": lambda: chain.add(Sampler.greedy()),
        "remove": lambda: chain.remove(0), "seed": lambda: chain.seed, "copy_from": lambda: other.copy_from(chain),
        "into another": lambda: other.add(chain), "decode": lambda: ready.decode(batch), "logits": ready.logits,
        "memory": ready.memory.clear, "sample another": lambda: Sampler.greedy().sample(ready),
    }  # fmt: skip
    batch = Batch(4)
    batch.add(1, 5, output=True)
    other = Sampler.chain([Sampler.top_k(1)])
    failures = {}

    def reenter(_):
        for name, call in calls.items():
            with pytest.raises(BusyError) as caught:
                call()
            failures[name] = caught.value
        return -np.asarray(_.logits)

    chain = Sampler.chain([Sampler.custom(reenter), Sampler.greedy()])
    assert chain.sample(ready) == np.argmin(ready.logits(-1))
    assert set(failures) == set(calls)
    ready.decode(batch)


def test_other_samplers_and_the_vocabulary_may_be_used_inside(ready):
    vocab = ready.model.vocab
    inner = Sampler.chain([Sampler.top_k(3), Sampler.dist(1)])

    def function(candidates):
        with pytest.raises(IndexError):
            vocab.piece(-1)
        with pytest.raises(GrammarError):
            Sampler.grammar(vocab, "root ::= $")
        with pytest.raises(GrammarError):
            Sampler.grammar(vocab, 'root ::= "a"').accept(vocab.eos)
        return inner.apply(candidates.logits).selected

    assert Sampler.custom(function).sample(ready) in np.argsort(ready.logits(-1))[-3:]


def test_closing_the_sampler_or_the_context_inside_is_survived(ready):
    def close(_):
        sampler.close()
        return 5

    sampler = Sampler.custom(close)
    assert sampler.sample(ready) == 5
    with pytest.raises(ClosedError):
        sampler.sample(ready)

    def close_context(_):
        ready.close()
        return 6

    assert Sampler.custom(close_context).sample(ready) == 6
    with pytest.raises(ClosedError):
        ready.logits()


def test_nothing_is_kept_after_the_sampler_is_gone():
    class Function:
        def __call__(self, candidates):
            return None

    before = len(CustomSampler._alive)
    gc.collect()
    gc.disable()
    try:
        function = Function()
        chain = Sampler.chain([Sampler.custom(function, clone=lambda: Sampler.custom(Function())), Sampler.greedy()])
        chain.apply(ROW)
        copy = chain.clone()
        copy.apply(ROW)
        gone = [weakref.ref(function), weakref.ref(chain), weakref.ref(copy)]
        del function, chain, copy
        assert [ref() for ref in gone] == [None, None, None]
    finally:
        gc.enable()
    assert len(CustomSampler._alive) == before


def test_a_sampler_that_its_own_function_refers_to_can_be_collected():
    class Owner:
        def __init__(self):
            self.sampler = Sampler.custom(self.function)

        def function(self, candidates):
            return int(candidates.ids[0])

    owner = Owner()
    assert owner.sampler.apply(ROW).selected == 0
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_an_exception_leaves_no_reference_to_the_sampler_behind():
    def fail(_):
        raise FailureError

    gc.collect()
    gc.disable()
    try:
        sampler = Sampler.chain([Sampler.custom(fail), Sampler.greedy()])
        with contextlib.suppress(FailureError):
            sampler.apply(ROW)
        gone = weakref.ref(sampler)
        del sampler
        assert gone() is None
    finally:
        gc.enable()


def test_threads_take_turns():
    inside = []
    overlap = []

    def function(_):
        inside.append(1)
        overlap.append(len(inside))
        inside.pop()

    sampler = Sampler.chain([Sampler.custom(function), Sampler.dist(1)])
    threads = [threading.Thread(target=lambda: [sampler.apply(ROW) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlap == [1] * 200
