"""A step: many sequences in one call, each with a choice of its own, and failures that stay where they are."""

from __future__ import annotations

from threading import Timer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from causerie.errors import CauserieError, ClosedError, GrammarError
from causerie.llama import Batch, Chooser, Context, Model, Sampler
from causerie.llama.step import Chosen, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT = [1000, 1001, 1002, 1003]


@pytest.fixture
def many(model: Model) -> Iterator[Context]:
    """Room for several sequences."""
    with Context(model, n_ctx=512, n_batch=128, n_seq_max=6, kv_unified=True, n_threads=1) as context:
        yield context


def run(context: Context, *choosers: Chooser | None) -> list[Any]:
    step = Step(context)
    context.memory.clear()
    for seq, chooser in enumerate(choosers):
        step.add([*PROMPT, 1100 + seq], 0, seq, chooser)
    return step.run()


def log_softmax(row: Any) -> Any:
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def test_nothing_chosen_is_the_largest_logit(many: Context) -> None:
    (chosen,) = run(many, Chooser())
    assert chosen == Chosen(int(many.logits(-1).argmax()))


def test_log_probabilities_are_those_of_the_raw_logits(many: Context) -> None:
    chain = Sampler.chain([Sampler.temperature(3.0), Sampler.dist(1)])
    (chosen,) = run(many, Chooser(chain, n_top=5))
    want = log_softmax(many.logits(-1))
    assert chosen.logprob == pytest.approx(want[chosen.token], abs=1e-5)
    assert [token for token, _ in chosen.top] == np.argsort(-want, kind="stable")[:5].tolist()
    assert [p for _, p in chosen.top] == pytest.approx(want[[token for token, _ in chosen.top]].tolist(), abs=1e-5)


def test_no_likeliest_ones_still_gives_the_chosen_ones(many: Context) -> None:
    (chosen,) = run(many, Chooser(n_top=0))
    assert chosen.logprob is not None
    assert chosen.top == ()


@pytest.mark.parametrize("k", [1, 5, 40, 1000])
def test_preselecting_changes_nothing(many: Context, k: int) -> None:
    def chain() -> Sampler:
        return Sampler.chain([Sampler.top_k(k), Sampler.temperature(1.5), Sampler.dist(7)])

    for _ in range(5):
        a, b = run(many, Chooser(chain(), preselect=k), Chooser(chain()))[:2]
        again = run(many, Chooser(chain()), Chooser(chain(), preselect=k))
        assert [a.token, b.token] == [row.token for row in again]


def test_a_sequence_may_be_evaluated_only(many: Context) -> None:
    assert len(run(many, None, Chooser(), None)) == 1
    assert many.memory.seq_pos_max(2) == len(PROMPT)


class TestFailures:
    """Each of these fails in the middle row; its neighbours choose what they choose without it."""

    def middle(self, context: Context, chooser: Chooser) -> Any:
        want = run(context, Chooser(), Chooser(), Chooser())
        got = run(context, Chooser(), chooser, Chooser())
        assert [got[0], got[2]] == [want[0], want[2]]
        assert isinstance(got[1], BaseException)
        return got[1]

    def test_a_python_sampler_that_raises(self, many: Context) -> None:
        def function(candidates: Any) -> None:
            raise LookupError("of a sampler")

        error = self.middle(many, Chooser(Sampler.chain([Sampler.custom(function), Sampler.greedy()])))
        assert isinstance(error, LookupError)

    def test_a_chain_that_chooses_nothing(self, many: Context) -> None:
        error = self.middle(many, Chooser(Sampler.chain([Sampler.top_k(5)])))
        assert isinstance(error, ValueError)
        assert "chose" in str(error)

    def test_a_chain_that_leaves_nothing(self, many: Context, model: Model) -> None:
        nothing = Sampler.logit_bias(model.vocab, {token: float("-inf") for token in range(model.n_vocab)})
        error = self.middle(many, Chooser(Sampler.chain([nothing, Sampler.greedy()])))
        assert isinstance(error, ValueError)

    def test_a_grammar_that_the_chain_leaves_nothing_of(self, many: Context, model: Model) -> None:
        grammar = Sampler.grammar(model.vocab, 'root ::= "zzz"')
        none = {token: float("-inf") for token in range(model.n_vocab) if b"z" in model.vocab.piece(token)}
        chain = Sampler.chain([Sampler.logit_bias(model.vocab, none), Sampler.greedy()])
        assert isinstance(self.middle(many, Chooser(chain, grammar)), GrammarError)

    def test_a_closed_sampler(self, many: Context) -> None:
        chooser = Chooser(Sampler.chain([Sampler.greedy()]))
        chooser.close()
        assert isinstance(self.middle(many, chooser), ClosedError)


def test_a_grammar_is_followed(many: Context, model: Model) -> None:
    (chosen,) = run(many, Chooser(grammar=Sampler.grammar(model.vocab, 'root ::= "yes"')))
    assert "yes".startswith(model.vocab.detokenize([chosen.token]).strip() or "-")


