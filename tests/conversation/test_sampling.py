"""How tokens are chosen: inherited options, seeds, penalties, Python samplers; and their probabilities."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from talking import HOT, Dictation, Oracle

from causerie import SamplingOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from causerie import Engine

QUESTION = "Tell me about the sea."


class TestInheritance:
    def test_call_over_conversation_over_engine(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine(sampling={"temperature": 0, "max_tokens": 2})
        assert engine.conversation().send(QUESTION).usage.completion_tokens == 2
        chat = engine.conversation(sampling=SamplingOptions(max_tokens=3))
        assert chat.send(QUESTION).usage.completion_tokens == 3
        assert chat.send(QUESTION, max_tokens=4).usage.completion_tokens == 4
        assert engine.conversation(max_tokens=1).send(QUESTION).usage.completion_tokens == 1

    def test_what_one_call_sets_does_not_leak(self, engine: Engine) -> None:
        chat = engine.conversation(sampling={"temperature": 0, "max_tokens": 4})
        expected = chat.fork().send(QUESTION).text
        bias = dict.fromkeys(engine.model.vocab.tokenize(expected).tolist(), False)
        other = chat.fork()
        strange = other.send(QUESTION, logit_bias=bias, stop="e", logprobs=2, temperature=1, seed=1)
        assert strange.text != expected
        reply = other.regenerate()
        assert reply.text == expected
        assert reply.logprobs is None

    def test_a_branch_inherits_too(self, engine: Engine) -> None:
        chat = engine.conversation(sampling={"temperature": 0, "max_tokens": 2})
        assert chat.fork().send(QUESTION).usage.completion_tokens == 2


class TestSeeds:
    def test_the_same_seed_gives_the_same_text(self, engine: Engine) -> None:
        first, second, third = (
            engine.conversation().send(QUESTION, **HOT, seed=seed, max_tokens=6).text for seed in (1, 1, 2)
        )
        assert first == second != third

    def test_without_one_texts_differ(self, engine: Engine) -> None:
        chat = engine.conversation()
        texts = {chat.fork().send(QUESTION, **HOT, max_tokens=5).text for _ in range(3)}
        assert len(texts) > 1

    def test_also_in_different_processes(self, smollm2_path: Any) -> None:
        code = (
            "import causerie, sys\n"
            "with causerie.Engine(sys.argv[1], n_ctx=256, n_threads=1) as engine:\n"
            f"    print(ascii(engine.conversation().send('Hi.', **{HOT!r}, max_tokens=6).text))"
        )
        command = [sys.executable, "-c", code, str(smollm2_path)]
        texts = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
        assert len(texts) == 2


class TestOptions:
    def test_a_banned_token_never_comes(self, engine: Engine) -> None:
        chat = engine.conversation()
        free = chat.fork().send(QUESTION, temperature=0, max_tokens=3, logprobs=True)
        assert free.logprobs is not None
        banned = free.logprobs[0].id
        reply = chat.send(QUESTION, temperature=0, max_tokens=3, logprobs=True, logit_bias={banned: False})
        assert reply.logprobs is not None
        assert banned not in [entry.id for entry in reply.logprobs]

    def test_penalties_keep_it_from_repeating(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "Say: la la la la la la la la"}])
        reply = chat.respond(temperature=0, max_tokens=12, presence_penalty=100.0, repeat_last_n=512, logprobs=True)
        assert reply.logprobs is not None
        ids = [entry.id for entry in reply.logprobs]
        assert len(set(ids)) == len(ids)
        assert not set(ids) & set(engine.conversation().tokenize("Say: la la la la la la la la").tolist()[-14:])

    def test_python_samplers_see_the_row_and_may_replace_it(self, engine: Engine, oracle: Oracle) -> None:
        rows: list[NDArray[np.float32]] = []

        def look(row: NDArray[np.float32]) -> None:
            rows.append(row.copy())

        def second_best(row: NDArray[np.float32]) -> NDArray[np.float64]:
            changed = row.astype(float)
            changed[changed.argmax()] = -np.inf
            return changed

        chat = engine.conversation()
        prompt = chat.tokenize(QUESTION)
        reply = chat.send(QUESTION, temperature=0, max_tokens=1, samplers=[look, second_best], logprobs=True)
        expected = oracle.continuation(prompt, 1)[1][0]
        assert (rows[0].shape, rows[0].dtype) == ((engine.model.n_vocab,), np.float32)
        assert (rows[0] == expected).all()
        assert reply.logprobs is not None
        assert reply.logprobs[0].id == np.argsort(expected)[-2]

    def test_greedy_is_the_likeliest_token_whatever_else_is_set(self, engine: Engine) -> None:
        chat = engine.conversation()
        expected = chat.fork().send(QUESTION, temperature=0, max_tokens=4).text
        for options in ({"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.3}, {"mirostat": 2}, {"dynatemp_range": 1.0}):
            assert chat.fork().send(QUESTION, temperature=0, max_tokens=4, **options).text == expected


class TestLogprobs:
    @pytest.mark.parametrize("options", [{"temperature": 0}, {**HOT, "seed": 6}], ids=["greedy", "hot"])
    def test_equal_log_softmax_of_the_raw_logits(
        self, engine: Engine, oracle: Oracle, options: dict[str, float]
    ) -> None:
        chat = engine.conversation()
        prompt = chat.tokenize(QUESTION).tolist()
        reply = chat.send(QUESTION, **options, max_tokens=4, logprobs=3)
        assert reply.logprobs is not None
        assert len(reply.logprobs) == reply.usage.completion_tokens == 4
        for entry in reply.logprobs:
            row = oracle.continuation(prompt, 1)[1][0].astype(np.float64)
            expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
            assert entry.logprob == pytest.approx(expected[entry.id], abs=1e-5)
            likeliest = np.argsort(-row, kind="stable")[:3]
            assert [top.id for top in entry.top] == likeliest.tolist()
            assert [top.logprob for top in entry.top] == pytest.approx(expected[likeliest].tolist(), abs=1e-5)
            prompt.append(entry.id)
        assert "".join(entry.text for entry in reply.logprobs) == reply.text

    def test_are_there_only_where_they_are_asked_for(self, engine: Engine) -> None:
        chat = engine.conversation(sampling={"logprobs": 2})
        assert chat.send(QUESTION, max_tokens=1).logprobs
        assert chat.send(QUESTION, max_tokens=1, logprobs=False).logprobs is None
        reply = chat.send(QUESTION, max_tokens=1, logprobs=True)
        assert reply.logprobs is not None
        assert reply.logprobs[0].top == ()

    def test_come_with_the_chunks(self, engine: Engine) -> None:
        stream = engine.conversation().stream("x", temperature=0, logprobs=1, samplers=Dictation(engine, "One two."))
        with_chunks = [chunk.logprob for chunk in stream if chunk.logprob]
        assert stream.reply.logprobs is not None
        assert with_chunks == [entry for entry in stream.reply.logprobs if entry in with_chunks]
        assert with_chunks
