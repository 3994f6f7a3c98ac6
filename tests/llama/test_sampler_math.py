"""Samplers that work on probabilities alone, against short numpy versions of their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from causerie.llama.sampler import Candidates, Sampler

RNG = np.random.default_rng(7)
SMALL = np.array([1.0, 3.0, -2.0, 0.5, 2.0, 2.5], np.float32)
LARGE = (RNG.standard_normal(5000) * 3).astype(np.float32)
ROWS = pytest.mark.parametrize("row", [SMALL, LARGE], ids=["six", "5000"])


def softmax(logits):
    weights = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return weights / weights.sum()


def kept(candidates: Candidates) -> set[int]:
    return set(candidates.ids[candidates.logits > -np.inf].tolist())


def by_probability(row):
    order = np.argsort(-row, kind="stable")
    return order, softmax(row)[order]


@ROWS
def test_greedy_chooses_the_largest_logit_and_changes_nothing(row):
    result = Sampler.greedy().apply(row)
    assert result.selected == np.argmax(row)
    assert np.array_equal(result.ids, np.arange(row.size))
    assert np.array_equal(result.logits, row)


def test_candidates_give_probabilities_that_are_the_softmax_of_their_logits():
    result = Sampler.top_k(0).apply(SMALL)
    assert result.ids.dtype == np.int32
    assert result.logits.dtype == result.probs.dtype == np.float32
    assert len(result) == 6
    np.testing.assert_allclose(result.probs, softmax(SMALL), rtol=1e-6)
    assert not Candidates(result.ids, np.full(6, -np.inf, np.float32)).probs.any()


def test_apply_leaves_the_row_as_it_was_and_takes_any_array_of_numbers():
    row = SMALL.copy()
    row.flags.writeable = False
    Sampler.chain([Sampler.temperature(0.5), Sampler.dist(1)]).apply(row)
    assert np.array_equal(row, SMALL)
    assert Sampler.greedy().apply([1, 2, 0]).selected == 1
    assert Sampler.greedy().apply(np.array([9.0, 1.0, 2.0, 1.0, 3.0])[::2]).selected == 0


@ROWS
@pytest.mark.parametrize("k", [1, 3, 200, 6000])
def test_top_k_keeps_the_k_largest_in_order(row, k):
    result = Sampler.top_k(k).apply(row)
    order = np.argsort(-row, kind="stable")[:k]
    assert np.array_equal(np.sort(result.ids), np.sort(order))
    np.testing.assert_array_equal(result.logits, row[order])


@pytest.mark.parametrize("k", [0, -1, -(2**31) + 1])
def test_top_k_without_a_positive_k_does_nothing(k):
    sampler = Sampler.top_k(k)
    assert sampler.name == "?top-k"
    assert np.array_equal(sampler.apply(SMALL).logits, SMALL)


@ROWS
@pytest.mark.parametrize("p", [0.0, 0.1, 0.6, 0.95])
def test_top_p_keeps_the_smallest_set_that_reaches_p(row, p):
    order, probs = by_probability(row)
    n = int(np.searchsorted(np.cumsum(probs), p)) + 1
    assert kept(Sampler.top_p(p).apply(row)) == set(order[:n].tolist())


def test_min_keep_overrules_top_p_min_p_typical_and_xtc():
    order, _ = by_probability(SMALL)
    assert kept(Sampler.top_p(0.1, min_keep=4).apply(SMALL)) == set(order[:4].tolist())
    assert kept(Sampler.min_p(0.9, min_keep=4).apply(SMALL)) == set(order[:4].tolist())
    assert len(kept(Sampler.typical(0.01, min_keep=4).apply(SMALL))) == 4
    assert len(kept(Sampler.xtc(1.0, 0.1, min_keep=6, seed=0).apply(SMALL))) == 6


@ROWS
@pytest.mark.parametrize("p", [0.05, 0.5, 1.0])
def test_min_p_keeps_what_is_at_least_p_times_as_probable_as_the_best(row, p):
    probs = softmax(row)
    assert kept(Sampler.min_p(p).apply(row)) == set(np.flatnonzero(probs >= p * probs.max() * (1 - 1e-6)).tolist())


@ROWS
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_typical_keeps_what_is_nearest_to_the_entropy(row, p):
    probs = softmax(row)
    entropy = -(probs * np.log(probs)).sum()
    order = np.argsort(np.abs(-np.log(probs) - entropy), kind="stable")
    n = int(np.searchsorted(np.cumsum(probs[order]), p, side="right")) + 1
    assert len(kept(Sampler.typical(p).apply(row)) ^ set(order[:n].tolist())) <= (0 if row is SMALL else 2)


@ROWS
@pytest.mark.parametrize("t", [0.3, 1.0, 2.5])
def test_temperature_divides_logits(row, t):
    np.testing.assert_allclose(Sampler.temperature(t).apply(row).logits, row / np.float32(t), rtol=1e-6)


def test_temperature_zero_keeps_the_best_token_alone():
    assert kept(Sampler.temperature(0).apply(SMALL)) == {int(np.argmax(SMALL))}


@pytest.mark.parametrize(("t", "delta", "exponent"), [(1.0, 0.5, 1.0), (0.8, 0.8, 2.0), (0.5, 2.0, 0.5)])
def test_dynamic_temperature_grows_with_the_entropy(t, delta, exponent):
    probs = softmax(SMALL)
    entropy = -(probs * np.log(probs)).sum() / np.log(SMALL.size)
    low, high = max(0.0, t - delta), t + delta
    expected = SMALL / (low + (high - low) * entropy**exponent)
    result = Sampler.temperature_dynamic(t, delta, exponent=exponent).apply(SMALL)
    np.testing.assert_allclose(result.logits[np.argsort(result.ids)], expected, rtol=1e-4)


def test_dynamic_temperature_without_a_range_is_plain():
    np.testing.assert_allclose(Sampler.temperature_dynamic(0.5, 0).apply(SMALL).logits, SMALL * 2)


def test_xtc_excludes_all_tokens_above_the_threshold_but_the_least_probable():
    order, probs = by_probability(SMALL)
    above = int((probs >= 0.15).sum())
    assert above > 1
    assert kept(Sampler.xtc(1.0, 0.15, seed=1).apply(SMALL)) == set(order[above - 1 :].tolist())


def test_xtc_happens_with_its_probability():
    sampler = Sampler.xtc(0.3, 0.15, seed=5)
    times = sum(len(sampler.apply(SMALL)) < SMALL.size for _ in range(2000))
    assert abs(times - 600) < 4 * np.sqrt(2000 * 0.3 * 0.7)


@pytest.mark.parametrize(("p", "t"), [(0.0, 0.1), (1.0, 0.51)])
def test_xtc_that_cannot_happen_does_nothing(p, t):
    assert Sampler.xtc(p, t).name == "?xtc"


@ROWS
@pytest.mark.parametrize("n", [0.5, 1.0, 3.0])
def test_top_n_sigma_excludes_logits_far_below_the_largest(row, n):
    limit = row.max() - n * row.astype(np.float64).std()
    assert kept(Sampler.top_n_sigma(n).apply(row)) == set(np.flatnonzero(row >= limit).tolist())


def test_top_n_sigma_leaves_excluded_tokens_out_of_the_deviation():
    row = np.array([5.0, 4.0, -np.inf, 1.0], np.float32)
    assert kept(Sampler.top_n_sigma(1.0).apply(row)) == {0, 1}


def test_dist_draws_by_probability():
    sampler = Sampler.dist(3)
    n = 6000
    counts = np.bincount([sampler.apply(SMALL).selected for _ in range(n)], minlength=SMALL.size)
    probs = softmax(SMALL)
    assert (np.abs(counts - n * probs) < 5 * np.sqrt(n * probs * (1 - probs)) + 1).all()


def test_the_same_seed_gives_the_same_draws_and_another_one_others():
    def draws(seed):
        sampler = Sampler.dist(seed)
        return [sampler.apply(LARGE).selected for _ in range(50)]

    assert draws(11) == draws(11)
    assert draws(11) != draws(12)
    assert draws(None) != draws(None)


def test_seed_is_that_in_use():
    assert Sampler.dist(11).seed == 11
    assert Sampler.dist().seed is not None
    assert Sampler.mirostat_v2(seed=4).seed == 4
    assert Sampler.greedy().seed is None
    assert Sampler.xtc(0.5, seed=3).seed is None
    assert Sampler.chain([Sampler.dist(5), Sampler.top_k(2)]).seed == 5


def test_reset_starts_the_random_numbers_again():
    sampler = Sampler.dist(9)
    first = [sampler.apply(LARGE).selected for _ in range(10)]
    sampler.reset()
    assert [sampler.apply(LARGE).selected for _ in range(10)] == first


@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_mirostat_v2_truncates_by_surprise_and_learns(tau):
    sampler, mu, eta = Sampler.mirostat_v2(tau, 0.3, seed=2), 2 * tau, 0.3
    order, probs = by_probability(LARGE)
    for _ in range(20):
        result = sampler.apply(LARGE)
        n = max(1, int((-np.log2(probs) <= mu).sum()))
        assert np.array_equal(np.sort(result.ids), np.sort(order[:n]))
        chosen = int(np.flatnonzero(order == result.selected)[0])
        mu -= eta * (-np.log2(probs[chosen] / probs[:n].sum()) - tau)


def test_adaptive_p_draws_from_probabilities_bent_towards_the_target():
    probs = softmax(SMALL)
    sampler = Sampler.adaptive_p(0.2, decay=0.5, seed=1)
    weighted, total = 0.2 / 0.5, 1 / 0.5
    for _ in range(5):
        target = np.clip(2 * 0.2 - weighted / total, 0, 1)
        distance = np.abs(probs - target) / 0.3
        result = sampler.apply(SMALL)
        np.testing.assert_allclose(result.logits, 5 - 10 * distance**2 / (1 + distance), rtol=1e-4, atol=1e-4)
        assert result.selected is not None
        sampler.accept(result.selected)
        weighted, total = probs[result.selected] + 0.5 * weighted, 1 + 0.5 * total


def test_adaptive_p_with_a_negative_target_draws_plainly():
    result = Sampler.adaptive_p(-1, seed=1).apply(SMALL)
    np.testing.assert_array_equal(result.logits, SMALL)


def test_options_that_do_nothing_show_a_question_mark_in_the_name():
    assert [s.name for s in (Sampler.top_p(1), Sampler.min_p(0), Sampler.typical(1), Sampler.temperature(1))] == [
        "?top-p", "?min-p", "?typical", "?temp",
    ]  # fmt: skip


logit_rows = arrays(
    np.float32, st.integers(2, 300), elements=st.floats(-50, 50, width=32) | st.just(float("-inf")), unique=False
).filter(lambda row: row.max() > -np.inf)


@settings(deadline=None, max_examples=60)
@given(
    arrays(np.float32, st.integers(2, 300), elements=st.floats(-50, 50, width=16), unique=True),
    st.integers(1, 300),
    st.floats(0.01, 3),
)
def test_a_chain_is_its_samplers_one_after_the_other(row, k, t):
    whole = Sampler.chain([Sampler.top_k(k), Sampler.min_p(0.1), Sampler.temperature(t)]).apply(row)
    order = np.argsort(-row)[:k]
    order = order[row[order] >= row.max() + np.log(np.float32(0.1))]
    assert np.array_equal(whole.ids, order)
    np.testing.assert_allclose(whole.logits, row[order] / np.float32(t), rtol=1e-6)


@settings(deadline=None, max_examples=100)
@given(logit_rows, st.integers(0, 2**32 - 2))
def test_what_is_excluded_is_never_drawn(row, seed):
    for sampler in (
        Sampler.dist(seed),
        Sampler.chain([Sampler.top_k(5), Sampler.dist(seed)]),
        Sampler.mirostat_v2(seed=seed),
        Sampler.adaptive_p(0.3, seed=seed),
    ):
        for _ in range(3):
            chosen = sampler.apply(row).selected
            assert chosen is not None
            assert row[chosen] > -np.inf
