"""The engine from many threads: everybody gets what they would get alone, and nobody harms anybody else."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from engine_oracle import Log, check_slots

from causerie.engine import TokenEngine
from causerie.errors import BusyError, ClosedError, ContextOverflowError, GrammarError
from causerie.llama import Chooser, Model, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ids(n: int, seed: int = 0) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randint(10, 120) for _ in range(n)]


def generate(engine: TokenEngine, prompt: list[int], n: int | None = 12, sequence: Any = None, **options: Any) -> Any:
    options.setdefault("chooser", Chooser())
    generation = engine.generate(sequence or engine.sequence(), prompt, max_tokens=n, **options)
    engine.wait(generation)
    if generation.error is not None:
        raise generation.error
    return generation


def alone(model: Model, prompt: list[int], n: int = 12) -> list[int]:
    with TokenEngine(model, n_ctx=1024, max_resident=1, n_threads=1, parking_bytes=0) as engine:
        tokens: list[int] = generate(engine, prompt, n).tokens
        return tokens


class TestMany:
    def test_sixteen_threads_get_what_each_gets_alone(self, tiny: Model, engine: TokenEngine) -> None:
        prompts = [ids(20) + ids(n % 30, n) for n in range(60)]
        with ThreadPoolExecutor(16) as pool:
            got = list(pool.map(lambda prompt: generate(engine, prompt).tokens, prompts))
        assert got == [alone(tiny, prompt) for prompt in prompts]
        stats = engine.stats()
        assert stats.generated >= sum(map(len, got))
        assert stats.steps < stats.tokens / 3  # they were evaluated together
        check_slots(engine, idle=True)

    @pytest.mark.parametrize("together", [True, False])
    def test_a_shared_prefix_is_evaluated_once(self, engine: TokenEngine, together: bool) -> None:
        prefix = ids(600)
        prompts = [[*prefix, *ids(5, 1 + n)] for n in range(100)]
        if together:
            with ThreadPoolExecutor(100) as pool:
                list(pool.map(lambda prompt: generate(engine, prompt, 2), prompts))
        else:
            for prompt in prompts:
                generate(engine, prompt, 2)
        assert engine.stats().tokens <= 600 + 100 * (5 + 2) + 100

    def test_more_sequences_than_fit_all_go_on(self, tiny: Model) -> None:
        with TokenEngine(tiny, n_ctx=512, max_resident=3, n_batch=64, n_threads=1) as engine:
            sequences = [(engine.sequence(), ids(100, n)) for n in range(20)]
            texts = [prompt for _, prompt in sequences]
            for turn in range(2):
                texts = [
                    generate(engine, text + ids(3, turn), 5, sequence).target[:]
                    for (sequence, _), text in zip(sequences, texts, strict=True)
                ]
            assert engine.stats().restorations >= 15
        for (_, prompt), text in zip(sequences, texts, strict=True):
            first = alone(tiny, prompt + ids(3, 0), 5)
            whole = prompt + ids(3, 0) + first + ids(3, 1)
            assert text == whole + alone(tiny, whole, 5)

    def test_a_slow_consumer_stops_nobody(self, engine: TokenEngine) -> None:
        slow, quick = engine.sequence(), engine.sequence()
        generation = engine.generate(slow, ids(10), chooser=Chooser(), max_tokens=400)
        engine.wait(generation, lambda: generation.n_generated > 0)
        begun = time.monotonic()
        generate(engine, ids(10, 1), 20, quick)  # nobody takes what the slow one generates meanwhile
        assert time.monotonic() - begun < 20
        engine.cancel(generation)
        assert generation.finish_reason in {"cancelled", "stop", "length"}


class TestCancel:
    def test_during_a_long_prompt_and_the_next_one_is_right(self, tiny: Model, engine: TokenEngine) -> None:
        sequence, prompt = engine.sequence(), ids(1500)
        generation = engine.generate(sequence, prompt, chooser=Chooser(), max_tokens=5)
        thread = threading.Thread(target=engine.wait, args=(generation,))
        thread.start()
        while not sequence.held and not generation.done:
            time.sleep(0.0001)
        engine.cancel(generation)
        thread.join(20)
        assert not thread.is_alive()
        assert generation.finish_reason == "cancelled"
        assert generation.evaluated < len(prompt)
        assert generate(engine, prompt[:200], 12, sequence).tokens == alone(tiny, prompt[:200])
        check_slots(engine, idle=True)

    def test_the_next_generation_need_not_wait_for_the_cancelled_one(self, engine: TokenEngine) -> None:
        sequence = engine.sequence()
        for n in range(30):
            generation = engine.generate(sequence, ids(50, n), chooser=Chooser(), max_tokens=50)
            threading.Thread(target=engine.wait, args=(generation,)).start()
            engine.cancel(generation)
        assert len(generate(engine, ids(5), 3, sequence).tokens) <= 3

    def test_many_cancels_race_with_ends(self, engine: TokenEngine) -> None:
        def work(seed: int) -> None:
            chosen, sequence = random.Random(seed), engine.sequence()
            for n in range(25):
                generation = engine.generate(sequence, ids(9, n), chooser=Chooser(), max_tokens=chosen.randint(1, 6))
                some = chosen.randint(0, 5)
                engine.wait(generation, lambda g=generation, n=some: g.n_generated >= n)
                engine.cancel(generation)
                assert generation.error is None
            engine.close_sequence(sequence)

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(work, range(12)))
        check_slots(engine, idle=True)

    def test_a_closed_or_discarded_sequence_ends(self, engine: TokenEngine) -> None:
        for give_up in (engine.close_sequence, engine.discard_sequence):
            sequence = engine.sequence()
            generation = engine.generate(sequence, ids(20), chooser=Chooser(), max_tokens=1000)
            engine.wait(generation, lambda g=generation: g.n_generated > 2)
            give_up(sequence)
            engine.wait(generation)
            assert generation.finish_reason == "cancelled"
            with pytest.raises(ClosedError):
                engine.generate(sequence, ids(3), chooser=Chooser())


class Raising:
    def token(self, chosen: object) -> bool:
        raise LookupError("of a sink")


class Reentrant:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.caught: BaseException | None = None

    def token(self, chosen: object) -> bool:
        try:
            self.call()
        except BusyError as error:
            self.caught = error
        return True


class TestFailures:
    def others(self, engine: TokenEngine, act: Callable[[], object]) -> list[list[int]]:
        """What three undisturbed ones get while something happens."""
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(generate, engine, ids(30, n), 30) for n in range(3)]
            act()
            return [future.result().tokens for future in running]

    def test_a_sink_that_raises_fails_alone(self, tiny: Model, engine: TokenEngine) -> None:
        def act() -> None:
            with pytest.raises(LookupError):
                generate(engine, ids(5), sink=Raising())

        assert self.others(engine, act) == [alone(tiny, ids(30, n), 30) for n in range(3)]

    def test_a_grammar_that_comes_to_no_end_fails_alone(self, tiny: Model, engine: TokenEngine) -> None:
        def sampler(candidates: Any) -> None:
            raise GrammarError("nothing fits")

        def act() -> None:
            chain = Sampler.chain([Sampler.custom(sampler), Sampler.greedy()])
            with pytest.raises(GrammarError):
                generate(engine, ids(5), chooser=Chooser(chain))

        assert self.others(engine, act) == [alone(tiny, ids(30, n), 30) for n in range(3)]

    def test_an_evaluation_that_fails_once_harms_nobody(self, tiny: Model) -> None:
        calls = iter(range(10**9))

        def callback(tensor: object, ask: bool) -> bool:
            if next(calls) == 60:
                raise LookupError("of a callback")
            return True

        prompts = [ids(60, n) for n in range(4)]
        with TokenEngine(tiny, n_ctx=1024, n_batch=256, n_threads=1, eval_callback=callback) as engine:
            running = [engine.generate(engine.sequence(), p, chooser=Chooser(), max_tokens=12) for p in prompts]
            for generation in running:
                engine.wait(generation)
            assert next(calls) > 60
            got = [generation.tokens for generation in running]
            assert got == [alone(tiny, prompt) for prompt in prompts]
            check_slots(engine, idle=True)

    def test_no_way_back_in(self, engine: TokenEngine) -> None:
        sequence = engine.sequence()
        other = engine.generate(engine.sequence(), ids(5), chooser=Chooser(), max_tokens=40)
        for call in (lambda: engine.wait(other), engine.stats, lambda: engine.fork(sequence), engine.close):
            sink = Reentrant(call)
            generate(engine, ids(5), 3, sink=sink)
            assert isinstance(sink.caught, BusyError), call

    def test_one_generation_at_a_time(self, engine: TokenEngine) -> None:
        sequence = engine.sequence()
        engine.generate(sequence, ids(5), chooser=Chooser())
        with pytest.raises(BusyError):
            engine.generate(sequence, ids(5), chooser=Chooser())
        with pytest.raises(BusyError):
            engine.fork(sequence)

    def test_prompts_that_cannot_be(self, engine: TokenEngine) -> None:
        for prompt in ([], [-1], [10**6]):
            with pytest.raises(ValueError):
                engine.generate(engine.sequence(), prompt, chooser=Chooser())
        with pytest.raises(ContextOverflowError) as caught:
            engine.generate(engine.sequence(), ids(engine.n_ctx), chooser=Chooser())
        assert (caught.value.needed, caught.value.available) == (engine.n_ctx + 1, engine.n_ctx)

    def test_an_endless_answer_ends_when_the_context_is_full(self, tiny: Model) -> None:
        with TokenEngine(tiny, n_ctx=256, max_resident=3, n_threads=1) as engine:
            never = {token: float("-inf") for token in range(tiny.n_vocab) if tiny.vocab.is_eog(token)}

            def endless(n: int) -> Any:
                chain = Sampler.chain([Sampler.logit_bias(tiny.vocab, never), Sampler.greedy()])
                return generate(engine, ids(20, n), n=None, chooser=Chooser(chain))

            with ThreadPoolExecutor(3) as pool:
                got = list(pool.map(endless, range(3)))
            for generation in got:
                assert generation.finish_reason == "length"
                assert generation.context_full
                assert len(generation.target) == engine.n_ctx


class TestClose:
    def test_all_who_wait_get_closed_error(self, engine: TokenEngine) -> None:
        class Slow:
            def token(self, chosen: object) -> bool:
                time.sleep(0.005)
                return False

        reached, generations = threading.Barrier(9), []

        def wait(n: int) -> None:
            generation = engine.generate(engine.sequence(), ids(9, n), chooser=Chooser(), sink=Slow())
            generations.append(generation)
            reached.wait()
            engine.wait(generation)

        threads = [threading.Thread(target=wait, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        reached.wait()
        time.sleep(0.05)
        engine.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert {type(g.error) for g in generations if g.finish_reason == "error"} == {ClosedError}
        with pytest.raises(ClosedError):
            engine.sequence()
        engine.close()

    def test_a_model_that_is_closed_under_it(self, tiny_models: dict[str, Path]) -> None:
        model = Model(tiny_models["llama-dense"])
        engine = TokenEngine(model, n_ctx=512, n_threads=1)
        generation = engine.generate(engine.sequence(), ids(20), chooser=Chooser(), sink=Log())
        engine.wait(generation, lambda: generation.n_generated > 1)
        model.close()
        engine.wait(generation)
        assert generation.done
        with pytest.raises(ClosedError):
            engine.sequence()
        engine.close()


class TestFork:
    def test_no_new_cells_and_both_are_right(self, tiny: Model, engine: TokenEngine) -> None:
        parent = engine.sequence()
        text = generate(engine, ids(500), 10, parent).target
        used = engine.stats().cells_used
        child = engine.fork(parent)
        assert engine.stats().cells_used == used
        for sequence, more in ((parent, ids(4, 1)), (child, ids(4, 2))):
            generation = generate(engine, text + more, 8, sequence)
            assert generation.cached >= len(text) - 1
            assert generation.tokens == alone(tiny, text + more, 8)

    def test_of_what_was_never_used_and_of_what_is_parked(self, tiny: Model) -> None:
        with TokenEngine(tiny, n_ctx=512, max_resident=1, n_threads=1) as engine:
            parent = engine.sequence()
            assert len(generate(engine, ids(40), 3, engine.fork(parent)).tokens) <= 3
            text = generate(engine, ids(200, 3), 3, parent).target
            generate(engine, ids(200, 4), 3)
            child = engine.fork(parent)
            engine.close_sequence(parent)
            generation = generate(engine, [*text, 20], 5, child)
            assert generation.cached > 190
            assert generation.tokens == alone(tiny, [*text, 20], 5)


@pytest.mark.parametrize(
    "options", [{"n_batch": 8}, {"n_batch": 64, "n_ubatch": 4}, {"n_ctx": 300}, {"max_resident": 1}]
)
@pytest.mark.parametrize("kv_unified", [True, False])
def test_small_engines(tiny: Model, options: dict[str, Any], kv_unified: bool) -> None:
    with TokenEngine(tiny, **{"n_ctx": 512, **options}, kv_unified=kv_unified, n_threads=1) as engine:
        assert generate(engine, ids(40), 5).tokens == alone(tiny, ids(40), 5)
