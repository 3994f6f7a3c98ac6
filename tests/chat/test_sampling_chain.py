"""From options to samplers, on the logits of a real model: each option changes the distribution as documented."""

from __future__ import annotations

import math
import traceback
from contextlib import closing
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from causerie.chat import SamplingOptions
from causerie.chat.options import DEFAULTS
from causerie.chat.row_sampler import row_sampler
from causerie.chat.sampling_chain import sampling_chain
from causerie.errors import ClosedError, GrammarError
from causerie.llama import Batch, Context, Model
from causerie.llama.sampler import Sampler

# Nothing but the draw.
PLAIN = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0)
GREEDY = SamplingOptions(temperature=0)


@pytest.fixture(scope="module")
def model(smollm2_path):
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def row(model):
    """Logits behind a sentence that may go on in many ways."""
    with Context(model, n_ctx=64) as context:
        batch = Batch(32)
        batch.add_sequence(model.vocab.tokenize("Once upon a time there was a"), 0, 0)
        context.decode(batch)
        return context.logits().copy()


@pytest.fixture
def choose(model):
    """Choices that are closed after the test."""
    made = []

    def make(base=PLAIN, seed=1, **options):
        made.append(sampling_chain(SamplingOptions(**options).over(base), model, seed=seed))
        return made[-1]

    yield make
    for choice in made:
        choice.close()


def softmax(logits):
    weights = np.exp(np.float64(logits) - np.max(logits))
    return weights / weights.sum()


def logits_of(candidates):
    """Token id -> logit, of what is not excluded."""
    pairs = zip(candidates.ids.tolist(), candidates.logits.tolist(), strict=True)
    return {token: logit for token, logit in pairs if logit > -math.inf}


def by_probability(row):
    order = np.argsort(-row, kind="stable")
    return order, softmax(row)[order]


def draws(choice, row, n=30):
    return [choice.chain.apply(row).selected for _ in range(n)]


class TestOrder:
    def test_the_defaults(self, choose):
        choice = choose(SamplingOptions())
        assert choice.chain.names == ("top-k", "top-p", "min-p", "temp", "dist")
        assert (choice.grammar, choice.preselect, choice.needs_history) == (None, 40, False)

    def test_all_at_once(self, choose):
        choice = choose(
            DEFAULTS, logit_bias={1: 1}, samplers=lambda row: None, repeat_penalty=1.1, dry_multiplier=0.8,
            top_n_sigma=1, typical_p=0.9, xtc_probability=0.5, dynatemp_range=0.1,
        )  # fmt: skip
        assert choice.chain.names == (
            "logit-bias", "<lambda>", "penalties", "dry", "top-n-sigma", "top-k", "typical", "top-p", "min-p", "xtc",
            "temp-ext", "dist",
        )  # fmt: skip

    @pytest.mark.parametrize(
        "neutral",
        [
            {"logit_bias": {}}, {"logit_bias": {5: 0.0}}, {"samplers": []}, {"repeat_penalty": 1}, {"top_k": -1},
            {"repeat_penalty": 1.5, "repeat_last_n": 0}, {"dry_multiplier": 0}, {"top_k": 10**6}, {"typical_p": 1},
            {"dry_multiplier": 1, "dry_penalty_last_n": 0}, {"top_n_sigma": 0}, {"xtc_probability": 0},
            {"xtc_probability": 1, "xtc_threshold": 0.51}, {"dynatemp_range": 0}, {"mirostat": 0}, {"grammar": ""},
            {"adaptive_target": -0.5}, {"frequency_penalty": 0, "presence_penalty": 0}, {"mirostat_tau": 1},
            {"max_tokens": 1, "stop": "x", "logprobs": 3, "n": 2, "seed": 5},
        ],
    )  # fmt: skip
    def test_what_changes_nothing_is_left_out(self, choose, neutral):
        choice = choose(**neutral)
        assert choice.chain.names == ("dist",)
        assert (choice.grammar, choice.preselect, choice.history) == (None, 0, 0)

    @pytest.mark.parametrize(("version", "name"), [(1, "mirostat"), (2, "mirostat-v2")])
    def test_mirostat_draws_behind_the_temperature_alone(self, choose, version, name):
        options = {"mirostat": version, "repeat_penalty": 1.5, "dry_multiplier": 1, "xtc_probability": 1}
        assert choose(DEFAULTS, dynatemp_range=0.5, adaptive_target=0.5, **options).chain.names == ("temp", name)
        biased = choose(logit_bias={1: 2}, samplers=lambda row: None, **options)
        assert biased.chain.names == ("logit-bias", "<lambda>", name)
        assert not biased.needs_history

    def test_adaptive_p_takes_the_place_of_dist(self, choose):
        assert choose(adaptive_target=0.3, min_p=0.05).chain.names == ("min-p", "adaptive-p")

    def test_what_the_file_asks_never_to_generate_is_banned(self, choose, model, row, monkeypatch):
        vocab = model.vocab
        best = int(row.argmax())
        monkeypatch.setattr(vocab, "suppress_tokens", (best,))
        choice = choose(GREEDY, logit_bias={best: 50})
        assert choice.chain.names == ("logit-bias", "greedy")
        assert choice.chain.apply(row).selected == np.argsort(-row)[1]

    def test_options_that_are_not_set_are_the_defaults(self, model):
        with (
            closing(sampling_chain(SamplingOptions(), model, seed=1)) as choice,
            closing(sampling_chain(DEFAULTS, model, seed=1)) as same,
        ):
            assert (choice.chain.names, choice.preselect) == (same.chain.names, same.preselect)


