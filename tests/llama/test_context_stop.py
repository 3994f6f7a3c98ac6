"""Stopping an evaluation: by cancel, by a callback, by closing; and what the memory holds afterwards."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny import write_llama

from causerie import BusyError, ClosedError, DecodeError
from causerie.llama import Batch, Context, Model, ffi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OPTIONS = {"n_ctx": 512, "n_batch": 512, "n_ubatch": 32, "n_threads": 1}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(write_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", n_ctx=512)) as loaded:
        yield loaded


class AtLayer:
    """An eval callback that does something when the first layer of the n-th micro-batch is done."""

    def __init__(self, n: int, act: Callable[[], object]) -> None:
        self.n, self.act, self.seen = n, act, 0

    def __call__(self, tensor: Any, ask: bool) -> object:
        if ask:
            return ffi.string(tensor.name) == b"l_out-0"
        self.seen += 1
        return self.act() if self.seen == self.n else True


def tokens(n: int) -> list[int]:
    return [4 + i % 50 for i in range(n)]


def batch_of(n: int, pos0: int = 0, seq: int = 0) -> Batch:
    batch = Batch(n)
    batch.add_sequence(tokens(n), pos0, seq)
    return batch


def nmse(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.mean((found - expected) ** 2) / np.mean(expected**2))


class TestCancel:
    def test_from_another_thread_stops_a_long_prompt_and_the_next_decode_works(self, model: Model) -> None:
        with Context(model, n_ctx=512, n_batch=512, n_ubatch=64) as context:
            caught: list[DecodeError] = []

            def work() -> None:
                try:
                    context.decode(batch_of(480))
                except DecodeError as error:
                    caught.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            while thread.is_alive():
                context.cancel()
                thread.join(0.01)
            assert [error.code for error in caught] == [2]
            held = context.memory.seq_pos_max(0)
            assert held in range(-1, 480, 64)
            if held >= 0:
                context.memory.seq_rm(0)
            context.decode(batch_of(4))
            assert np.isfinite(context.logits()).all()

    def test_keeps_finished_parts_which_can_be_continued(self, tiny: Model) -> None:
        with Context(tiny, **OPTIONS, eval_callback=AtLayer(3, lambda: context.cancel())) as context:
            with pytest.raises(DecodeError, match="aborted") as caught:
                context.decode(batch_of(200))
            assert caught.value.code == 2
            assert context.memory.seq_pos_max(0) == 63
            rest = Batch(200)
            rest.add_sequence(tokens(200)[64:], 64, 0)
            context.decode(rest)
            with Context(tiny, **OPTIONS) as fresh:
                fresh.decode(batch_of(200))
                assert (context.logits() == fresh.logits()).all()

    def test_when_idle_does_nothing(self, tiny: Model) -> None:
        with Context(tiny, **OPTIONS) as context:
            context.cancel()
            context.decode(batch_of(40))
            context.cancel()
            assert context.logits().size
            context.decode(batch_of(40, pos0=40))

    def test_after_close_does_nothing(self, tiny: Model) -> None:
        context = Context(tiny, **OPTIONS)
        context.close()
        context.cancel()

    def test_removes_an_entry_of_several_sequences_from_all_of_them(self, tiny: Model) -> None:
        callback = AtLayer(2, lambda: context.cancel())
        with Context(tiny, **OPTIONS, n_seq_max=3, kv_unified=True, eval_callback=callback) as context:
            batch = Batch(100, n_seq_max=3)
            for i, token in enumerate(tokens(100)):
                batch.add(token, i, (2, 0, 1))
            with pytest.raises(DecodeError):
                context.decode(batch)
            assert [context.memory.seq_pos_max(s) for s in range(3)] == [31, 31, 31]

    @pytest.mark.parametrize("name", ["mamba-dense", "jamba-dense", "lfm2-dense", "deepseek4-moe"])
    @pytest.mark.parametrize("n_rs_seq", [0, 4])
    def test_never_leaves_recurrent_state_half_way(
        self, tiny_models: dict[str, Path], name: str, n_rs_seq: int
    ) -> None:
        stop: list[Context] = []

        def callback(tensor: Any, ask: bool) -> object:
            if not ask and stop:
                stop.pop().cancel()
            return True

        options = {**OPTIONS, "n_ctx": 256, "n_seq_max": 2, "n_rs_seq": n_rs_seq, "eval_callback": callback}
        with Model(tiny_models[name]) as model, Context(model, **options) as context:
            context.decode(batch_of(8))
            context.decode(batch_of(8, seq=1))
            stop.append(context)
            with pytest.raises(DecodeError):
                context.decode(batch_of(3, pos0=8))
            held = [context.memory.seq_pos_max(s) for s in range(2)]
            assert held in ([-1, 7], [7, 7])
            start = held[0] + 1
            batch = Batch(16)
            batch.add_sequence(tokens(12)[start:], start, 0)
            context.decode(batch)
            with Context(model, **OPTIONS) as fresh:
                fresh.decode(batch_of(12))
                if start == 0:
                    assert nmse(context.logits(), fresh.logits()) < 1e-10


class TestEvalCallback:
    def test_sees_the_tensors_it_asks_for(self, tiny: Model) -> None:
        asked: list[str] = []
        told: list[tuple[str, int]] = []

        def callback(tensor: Any, ask: bool) -> bool:
            name = ffi.string(tensor.name).decode()
            if ask:
                asked.append(name)
            else:
                told.append((name, tensor.ne[1]))
            return name == "result_output"

        with Context(tiny, **OPTIONS, eval_callback=callback) as context:
            assert asked == []
            context.decode(batch_of(5))
        assert {"l_out-0", "result_norm", "result_output"} <= set(asked)
        assert told == [("result_output", 1)]

    @pytest.mark.parametrize("error", [ValueError("stop"), KeyboardInterrupt(), SystemExit(1)])
    def test_that_raises_stops_and_the_error_reaches_the_caller(self, tiny: Model, error: BaseException) -> None:
        def fail() -> None:
            raise error

        callback = AtLayer(2, fail)
        with Context(tiny, **OPTIONS, eval_callback=callback) as context:
            with pytest.raises(type(error)) as caught:
                context.decode(batch_of(100))
            assert caught.value is error
            assert caught.traceback[-1].name == "fail"
            assert context.memory.seq_pos_max(0) == 31
            with pytest.raises(IndexError):
                context.logits()
            context.decode(batch_of(69, pos0=32))
            assert np.isfinite(context.logits()).all()

    def test_that_raises_when_asked_stops_too(self, tiny: Model) -> None:
        def callback(_: Any, ask: bool) -> bool:
            raise RuntimeError(f"{ask}")

        with Context(tiny, **OPTIONS, eval_callback=callback) as context:
            with pytest.raises(RuntimeError, match="True"):
                context.decode(batch_of(100))
            assert context.memory.seq_pos_max(0) < 99

    def test_that_returns_false_stops(self, tiny: Model) -> None:
        with Context(tiny, **OPTIONS, eval_callback=AtLayer(2, lambda: False)) as context:
            with pytest.raises(DecodeError) as caught:
                context.decode(batch_of(100))
            assert caught.value.code == 2
            assert context.memory.seq_pos_max(0) == 31

    def test_that_stops_at_the_very_last_tensor_gives_no_output(self, tiny: Model) -> None:
        def callback(tensor: Any, ask: bool) -> bool:
            return ask and ffi.string(tensor.name) == b"result_output"

        with Context(tiny, **OPTIONS, eval_callback=callback) as context:
            with pytest.raises(DecodeError):
                context.decode(batch_of(10))
            assert context.memory.seq_pos_max(0) in {-1, 9}
            with pytest.raises(IndexError):
                context.logits()

    def test_must_not_use_the_context(self, tiny: Model) -> None:
        errors: list[BaseException] = []

        def use() -> bool:
            for call in (
                lambda: context.decode(batch_of(1, pos0=5)), lambda: context.logits(), lambda: context.memory.clear(),
                lambda: context.memory.seq_pos_max(0), lambda: context.state.get(), lambda: context.set_n_threads(1),
            ):  # fmt: skip
                try:
                    call()
                except BusyError as error:  # noqa: PERF203
                    errors.append(error)
            return True

        with Context(tiny, **OPTIONS, eval_callback=AtLayer(1, use)) as context:
            context.decode(batch_of(5))
            assert len(errors) == 6
            assert np.isfinite(context.logits()).all()

    def test_may_use_another_context(self, tiny: Model) -> None:
        found: list[np.ndarray] = []

        def use() -> bool:
            with Context(tiny, **OPTIONS) as other:
                other.decode(batch_of(5))
                found.append(other.logits().copy())
            return True

        with Context(tiny, **OPTIONS, eval_callback=AtLayer(1, use)) as context:
            context.decode(batch_of(5))
            assert (context.logits() == found[0]).all()

    def test_may_close_the_context(self, tiny: Model) -> None:
        context = Context(tiny, **OPTIONS, eval_callback=AtLayer(1, lambda: context.close()))
        with pytest.raises(DecodeError):
            context.decode(batch_of(100))
        with pytest.raises(ClosedError):
            context.decode(batch_of(1))

    def test_that_interrupts_a_pending_shift_costs_the_memory(self, tiny: Model) -> None:
        def callback(tensor: Any, ask: bool) -> bool:
            if armed:
                armed.pop().cancel()
            return False

        armed: list[Context] = []
        with Context(tiny, **OPTIONS, n_seq_max=2, eval_callback=callback) as context:
            context.decode(batch_of(40))
            context.memory.seq_add(0, 20, -1, 5)
            armed.append(context)
            with pytest.raises(DecodeError):
                context.decode(batch_of(4, pos0=45))
            assert context.memory.seq_pos_max(0) == -1
            context.decode(batch_of(40))
            with Context(tiny, **OPTIONS) as fresh:
                fresh.decode(batch_of(40))
                assert nmse(context.logits(), fresh.logits()) < 1e-10


class TestThreads:
    def test_two_decode_one_context_in_turn(self, tiny: Model) -> None:
        with Context(tiny, **OPTIONS, n_seq_max=2, kv_unified=True) as context:
            errors: list[BaseException] = []

            def work(seq: int) -> None:
                try:
                    for i in range(50):
                        context.decode(batch_of(1, pos0=i, seq=seq))
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=work, args=(seq,)) for seq in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            assert [context.memory.seq_pos_max(s) for s in range(2)] == [49, 49]

    def test_closing_while_another_decodes_stops_that_one(self, model: Model) -> None:
        started = threading.Event()

        def callback(_: Any, ask: bool) -> bool:
            started.set()
            return False

        context = Context(model, n_ctx=512, n_batch=512, n_ubatch=64, eval_callback=callback)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                for i in range(100):
                    context.decode(batch_of(480 if i == 0 else 1, pos0=0 if i == 0 else 479 + i))
            except (DecodeError, ClosedError) as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        context.close()
        thread.join()
        assert len(errors) == 1
        assert context.closed

    def test_closing_the_model_while_another_decodes_stops_that_one(self, smollm2_path: Path) -> None:
        started = threading.Event()

        def callback(_: Any, ask: bool) -> bool:
            started.set()
            return False

        model = Model(smollm2_path)
        context = Context(model, n_ctx=512, n_batch=512, n_ubatch=64, eval_callback=callback)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                context.decode(batch_of(480))
                context.decode(batch_of(1, pos0=480))
            except (DecodeError, ClosedError) as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        model.close()
        thread.join()
        assert len(errors) == 1
        assert context.closed

    def test_a_batch_can_be_filled_by_one_and_decoded_by_another(self, tiny: Model) -> None:
        with Context(tiny, **OPTIONS) as context:
            batch = Batch(256)
            stop = threading.Event()

            def fill() -> None:
                while not stop.is_set():
                    batch.clear()
                    batch.add_sequence(tokens(50), 0, 0)

            thread = threading.Thread(target=fill)
            batch.add_sequence(tokens(50), 0, 0)
            thread.start()
            done = 0
            while done < 20:
                try:
                    context.decode(batch)
                    done += 1
                except ValueError as error:
                    assert "empty" in str(error)  # noqa: PT017
                context.memory.clear()
            stop.set()
            thread.join()
            assert done == 20

    def test_a_view_can_be_read_while_another_closes(self, tiny: Model) -> None:
        for _ in range(20):
            context = Context(tiny, **OPTIONS)
            context.decode(batch_of(5))
            view = context.logits()
            thread = threading.Thread(target=context.close)
            thread.start()
            assert np.isfinite(view).all()
            thread.join()
            assert np.isfinite(view).all()
