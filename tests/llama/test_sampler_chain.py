"""Chains own their samplers; samplers that read a vocabulary keep its model and are closed with it."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

from causerie.errors import BusyError, ClosedError
from causerie.llama import Batch, Context, Model
from causerie.llama.sampler import Sampler, SamplerChain

ROW = np.array([1.0, 3.0, -2.0, 0.5, 2.0], np.float32)


@pytest.fixture(scope="module")
def second_model(smollm2_path):
    """The same file once more: another model."""
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture
def ready(context):
    batch = Batch(16)
    batch.add_sequence(context.model.vocab.tokenize("The capital of France is"), 0, 0)
    context.decode(batch)
    return context


def test_a_chain_has_names_and_a_length():
    chain = Sampler.chain([Sampler.top_k(3), Sampler.min_p(0), Sampler.greedy()])
    assert isinstance(chain, SamplerChain)
    assert (chain.names, len(chain), chain.name) == (("top-k", "?min-p", "greedy"), 3, "chain")
    assert repr(chain) == "<SamplerChain top-k ?min-p greedy open>"
    assert repr(Sampler.greedy()) == "<Sampler greedy open>"


def test_a_sampler_that_was_added_belongs_to_the_chain():
    first, chain = Sampler.greedy(), Sampler.chain()
    chain.add(first)
    assert first.closed
    for use in (lambda: first.apply(ROW), first.reset, lambda: first.accept(1), first.clone, lambda: chain.add(first),
                lambda: Sampler.chain([first]), lambda: first.seed):  # fmt: skip
        with pytest.raises(ClosedError, match="added to a chain"):
            use()
    first.close()
    first = use = None
    gc.collect()
    assert chain.apply(ROW).selected == 1


def test_a_clone_keeps_the_original_usable():
    first = Sampler.dist(1)
    chain = Sampler.chain([first.clone(), first.clone()])
    first.close()
    assert len(chain) == 2


def test_what_is_removed_is_a_sampler_again_with_its_state():
    chain = Sampler.chain([Sampler.top_k(2), Sampler.dist(3)])
    draws = [chain.apply(ROW).selected for _ in range(3)]
    dist = chain.remove(-1)
    chain.close()
    assert (dist.name, dist.seed) == ("dist", 3)
    fresh = Sampler.chain([Sampler.top_k(2), Sampler.dist(3)])
    assert [fresh.apply(ROW).selected for _ in range(3)] == draws
    again = Sampler.chain([Sampler.top_k(2), dist])
    assert again.apply(ROW).selected == fresh.apply(ROW).selected


@pytest.mark.parametrize("index", [2, -3, 2**40])
def test_removing_what_is_not_there(index):
    chain = Sampler.chain([Sampler.top_k(2), Sampler.greedy()])
    with pytest.raises((IndexError, ValueError)):
        chain.remove(index)
    assert len(chain) == 2


def test_chains_can_contain_chains():
    inner = Sampler.chain([Sampler.top_k(2), Sampler.greedy()])
    outer = Sampler.chain([Sampler.temperature(0.5), inner])
    assert outer.apply(ROW).selected == 1
    assert outer.clone().apply(ROW).selected == 1
    back = outer.remove(1)
    assert isinstance(back, SamplerChain)
    assert back.names == ("top-k", "greedy")


def test_misuse_of_chains():
    chain, sampler = Sampler.chain(), Sampler.greedy()
    with pytest.raises(ValueError, match="itself"):
        chain.add(chain)
    for bad in (None, "greedy", Sampler.greedy):
        with pytest.raises(TypeError, match="consists of samplers"):
            chain.add(bad)
        with pytest.raises(TypeError, match="consists of samplers"):
            Sampler.chain([sampler, bad])
    with pytest.raises(ValueError, match="only once"):
        Sampler.chain([sampler, sampler])
    assert not sampler.closed


@pytest.mark.parametrize("make", [
    lambda: Sampler.chain(), lambda: Sampler.chain([Sampler.top_k(3)]), lambda: Sampler.temperature(0.5),
    lambda: Sampler.chain([Sampler.greedy(), Sampler.top_k(3)]), lambda: Sampler.chain([Sampler.chain()]),
    lambda: Sampler.chain([Sampler.greedy(), Sampler.chain([Sampler.top_p(0.5), Sampler.min_p(0)])]), lambda: Sampler.top_k(0),
])  # fmt: skip
def test_what_does_not_choose_a_token_cannot_sample(ready, make):
    with pytest.raises(ValueError, match="chooses a token"):
        make().sample(ready)


def test_options_that_do_nothing_may_stand_behind_the_choice(ready):
    chain = Sampler.chain([Sampler.greedy(), Sampler.top_k(0), Sampler.chain([Sampler.min_p(0)])])
    assert chain.sample(ready) == np.argmax(ready.logits())


def test_a_custom_sampler_at_the_end_that_chooses_nothing(ready):
    with pytest.raises(ValueError, match="chose no token"):
        Sampler.custom(lambda c: None).sample(ready)


def test_sampling_needs_a_row_that_was_asked_for(ready, model):
    sampler = Sampler.greedy()
    assert sampler.sample(ready) == sampler.sample(ready, 4) == sampler.sample(ready, -1)
    for i in (0, 3, 5, -2, 10**9):
        with pytest.raises(IndexError):
            sampler.sample(ready, i)
    with Context(model, n_ctx=32, n_batch=32) as fresh, pytest.raises(IndexError, match="nothing was evaluated"):
        sampler.sample(fresh)


def test_samplers_of_another_model_are_refused(ready, second_model):
    vocab = second_model.vocab
    for make in (
        lambda: Sampler.grammar(vocab, 'root ::= "a"'),
        lambda: Sampler.dry(vocab),
        lambda: Sampler.infill(vocab),
    ):
        with pytest.raises(ValueError, match="another model"):
            Sampler.chain([make(), Sampler.greedy()]).sample(ready)
    own = ready.model.vocab
    with pytest.raises(ValueError, match="same model"):
        Sampler.chain([Sampler.infill(own), Sampler.infill(vocab)])
    chain = Sampler.chain([Sampler.infill(own)])
    refused = Sampler.infill(vocab)
    with pytest.raises(ValueError, match="same model"):
        chain.add(refused)
    assert not refused.closed


def test_where_only_the_size_of_the_vocabulary_counts_another_model_will_do(ready, second_model):
    vocab = second_model.vocab
    chain = Sampler.chain(
        [Sampler.penalties(vocab, repeat=1.1), Sampler.logit_bias(vocab, {1: 2}), Sampler.mirostat(vocab)]
    )
    chain.sample(ready)


def test_a_sampler_for_another_size_of_vocabulary_is_refused(ready, tmp_path):
    from pathlib import Path

    path = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "ggml-vocab-gpt-2.gguf"
    with Model(path, vocab_only=True) as small:
        penalties = Sampler.penalties(small.vocab, repeat=1.1)
        with pytest.raises(ValueError, match="vocabulary of 50257"):
            Sampler.chain([penalties.clone(), Sampler.greedy()]).sample(ready)
        with pytest.raises(ValueError, match="different sizes"):
            Sampler.chain([penalties, Sampler.logit_bias(ready.model.vocab, {1: 1})])
        with pytest.raises(ValueError, match="one for each token"):
            penalties.apply(ROW)
        with pytest.raises(ValueError, match="token id"):
            penalties.accept(50257)


def test_closing_the_model_closes_what_reads_its_vocabulary(smollm2_path):
    model = Model(smollm2_path, vocab_only=True)
    grammar = Sampler.grammar(model.vocab, 'root ::= "a"')
    chain = Sampler.chain([Sampler.top_k(3)])
    chain.add(Sampler.dry(model.vocab))
    copy = chain.clone()
    removed = copy.clone().remove(1)
    free = Sampler.penalties(model.vocab, repeat=1.1)
    model.close()
    for sampler in (grammar, chain, copy, removed):
        assert sampler.closed
        with pytest.raises(ClosedError):
            sampler.accept(1)
    free.accept(1)
    with pytest.raises(ClosedError):
        Sampler.grammar(model.vocab, 'root ::= "a"')


def test_a_sampler_keeps_the_model_it_reads(smollm2_path):
    vocab = Model(smollm2_path, vocab_only=True).vocab
    chain = Sampler.chain([Sampler.grammar(vocab, 'root ::= "a"'), Sampler.greedy()])
    n, a = vocab.n_tokens, int(vocab.tokenize("a")[0])
    del vocab
    gc.collect()
    assert chain.apply(np.zeros(n, np.float32)).selected == a


def test_a_sampler_dies_with_its_last_reference_without_the_collector(model):
    gc.collect()
    gc.disable()
    try:
        samplers = [
            Sampler.greedy(),
            Sampler.grammar(model.vocab, 'root ::= "a"'),
            Sampler.chain([Sampler.dry(model.vocab)]),
        ]
        samplers += [s.clone() for s in samplers]
        gone = [weakref.ref(sampler) for sampler in samplers]
        samplers.clear()
        assert [ref() for ref in gone] == [None] * 6
    finally:
        gc.enable()


def test_close_is_idempotent_and_final():
    with Sampler.chain([Sampler.greedy()]) as chain:
        chain.apply(ROW)
    chain.close()
    assert chain.closed
    for use in (
        lambda: chain.apply(ROW),
        chain.reset,
        chain.perf,
        lambda: chain.add(Sampler.greedy()),
        lambda: chain.remove(0),
    ):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        Sampler.chain([Sampler.greedy()]).copy_from(chain)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_samplers_cannot_be_pickled_or_copied(duplicate):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        duplicate(Sampler.greedy())


def test_perf_counts_tokens(ready):
    chain = Sampler.chain([Sampler.top_k(40), Sampler.dist(1)], no_perf=False)
    for _ in range(3):
        chain.sample(ready)
    perf = chain.perf()
    assert perf.n_sample == 3
    assert perf.sample_ms > 0
    chain.perf_reset()
    assert chain.perf().n_sample == 0
    assert Sampler.chain([Sampler.greedy()]).perf().sample_ms == 0
    assert not hasattr(Sampler.greedy(), "perf")


def test_a_sampler_in_use_by_another_thread_cannot_be_given_away():
    started, go_on = threading.Event(), threading.Event()

    def wait(_):
        started.set()
        go_on.wait(30)

    busy = Sampler.custom(wait, clone=lambda: Sampler.custom(wait))
    thread = threading.Thread(target=lambda: busy.apply(ROW))
    thread.start()
    assert started.wait(30)
    chain = Sampler.chain()
    with pytest.raises(BusyError):
        chain.add(busy)
    with pytest.raises(BusyError):
        Sampler.custom(wait, clone=lambda: None).copy_from(busy)
    go_on.set()
    thread.join()
    chain.add(busy)


def test_close_waits_for_a_call_of_another_thread():
    started, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def wait(_):
        started.set()
        go_on.wait(30)

    sampler = Sampler.chain([Sampler.custom(wait), Sampler.greedy()])
    results = []
    worker = threading.Thread(target=lambda: results.append(sampler.apply(ROW).selected))
    worker.start()
    assert started.wait(30)
    closer = threading.Thread(target=lambda: (sampler.close(), closed.set()))
    closer.start()
    assert not closed.wait(0.2)
    go_on.set()
    worker.join()
    closer.join()
    assert results == [1]
    assert sampler.closed


def test_many_threads_sample_one_context_with_one_sampler(ready):
    sampler = Sampler.chain([Sampler.top_k(40), Sampler.penalties(ready.model.vocab, repeat=1.1), Sampler.dist(2)])
    errors = []

    def work():
        try:
            for _ in range(20):
                sampler.sample(ready)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