class TestGreedy:
    def test_needs_no_chain(self, choose):
        for more in ({}, {"top_k": 5, "top_p": 0.1}, {"mirostat": 2}, {"adaptive_target": 0.5}, {"dynatemp_range": 2},
                     {"top_n_sigma": 1}):  # fmt: skip
            choice = choose(GREEDY, **more)
            assert (choice.chain, choice.preselect, choice.needs_history) == (None, 0, False)

    def test_of_what_changes_single_logits(self, choose, row):
        best = int(row.argmax())
        choice = choose(GREEDY, logit_bias={best: False}, repeat_penalty=1.1, dry_multiplier=1, samplers=lambda r: None)
        assert choice.chain.names == ("logit-bias", "<lambda>", "penalties", "dry", "greedy")
        assert choice.chain.apply(row).selected == np.argsort(-row)[1]

    def test_of_what_may_drop_the_best(self, choose, row):
        excluding = choose(GREEDY, xtc_probability=1, xtc_threshold=0.01)
        assert excluding.chain.names == ("top-k", "top-p", "min-p", "xtc", "greedy")
        assert excluding.preselect == 40
        assert excluding.chain.apply(row).selected != row.argmax()
        assert choose(GREEDY, typical_p=0.5).chain.names == ("top-k", "typical", "top-p", "min-p", "greedy")


class TestPreselect:
    def test_gives_the_same_as_the_whole_row(self, choose, row):
        # What an engine does with it: the k largest only.
        choice = choose(DEFAULTS, top_k=10)
        assert choice.preselect == 10
        few = np.full_like(row, -np.inf)
        few[np.argsort(-row)[:10]] = row[np.argsort(-row)[:10]]
        assert draws(choice, row) == draws(choose(DEFAULTS, top_k=10), few)

    @pytest.mark.parametrize(
        "before",
        [{"logit_bias": {1: 1}}, {"repeat_penalty": 1.1}, {"dry_multiplier": 1}, {"top_n_sigma": 1}, {"mirostat": 2},
         {"samplers": lambda row: None}, {"top_k": 0}],
    )  # fmt: skip
    def test_not_where_something_comes_before(self, choose, before):
        assert choose(DEFAULTS, **before).preselect == 0

    def test_a_function_named_like_it_does_not_count(self, choose):
        def function(row):
            row[5] = 100

        function.__name__ = "top-k"
        assert choose(DEFAULTS, samplers=function).preselect == 0