def test_a_step_can_be_repeated(many: Context) -> None:
    step = Step(many)
    for seq in range(3):
        step.add([*PROMPT, 1100 + seq], 0, seq, Chooser())
    first = step.run()
    assert not step.repeatable  # prompts are not what comes next
    step.clear()
    for seq, row in enumerate(first):
        step.add([row.token], len(PROMPT) + 1, seq, Chooser())
    second = step.run()
    assert step.repeatable
    third = step.run_again()[-1]
    step.clear()
    for seq in range(3):
        many.memory.seq_rm(seq, len(PROMPT) + 2)
        step.add([second[seq].token], len(PROMPT) + 2, seq, Chooser())
    assert step.run() == third


class TestSeveralStepsAtOnce:
    def begun(self, context: Context, *choosers: Chooser) -> tuple[Step, list[Any]]:
        context.memory.clear()
        step = Step(context)
        for seq, chooser in enumerate(choosers):
            step.add([*PROMPT, 1100 + seq], 0, seq, chooser)
        chosen: list[Any] = step.run()
        step.clear()
        for seq, row in enumerate(chosen):
            step.add([row.token], len(PROMPT) + 1, seq, choosers[seq])
        return step, step.run()

    def test_they_are_what_single_ones_are(self, many: Context) -> None:
        def choosers() -> list[Chooser]:
            return [Chooser(), Chooser(Sampler.chain([Sampler.temperature(0.9), Sampler.dist(3)]))]

        step, _ = self.begun(many, *choosers())
        together = step.run_again(5)
        assert step.repeatable
        step, _ = self.begun(many, *choosers())
        assert together == [step.run_again()[0] for _ in range(5)]
        assert [many.memory.seq_pos_max(seq) for seq in range(2)] == [len(PROMPT) + 6] * 2

    def test_they_stop_behind_the_end_of_a_turn(self, many: Context, model: Model) -> None:
        assert model.vocab.eot is not None
        forced = Sampler.chain([Sampler.logit_bias(model.vocab, {model.vocab.eot: 1e6}), Sampler.greedy()])
        step, _ = self.begun(many, Chooser())
        step._choosers[0] = Chooser(forced)
        assert step.run_again(5) == [[Chosen(model.vocab.eot)]]

    def test_they_stop_behind_a_failure(self, many: Context, model: Model) -> None:
        step, _ = self.begun(many, Chooser(), Chooser())
        nothing = Sampler.logit_bias(model.vocab, dict.fromkeys(range(model.n_vocab), float("-inf")))
        step._choosers[1] = Chooser(Sampler.chain([nothing, Sampler.greedy()]))
        (results,) = step.run_again(5)
        assert isinstance(results[0], Chosen)
        assert isinstance(results[1], ValueError)
        assert not step.repeatable
        with pytest.raises(ValueError, match="repeated"):
            step.run_again()

    def test_what_was_done_before_the_memory_was_full_counts(self, many: Context) -> None:
        step, _ = self.begun(many, Chooser())
        batch = Batch(128)
        while (free := many.n_ctx - 8 - many.memory.seq_pos_max(5) - 1 - (len(PROMPT) + 2)) > 0:
            batch.clear()
            batch.add_sequence([7] * min(free, 128), many.memory.seq_pos_max(5) + 1, 5, output_last=True)
            many.decode(batch)
        done = step.run_again(20)
        assert 0 < len(done) < 20
        assert many.memory.seq_pos_max(0) == len(PROMPT) + 1 + len(done)
        with pytest.raises(ValueError, match="repeated"):
            step.run_again()

    def test_they_end_early_where_somebody_hurries(self, many: Context) -> None:
        step, _ = self.begun(many, Chooser())
        Timer(0.05, step.hurry).start()
        done = step.run_again(400)  # some seconds
        assert 1 <= len(done) < 300
        assert many.memory.seq_pos_max(0) == len(PROMPT) + 1 + len(done)
        assert len(step.run_again(3)) == 3  # that was for those, and not for any later ones

    def test_log_probabilities_go_one_by_one(self, many: Context) -> None:
        step, _ = self.begun(many, Chooser(n_top=2))
        (((chosen,)),) = (step.run_again(5),)
        assert len(chosen) == 1
        assert chosen[0].logprob is not None


def test_what_does_not_fit_is_refused(many: Context) -> None:
    step = Step(many)
    for tokens, seq in (([-1], 0), ([10**6], 0), ([5], 6), ([], 0), ([5] * 129, 0)):
        with pytest.raises(ValueError):
            step.add(tokens, 0, seq, Chooser())
    for seq in range(6):
        step.add([5], 0, seq, Chooser())
    with pytest.raises((ValueError, CauserieError)):
        step.add([5], 1, 0, Chooser())
