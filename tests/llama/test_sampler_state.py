"""Samplers that remember what was accepted, and copies of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causerie.errors import GrammarError, UnsupportedError
from causerie.llama.sampler import Sampler

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def vocab(model):
    return model.vocab


@pytest.fixture(scope="module")
def row(vocab):
    return (RNG.standard_normal(vocab.n_tokens) * 3).astype(np.float32)


def feed(sampler, tokens):
    for token in tokens:
        sampler.accept(int(token))
    return sampler


def changed(result, row):
    by_id = np.empty_like(row)
    by_id[result.ids] = result.logits
    return {int(i): float(row[i] - by_id[i]) for i in np.flatnonzero(by_id != row)}


@pytest.mark.parametrize(
    ("last_n", "repeat", "freq", "present"), [(64, 1.3, 0, 0), (64, 1, 0.5, 0), (64, 1, 0, 0.7), (4, 1.1, 0.2, -0.3)]
)
def test_penalties_lower_what_was_accepted_lately(vocab, row, last_n, repeat, freq, present):
    history = [5, 6, 5, 7, 8, 5, 9]
    sampler = feed(Sampler.penalties(vocab, last_n=last_n, repeat=repeat, freq=freq, present=present), history)
    expected = row.astype(np.float64).copy()
    recent = history[-last_n:]
    for token in set(recent):
        expected[token] = expected[token] * repeat if expected[token] <= 0 else expected[token] / repeat
        expected[token] -= recent.count(token) * freq + present
    np.testing.assert_allclose(sampler.apply(row).logits, expected, rtol=1e-5)


def test_penalties_forget_after_reset_and_never_remember_with_last_n_zero(vocab, row):
    sampler = feed(Sampler.penalties(vocab, present=1), [1, 2])
    sampler.reset()
    assert np.array_equal(sampler.apply(row).logits, row)
    assert Sampler.penalties(vocab, last_n=0, repeat=2).name == "?penalties"


def dry_penalty(history, token, multiplier, base, allowed):
    """The longest suffix of the history that also occurs earlier, followed by the token."""
    longest = 0
    for end in range(1, len(history)):
        if history[end] != token:
            continue
        n = 0
        while n < end and history[end - 1 - n] == history[-1 - n]:
            n += 1
        longest = max(longest, n)
    return multiplier * base ** (longest - allowed) if longest >= allowed else 0.0


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(st.integers(1000, 1003), min_size=1, max_size=14), allowed=st.integers(1, 3))
def test_dry_lowers_what_would_go_on_repeating(vocab, row, history, allowed):
    sampler = feed(Sampler.dry(vocab, 0.8, allowed_length=allowed, seq_breakers=()), history)
    found = changed(sampler.apply(row), row)
    expected = {}
    if len(history) > allowed:
        expected = {t: dry_penalty(history, t, 0.8, 1.75, allowed) for t in set(history)}
    assert found == pytest.approx({t: p for t, p in expected.items() if p}, rel=1e-3, abs=1e-4)


def test_dry_does_not_look_across_a_breaker(vocab, row):
    text = vocab.tokenize("one two three\none two")
    assert changed(feed(Sampler.dry(vocab, seq_breakers=()), text).apply(row), row)
    broken = vocab.tokenize("one two three one\ntwo")
    newline = int(vocab.tokenize("\n")[0])
    assert newline in broken.tolist()
    assert not changed(feed(Sampler.dry(vocab, allowed_length=2, seq_breakers=("\n",)), broken).apply(row), row)


def test_dry_without_a_multiplier_does_nothing(vocab):
    assert Sampler.dry(vocab, 0).name == "?dry"


def test_logit_bias_adds_to_single_tokens(vocab, row):
    result = Sampler.logit_bias(vocab, {7: 2.5, 0: -np.inf, vocab.n_tokens - 1: -1}).apply(row)
    expected = row.copy()
    expected[[7, 0, -1]] += np.array([2.5, -np.inf, -1], np.float32)
    assert np.array_equal(result.logits, expected)
    assert Sampler.logit_bias(vocab, {}).name == "?logit-bias"
    assert Sampler.chain([Sampler.logit_bias(vocab, {99: 1000.0}), Sampler.greedy()]).apply(row).selected == 99


def test_mirostat_estimates_how_many_tokens_keep_the_surprise(vocab, row):
    tau, eta, m = 3.0, 0.2, 100
    sampler, mu = Sampler.mirostat(vocab, tau, eta, m=m, seed=4), 2 * tau
    order = np.argsort(-row)
    probs = np.exp(row[order].astype(np.float64) - row.max())
    probs /= probs.sum()
    i = np.arange(m - 1)
    t, b = np.log((i + 2) / (i + 1)), np.log(probs[i] / probs[i + 1])
    s = (t * b).sum() / (t * t).sum()
    for _ in range(10):
        result = sampler.apply(row)
        k = ((s - 1) * 2**mu / (1 - vocab.n_tokens ** (1 - s))) ** (1 / s)
        assert abs(len(result) - max(int(k), 1)) <= max(1, k * 1e-3)
        chosen = int(np.flatnonzero(order == result.selected)[0])
        mu -= eta * (-np.log2(probs[chosen] / probs[: len(result)].sum()) - tau)


def test_infill_joins_tokens_that_begin_alike_and_drops_the_improbable(vocab):
    alone = {text: int(vocab.tokenize(text)[0]) for text in ("he", "hello", "dummy", "x")}
    assert len(set(alone.values())) == 4
    row = np.full(vocab.n_tokens, -np.inf, np.float32)
    for text, p in (("he", 0.6), ("hello", 0.25), ("dummy", 0.1), ("x", 0.05)):
        row[alone[text]] = np.log(p)
    result = Sampler.chain([Sampler.top_k(4), Sampler.infill(vocab)]).apply(row)
    assert result.ids.tolist() == [alone["he"]]
    row[vocab.eos] = np.log(0.3)
    result = Sampler.chain([Sampler.top_k(4), Sampler.infill(vocab), Sampler.greedy()]).apply(row)
    assert result.selected == vocab.eos


def make_everything(vocab):
    return Sampler.chain([
        Sampler.logit_bias(vocab, {3: 1.0}),
        Sampler.penalties(vocab, repeat=1.2),
        Sampler.dry(vocab, last_n=64),
        Sampler.top_n_sigma(2.0),
        Sampler.top_k(50),
        Sampler.typical(0.95),
        Sampler.top_p(0.98),
        Sampler.min_p(0.01),
        Sampler.xtc(0.3, 0.05, seed=2),
        Sampler.temperature_dynamic(0.9, 0.2),
        Sampler.dist(5),
    ])  # fmt: skip


def run(sampler, row, n):
    tokens = []
    for _ in range(n):
        token = sampler.apply(row).selected
        sampler.accept(token)
        tokens.append(token)
    return tokens


def test_a_clone_goes_on_as_the_original_would(vocab, row):
    original = make_everything(vocab)
    run(original, row, 20)
    copy = original.clone()
    assert type(copy) is type(original)
    assert copy.names == original.names
    assert run(copy, row, 20) == run(original, row, 20)
    original.close()
    run(copy, row, 3)


@pytest.mark.parametrize("make", [
    lambda v: Sampler.mirostat(v, seed=1), lambda v: Sampler.mirostat_v2(seed=1), lambda v: Sampler.dist(1),
    lambda v: Sampler.chain([Sampler.grammar(v, 'root ::= [a-z]{1,90} "."'), Sampler.dist(1)]),
], ids=["mirostat", "mirostat_v2", "dist", "grammar"])  # fmt: skip
def test_copy_from_takes_over_the_state(vocab, row, make):
    first, second = make(vocab), make(vocab)
    run(first, row, 8)
    second.copy_from(first)
    assert run(second, row, 8) == run(first, row, 8)


def test_copy_from_a_chain_takes_over_the_state_of_every_part(vocab, row):
    first, second = make_everything(vocab), make_everything(vocab)
    run(first, row, 15)
    second.copy_from(first)
    first.close()
    assert len(set(run(second, row, 15))) > 1
    second.copy_from(second)


def test_copy_from_a_sampler_of_another_kind_is_refused(vocab):
    chain = Sampler.chain([Sampler.top_k(3), Sampler.dist(1)])
    for other in (
        Sampler.greedy(),
        Sampler.chain([Sampler.top_k(3)]),
        Sampler.chain([Sampler.dist(1), Sampler.top_k(3)]),
    ):
        with pytest.raises(ValueError, match="same way"):
            chain.copy_from(other)
    with pytest.raises(ValueError, match="same way"):
        Sampler.top_k(3).copy_from(Sampler.top_k(0))


def test_a_clone_of_adaptive_p_does_not_look_up_probabilities_it_has_not(vocab, row):
    """llama.cpp copies which token it waits for, but not the probabilities: it would read out of bounds."""
    original = Sampler.chain([Sampler.adaptive_p(0.3, seed=1)])
    chosen = original.apply(row).selected
    copy = original.clone()
    copy.accept(chosen)
    second = Sampler.chain([Sampler.adaptive_p(0.3, seed=1)])
    second.copy_from(original)
    second.accept(chosen)
    original.accept(chosen)


def test_choosing_among_nothing_leaves_mirostat_usable_after_reset(vocab, row):
    for make in (
        lambda: Sampler.mirostat(vocab, seed=1),
        lambda: Sampler.mirostat_v2(seed=1),
        lambda: Sampler.adaptive_p(0.3, seed=1),
    ):
        chain = Sampler.chain([Sampler.custom(exclude_all), make()])
        assert chain.apply(row).selected is None
        with pytest.raises(RuntimeError, match="reset"):
            chain.apply(row)
        chain.reset()
        chain.remove(0)
        assert chain.apply(row).selected == make().apply(row).selected


def exclude_all(candidates):
    candidates.logits[:] = -np.inf


def test_stateful_custom_samplers_need_a_clone_function(vocab, row):
    sampler = Sampler.custom(lambda c: None, accept=lambda t: None)
    with pytest.raises(UnsupportedError, match="clone="):
        sampler.clone()
    sampler.accept(1)
    with pytest.raises(UnsupportedError, match="clone="):
        Sampler.chain([sampler, Sampler.greedy()]).clone()


def test_grammar_state_is_copied(vocab):
    first = Sampler.grammar(vocab, 'root ::= "ab" | "ac"')
    a, b = (int(vocab.tokenize(t)[0]) for t in "ab")
    first.accept(a)
    copy = first.clone()
    copy.accept(b)
    with pytest.raises(GrammarError):
        copy.accept(b)
    first.accept(b)