class TestDistribution:
    def test_temperature(self, choose, row):
        left = choose(temperature=0.5).chain.apply(row)
        np.testing.assert_allclose(left.logits, row[left.ids] * 2, rtol=1e-6)

    def test_dynatemp_follows_the_entropy(self, choose, row):
        p = softmax(row)
        share = -(p * np.log(p)).sum() / np.log(p.size)
        left = choose(temperature=1, dynatemp_range=0.5, dynatemp_exponent=2).chain.apply(row)
        np.testing.assert_allclose(left.logits, row[left.ids] / (0.5 + share**2), rtol=1e-3)

    def test_top_k(self, choose, row):
        assert set(logits_of(choose(top_k=5).chain.apply(row))) == set(np.argsort(-row)[:5].tolist())

    @pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
    def test_top_p(self, choose, row, p):
        order, probability = by_probability(row)
        kept = logits_of(choose(top_p=p).chain.apply(row))
        n = len(kept)
        assert set(kept) == set(order[:n].tolist())
        # llama.cpp adds up in single precision.
        assert probability[: n - 1].sum() < p + 1e-3
        assert probability[:n].sum() > p - 1e-3

    def test_min_p(self, choose, row):
        p = softmax(row)
        assert set(logits_of(choose(min_p=0.2).chain.apply(row))) == set(np.flatnonzero(p >= 0.2 * p.max()).tolist())

    def test_typical_p(self, choose, row):
        p = softmax(row)
        far = np.abs(-np.log(p) + (p * np.log(p)).sum())
        order = np.argsort(far)
        n = int(np.searchsorted(p[order].cumsum(), 0.3)) + 1
        assert set(logits_of(choose(typical_p=0.3).chain.apply(row))) == set(order[:n].tolist())

    def test_top_n_sigma(self, choose, row):
        kept = set(np.flatnonzero(row >= row.max() - 1.5 * row.std()).tolist())
        assert set(logits_of(choose(top_n_sigma=1.5).chain.apply(row))) == kept
        assert 0 < len(kept) < row.size

    def test_xtc(self, choose, row):
        order, probability = by_probability(row)
        n = int((probability >= 0.02).sum())
        assert n > 2
        left = logits_of(choose(xtc_probability=1, xtc_threshold=0.02).chain.apply(row))
        assert set(left) == set(order[n - 1 :].tolist())

    def test_penalties(self, choose, row):
        choice = choose(repeat_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.5)
        once, twice = (int(token) for token in np.argsort(-row)[:2])
        choice.prime([once, twice, twice])
        left = logits_of(choice.chain.apply(row))
        assert row[twice] > 0
        assert left[once] == pytest.approx(row[once] / 1.5 - 0.75, rel=1e-5)
        assert left[twice] == pytest.approx(row[twice] / 1.5 - 1.0, rel=1e-5)
        assert left[7] == row[7]

    def test_repeat_last_n(self, choose, row):
        choice = choose(presence_penalty=1, repeat_last_n=2)
        choice.prime([5, 6, 7])
        left = logits_of(choice.chain.apply(row))
        assert [row[token] - left[token] for token in (5, 6, 7)] == pytest.approx([0, 1, 1], abs=1e-5)

    def test_dry(self, choose, row, model):
        said = model.vocab.tokenize(" red green blue yellow red green blue", add_special=False)
        yellow = int(model.vocab.tokenize(" yellow", add_special=False)[0])
        choice = choose(dry_multiplier=2, dry_base=3, dry_allowed_length=1, dry_sequence_breakers=[])
        choice.prime(said)
        left = logits_of(choice.chain.apply(row))
        assert {token for token in left if left[token] != row[token]} == {yellow}
        assert row[yellow] - left[yellow] == pytest.approx(2 * 3 ** (3 - 1), rel=1e-4)
        short = choose(dry_multiplier=2, dry_penalty_last_n=3)
        short.prime(said)
        assert logits_of(short.chain.apply(row))[yellow] == row[yellow]
        broken = choose(dry_multiplier=2, dry_allowed_length=1, dry_sequence_breakers=[" blue"])
        broken.prime(said)
        assert logits_of(broken.chain.apply(row))[yellow] == row[yellow]

    def test_logit_bias(self, choose, row):
        best = int(row.argmax())
        left = logits_of(choose(logit_bias={best: False, 7: 2.5, 8: -1}).chain.apply(row))
        assert best not in left
        assert (left[7], left[8]) == pytest.approx((row[7] + 2.5, row[8] - 1), rel=1e-6)

    @pytest.mark.parametrize("version", [1, 2])
    def test_mirostat_aims_at_a_surprise(self, choose, row, version):
        surprise = -np.log2(softmax(row))
        mean = [
            float(np.mean([surprise[token] for token in draws(choose(mirostat=version, mirostat_tau=tau), row, 60)]))
            for tau in (0.5, 6)
        ]
        assert mean[0] + 1 < mean[1]

    def test_adaptive_target(self, choose, row):
        p = softmax(row)

        def mean(target):
            choice, chosen = choose(min_p=0.01, adaptive_target=target), []
            for _ in range(60):
                chosen.append(choice.chain.apply(row).selected)
                choice.chain.accept(chosen[-1])
            return np.mean([p[token] for token in chosen])

        assert 2 * mean(0.0) < mean(1.0)


class TestSeed:
    def test_same_seed_same_tokens(self, choose, row):
        for more in ({}, {"mirostat": 1}, {"mirostat": 2}, {"xtc_probability": 0.5, "xtc_threshold": 0.02}):
            assert draws(choose(seed=5, **more), row) == draws(choose(seed=5, **more), row)
            assert draws(choose(seed=5, **more), row) != draws(choose(seed=6, **more), row)

    def test_none_is_another_one_each_time(self, choose, row):
        assert draws(choose(seed=None), row) != draws(choose(seed=None), row)

    def test_it_is_the_argument_that_counts(self, choose, row):
        assert choose(SamplingOptions(seed=7).over(PLAIN), seed=5).chain.seed == 5

    @pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (2**32, ValueError), ("1", TypeError)])
    def test_refused(self, model, seed, error):
        with pytest.raises(error, match="seed"):
            sampling_chain(PLAIN, model, seed=seed)


class TestPrime:
    def test_feeds_no_more_than_is_looked_at(self, choose, monkeypatch):
        accepted = []
        monkeypatch.setattr(Sampler, "accept", lambda self, token: accepted.append(token))
        both = choose(repeat_penalty=1.1, repeat_last_n=3, dry_multiplier=1, dry_penalty_last_n=5)
        assert (both.history, both.needs_history) == (5, True)
        both.prime(np.arange(10, dtype=np.int32))
        assert accepted == [5, 6, 7, 8, 9]
        accepted.clear()
        both.prime([1, 2])
        assert accepted == [1, 2]
        accepted.clear()
        for nothing in (choose(), choose(GREEDY), choose(mirostat=2, repeat_penalty=2)):
            nothing.prime([1, 2, 3])
        both.prime([])
        assert not accepted

    def test_not_the_grammar(self, choose, model, row):
        choice = choose(repeat_penalty=1.1, grammar='root ::= "yes"')
        before = logits_of(choice.grammar.apply(row))
        choice.prime(model.vocab.tokenize("Say yes or no"))
        assert logits_of(choice.grammar.apply(row)) == before

    def test_greedy_follows_it(self, choose, row):
        choice = choose(GREEDY, presence_penalty=1000)
        first, second = np.argsort(-row)[:2].tolist()
        choice.prime([first])
        assert choice.chain.apply(row).selected == second

    def test_ids_of_another_vocabulary_are_refused(self, choose):
        with pytest.raises(ValueError, match="token id"):
            choose(repeat_penalty=1.1).prime([10**6])


class TestPythonSamplers:
    def test_see_the_whole_row(self, choose, row):
        seen = []
        choose(DEFAULTS, samplers=lambda logits: seen.append(logits)).chain.apply(row)
        assert (seen[0].dtype, seen[0].shape) == (np.float32, row.shape)
        np.testing.assert_array_equal(seen[0], row)

    def test_change_it_in_place(self, choose, row):
        def only_7(logits):
            logits[:7] = logits[8:].max()
            logits[:] = -np.inf
            logits[7] = 0

        assert logits_of(choose(samplers=only_7).chain.apply(row)) == {7: 0.0}

    @pytest.mark.parametrize("convert", [np.float32, np.float64, np.float16, np.ndarray.tolist])
    def test_return_another(self, choose, row, convert):
        replaced = np.arange(row.size, dtype=np.float32)[::-1] % 1000
        left = logits_of(choose(samplers=lambda _: convert(replaced)).chain.apply(row))
        assert left == dict(enumerate(replaced.tolist()))

    def test_work_one_after_the_other_between_bias_and_the_rest(self, choose, row):
        seen = []

        def first(logits):
            seen.append(float(logits[7]))
            return logits * 2

        def second(logits):
            seen.append(float(logits[7]))
            logits[9] = 100

        left = choose(logit_bias={7: 1}, samplers=[first, second], top_k=1).chain.apply(row)
        assert seen == pytest.approx([row[7] + 1, 2 * (row[7] + 1)])
        assert logits_of(left) == {9: 100.0}

    def test_the_row_is_a_copy(self, choose, row):
        kept = row.copy()
        rows = []

        def keep(logits):
            rows.append(logits)
            logits[:] = 0

        choice = choose(samplers=keep)
        choice.chain.apply(row)
        rows[0][:] = 5
        choice.chain.apply(row)
        np.testing.assert_array_equal(row, kept)

    @pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), StopIteration("mine")])
    def test_what_they_raise_reaches_the_caller(self, choose, row, error):
        def fail(_):
            raise error

        choice = choose(samplers=fail)
        with pytest.raises(type(error)) as caught:
            choice.chain.apply(row)
        assert caught.value is error
        assert "fail" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (lambda row: row[:-1], r"must return None or logits of shape \(49152,\), not \(49151,\)"),
            (lambda row: row[None], r"not \(1, 49152\)"),
            (lambda row: 5, r"not \(\)"),
            (lambda row: "greedy", r"not \(\)"),
            (lambda row: [[1.0], [2.0, 3.0]], "returned what is no array"),
            (lambda row: row > 0, "real dtype, not bool"),
            (lambda row: row + 1j, "real dtype, not complex64"),
            (lambda row: row.astype(str), "real dtype, not <U"),
            (lambda row: row.astype(object), "real dtype, not object"),
            (lambda row: row * np.float32("nan"), r"NaN or \+inf"),
            (lambda row: row.fill(np.nan), r"NaN or \+inf"),
            (lambda row: row.astype(np.float64) + 1e300, r"NaN or \+inf"),
            (lambda row: row.fill(-np.inf), "no token to choose from"),
        ],
    )
    def test_what_is_no_row_of_logits_is_refused(self, choose, row, answer, reason):
        choice = choose(samplers=answer)
        with pytest.raises(ValueError, match=f"the sampler <lambda> .*{reason}"):
            choice.chain.apply(row)

    def test_behind_others_what_was_dropped_is_minus_infinity(self, row):
        seen = []

        def shift(logits):
            seen.append(logits.copy())
            return logits + 1

        with Sampler.chain([Sampler.top_k(3), row_sampler(shift, row.size), Sampler.greedy()]) as chain:
            left = logits_of(chain.apply(row))
        best = np.argsort(-row)[:3].tolist()
        assert set(np.flatnonzero(seen[0] > -np.inf)) == set(best)
        assert left == pytest.approx({token: row[token] + 1 for token in best})

    def test_objects_that_can_be_called(self, choose, row):
        class Ban:
            def __init__(self, token):
                self.token = token

            def __call__(self, logits):
                logits[self.token] = -np.inf

        choice = choose(GREEDY, samplers=Ban(int(row.argmax())))
        assert choice.chain.names == ("Ban", "greedy")
        assert choice.chain.apply(row).selected == np.argsort(-row)[1]


class TestGrammar:
    def test_stands_beside_the_chain(self, choose, model, row):
        choice = choose(GREEDY, grammar='root ::= "yes" | "no"')
        assert choice.chain is None
        allowed = {model.vocab.piece(token) for token in logits_of(choice.grammar.apply(row))}
        assert allowed == {b"y", b"ye", b"yes", b"n", b"no"}

    @pytest.mark.parametrize("text", ["root ::= (", "start ::= 'a'", 'root ::= "a', "root ::= root", "a\0", " "])
    def test_malformed(self, model, text):
        with pytest.raises(GrammarError):
            sampling_chain(SamplingOptions(grammar=text), model, seed=1)

    def test_tells_where(self, model):
        with pytest.raises(GrammarError) as caught:
            sampling_chain(SamplingOptions(grammar='root ::= "a"\nb ::= ['), model, seed=1)
        assert caught.value.line == 2


class TestOwnership:
    def test_close_is_idempotent(self, model, row):
        choice = sampling_chain(SamplingOptions(grammar='root ::= "a"'), model, seed=1)
        choice.close()
        choice.close()
        for sampler in (choice.chain, choice.grammar):
            with pytest.raises(ClosedError):
                sampler.apply(row)
        sampling_chain(GREEDY, model, seed=1).close()

    def test_it_cannot_be_changed(self, choose):
        with pytest.raises(FrozenInstanceError):
            choose().preselect = 3

    @pytest.mark.parametrize("broken", ["dist", "min_p", "dry", "chain"])
    def test_nothing_is_left_open_after_a_failure(self, model, monkeypatch, broken):
        made = []
        wrap = Sampler._wrap.__func__

        def spy(cls, part):
            made.append(wrap(cls, part))
            return made[-1]

        def fail(*_args, **_options):
            raise RuntimeError("broken")

        monkeypatch.setattr(Sampler, "_wrap", classmethod(spy))
        monkeypatch.setattr(Sampler, broken, fail)
        options = SamplingOptions(
            grammar='root ::= "a"', logit_bias={1: 1}, samplers=lambda row: None, repeat_penalty=2, dry_multiplier=1
        )
        with pytest.raises(RuntimeError, match="broken"):
            sampling_chain(options, model, seed=1)
        assert len(made) >= 4
        assert all(sampler.closed for sampler in made)

    def test_ids_of_another_vocabulary_are_refused(self, model):
        with pytest.raises(
            ValueError, match=r"logit_bias: token id 49152 is not in 0\.\.49151, the model's vocabulary"
        ):
            sampling_chain(SamplingOptions(logit_bias={49152: 1}), model, seed=1)

    def test_a_closed_model(self, smollm2_path):
        with Model(smollm2_path, vocab_only=True) as model:
            choice = sampling_chain(SamplingOptions(grammar='root ::= "a"', dry_multiplier=1), model, seed=1)
        with pytest.raises(ClosedError):
            choice.prime([1])
        choice.close()
        with pytest.raises(ClosedError):
            sampling_chain(SamplingOptions(), model, seed=1)
