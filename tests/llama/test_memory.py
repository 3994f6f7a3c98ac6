"""Sequence operations on every kind of memory, compared with evaluating anew; and what cannot be done is refused."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from causerie import UnsupportedError
from causerie.llama import Batch, Context, Memory, Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = {
    "llama-dense": "plain", "deepseek2-moe": "latent (MLA)", "gemma3-dense": "sliding window",
    "gpt-oss-moe": "sliding window with sinks", "qwen2vl-dense": "M-RoPE", "minimax-m3-moe": "sparse",
    "mamba-dense": "recurrent", "jamba-dense": "hybrid", "falcon-h1-dense": "hybrid", "qwen35-dense": "hybrid M-RoPE",
    "lfm2-dense": "hybrid with a window", "deepseek4-moe": "compressed",
}  # fmt: skip
WHOLE_ONLY = {"mamba-dense", "jamba-dense", "falcon-h1-dense", "qwen35-dense", "lfm2-dense", "deepseek4-moe"}
NO_SHIFT = {"qwen2vl-dense", "qwen35-dense", "lfm2-dense", "deepseek4-moe"}
NO_COPY = {"deepseek4-moe"}
WINDOWED = {"gemma3-dense", "gpt-oss-moe"}
TOKENS = [(7 * i * i + 3 * i) % 100 + 1 for i in range(400)]
NEXT = [(5 * i * i + i) % 100 + 9 for i in range(8)]


@pytest.fixture(scope="module")
def load(tiny_models: dict[str, Path]) -> Iterator[Callable[[str], Model]]:
    with ExitStack() as stack:
        loaded: dict[str, Model] = {}

        def load(name: str) -> Model:
            if name not in loaded:
                loaded[name] = stack.enter_context(Model(tiny_models[name]))
            return loaded[name]

        yield load


def new(model: Model, **options: object) -> Context:
    """A context whose cache does not round, so that results can be compared strictly."""
    exact = {"type_k": "f32", "type_v": "f32", "flash_attn": "disabled", "n_threads": 1}
    return Context(model, **{"n_ctx": 1024, "n_batch": 64, "n_ubatch": 32, "n_seq_max": 3, **exact, **options})


def feed(context: Context, tokens: list[int], pos0: int = 0, seq: int = 0) -> np.ndarray:
    batch = Batch(64)
    for start in range(0, len(tokens), 64):
        batch.clear()
        batch.add_sequence(tokens[start : start + 64], pos0 + start, seq)
        context.decode(batch)
    return context.logits().copy()


def nmse(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.mean((found - expected) ** 2) / np.mean(expected**2))


def anew(model: Model, tokens: list[int], **options: object) -> np.ndarray:
    with new(model, **options) as context:
        return feed(context, tokens)


def spans(memory: Memory, n: int = 3) -> list[tuple[int, int]]:
    return [(memory.seq_pos_min(s), memory.seq_pos_max(s)) for s in range(n)]


@pytest.fixture(params=KINDS, ids=str)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(load: Callable[[str], Model], name: str) -> Model:
    return load(name)


class TestEveryKind:
    def test_an_empty_one_holds_nothing(self, model: Model) -> None:
        with new(model) as context:
            assert spans(context.memory) == [(-1, -1)] * 3
            context.memory.seq_rm(0)
            context.memory.seq_rm(-1)
            context.memory.seq_rm(0, 3, 9)
            context.memory.seq_cp(0, 1)
            context.memory.seq_keep(2)
            context.memory.clear()
            assert spans(context.memory) == [(-1, -1)] * 3

    def test_positions_are_told(self, model: Model, name: str) -> None:
        with new(model) as context:
            feed(context, TOKENS[:20], seq=1)
            assert context.memory.seq_pos_max(1) == 19
            assert context.memory.seq_pos_min(1) == (19 if name in WHOLE_ONLY else 0)
            assert spans(context.memory)[0] == (-1, -1)

    @pytest.mark.parametrize("whole", [(-1, -1), (0, -1), (0, 20), (-5, 2**31 - 1)], ids=str)
    @pytest.mark.parametrize("unified", [True, False])
    def test_a_whole_sequence_can_be_removed(self, model: Model, whole: tuple[int, int], unified: bool) -> None:
        with new(model, kv_unified=unified) as context:
            feed(context, TOKENS[:20])
            feed(context, TOKENS[:10], seq=1)
            context.memory.seq_rm(0, *whole)
            assert spans(context.memory)[0] == (-1, -1)
            assert context.memory.seq_pos_max(1) == 9
            assert nmse(feed(context, NEXT, seq=0), anew(model, NEXT)) < 1e-10
            assert nmse(feed(context, NEXT, 10, seq=1), anew(model, TOKENS[:10] + NEXT)) < 1e-10

    @pytest.mark.parametrize("unified", [True, False])
    def test_all_sequences_can_be_removed(self, model: Model, unified: bool) -> None:
        with new(model, kv_unified=unified) as context:
            for seq in range(3):
                feed(context, TOKENS[: 10 + seq], seq=seq)
            context.memory.seq_rm(-1)
            assert spans(context.memory) == [(-1, -1)] * 3
            assert nmse(feed(context, NEXT, seq=2), anew(model, NEXT)) < 1e-10

    def test_clear_forgets_all(self, model: Model) -> None:
        with new(model) as context:
            feed(context, TOKENS[:20], seq=2)
            context.memory.clear(data=False)
            assert spans(context.memory) == [(-1, -1)] * 3
            assert nmse(feed(context, NEXT), anew(model, NEXT)) < 1e-10

    @pytest.mark.parametrize("cut", [1, 12, 19])
    def test_the_end_can_be_removed_or_is_refused(self, model: Model, name: str, cut: int) -> None:
        with new(model) as context:
            feed(context, TOKENS[:20])
            before = spans(context.memory)
            if name in WHOLE_ONLY:
                with pytest.raises(UnsupportedError, match=r"recurrent state|cannot be removed"):
                    context.memory.seq_rm(0, cut, -1)
                assert spans(context.memory) == before
                assert nmse(feed(context, NEXT, 20), anew(model, TOKENS[:20] + NEXT)) < 1e-10
            else:
                context.memory.seq_rm(0, cut, -1)
                assert spans(context.memory)[0] == (0, cut - 1)
                assert nmse(feed(context, NEXT, cut), anew(model, TOKENS[:cut] + NEXT)) < 1e-10

    @pytest.mark.parametrize("part", [(0, 5), (5, 10), (-1, 19)])
    def test_another_part_can_be_removed_or_is_refused(self, model: Model, name: str, part: tuple[int, int]) -> None:
        with new(model) as context:
            feed(context, TOKENS[:20])
            before = spans(context.memory)
            if name in WHOLE_ONLY:
                with pytest.raises(UnsupportedError, match="recurrent state"):
                    context.memory.seq_rm(0, *part)
                with pytest.raises(UnsupportedError):
                    context.memory.seq_rm(-1, *part)
                assert spans(context.memory) == before
                assert nmse(feed(context, NEXT, 20), anew(model, TOKENS[:20] + NEXT)) < 1e-10
            else:
                context.memory.seq_rm(0, *part)
                assert spans(context.memory)[0] == (0 if part[0] == 5 else part[1], 19)
                assert np.isfinite(feed(context, NEXT, 20)).all()

    @pytest.mark.parametrize("part", [(20, -1), (25, 30), (5, 5), (9, 3), (0, 0)])
    def test_removing_nothing_changes_nothing(self, model: Model, part: tuple[int, int]) -> None:
        with new(model) as context:
            feed(context, TOKENS[:20])
            before = spans(context.memory)
            context.memory.seq_rm(0, *part)
            assert spans(context.memory) == before
            assert nmse(feed(context, NEXT, 20), anew(model, TOKENS[:20] + NEXT)) < 1e-10

    @pytest.mark.parametrize("unified", [True, False])
    def test_a_copy_goes_its_own_way(self, model: Model, name: str, unified: bool) -> None:
        with new(model, kv_unified=unified) as context:
            feed(context, TOKENS[:20])
            if name in NO_COPY:
                with pytest.raises(UnsupportedError, match="seq_get"):
                    context.memory.seq_cp(0, 1)
                return
            context.memory.seq_cp(0, 1)
            assert spans(context.memory)[1] == spans(context.memory)[0]
            one = feed(context, NEXT, 20, seq=1)
            other = feed(context, NEXT[::-1], 20, seq=0)
            assert nmse(one, anew(model, TOKENS[:20] + NEXT)) < 1e-10
            assert nmse(other, anew(model, TOKENS[:20] + NEXT[::-1])) < 1e-10
            context.memory.seq_rm(0)
            again = feed(context, NEXT, 28, seq=1)
            assert nmse(again, anew(model, TOKENS[:20] + NEXT + NEXT)) < 1e-10

    @pytest.mark.parametrize("unified", [True, False])
    def test_a_part_can_be_copied_or_is_refused(self, model: Model, name: str, unified: bool) -> None:
        with new(model, kv_unified=unified) as context:
            feed(context, TOKENS[:20])
            if unified and name not in WHOLE_ONLY:
                context.memory.seq_cp(0, 1, 0, 12)
                assert spans(context.memory)[1] == (0, 11)
                assert nmse(feed(context, NEXT, 12, seq=1), anew(model, TOKENS[:12] + NEXT)) < 1e-10
            else:
                with pytest.raises(UnsupportedError):
                    context.memory.seq_cp(0, 1, 0, 12)
                assert spans(context.memory)[1] == (-1, -1)
            assert nmse(feed(context, NEXT, 20), anew(model, TOKENS[:20] + NEXT)) < 1e-10

    @pytest.mark.parametrize("unified", [True, False])
    def test_keeping_one_forgets_the_others(self, model: Model, unified: bool) -> None:
        with new(model, kv_unified=unified) as context:
            for seq in range(3):
                feed(context, TOKENS[seq : seq + 20], seq=seq)
            context.memory.seq_keep(1)
            assert [last for _, last in spans(context.memory)] == [-1, 19, -1]
            assert nmse(feed(context, NEXT, 20, seq=1), anew(model, TOKENS[1:21] + NEXT)) < 1e-10
            assert nmse(feed(context, NEXT, seq=0), anew(model, NEXT)) < 1e-10

    def test_shifting_all_positions_changes_nothing_or_is_refused(self, model: Model, name: str) -> None:
        with new(model) as context:
            feed(context, TOKENS[:20])
            assert context.memory.can_shift == (name not in NO_SHIFT)
            if name in NO_SHIFT:
                with pytest.raises(UnsupportedError, match="cannot be shifted"):
                    context.memory.seq_add(0, 0, -1, 7)
                with pytest.raises(UnsupportedError, match="cannot be shifted"):
                    context.memory.seq_div(0, 0, -1, 2)
                assert nmse(feed(context, NEXT, 20), anew(model, TOKENS[:20] + NEXT)) < 1e-10
            else:
                context.memory.seq_add(0, 0, -1, 7)
                assert context.memory.seq_pos_max(0) == 26
                assert nmse(feed(context, NEXT, 27), anew(model, TOKENS[:20] + NEXT)) < 1e-7

    def test_ids_out_of_range_are_a_value_error(self, model: Model) -> None:
        with new(model) as context:
            m = context.memory
            for bad in (-2, 3, 256, 2**31):
                for call in (m.seq_rm, m.seq_keep, m.seq_pos_min, m.seq_pos_max, partial(m.seq_cp, 0)):
                    with pytest.raises(ValueError, match="sequence id"):
                        call(bad)
                with pytest.raises(ValueError, match="sequence id"):
                    m.seq_cp(bad, 0)
                with pytest.raises(ValueError, match="sequence id"):
                    m.seq_add(bad, 0, -1, 1)
            for call in (m.seq_cp, m.seq_keep, m.seq_pos_max):
                with pytest.raises((ValueError, TypeError)):
                    call(-1)  # type: ignore[arg-type]


class TestSlidingWindow:
    @pytest.mark.parametrize("name", sorted(WINDOWED))
    def test_the_end_can_be_removed_while_the_window_before_is_there(
        self, load: Callable[[str], Model], name: str
    ) -> None:
        model = load(name)
        removed = refused = 0
        for cut in (399, 380, 370, 300, 200, 40):
            with new(model, swa_full=False) as context:
                feed(context, TOKENS)
                before = spans(context.memory)
                try:
                    context.memory.seq_rm(0, cut, -1)
                except UnsupportedError as error:
                    assert "window" in str(error)  # noqa: PT017
                    assert spans(context.memory) == before
                    expected = anew(model, TOKENS + NEXT, swa_full=False)
                    assert nmse(feed(context, NEXT, 400), expected) < 1e-10
                    refused += 1
                else:
                    expected = anew(model, TOKENS[:cut] + NEXT)
                    assert nmse(feed(context, NEXT, cut), expected) < 1e-10
                    removed += 1
        assert removed
        assert refused

    @pytest.mark.parametrize("name", sorted(WINDOWED))
    def test_with_a_full_cache_any_end_can_be_removed(self, load: Callable[[str], Model], name: str) -> None:
        model = load(name)
        with new(model, swa_full=True) as context:
            feed(context, TOKENS)
            context.memory.seq_rm(0, 40, -1)
            assert nmse(feed(context, NEXT, 40), anew(model, TOKENS[:40] + NEXT)) < 1e-10

    def test_a_prefix_whose_window_is_gone_cannot_be_copied(self, load: Callable[[str], Model]) -> None:
        with new(load("gemma3-dense"), swa_full=False, kv_unified=True, n_ctx=2048) as context:
            feed(context, TOKENS + TOKENS + TOKENS)
            with pytest.raises(UnsupportedError, match="window"):
                context.memory.seq_cp(0, 1, 0, 100)
            context.memory.seq_cp(0, 1)
            assert context.memory.seq_pos_max(1) == 1199

    def test_without_a_full_cache_nothing_can_be_shifted(self, load: Callable[[str], Model]) -> None:
        with new(load("gemma3-dense"), swa_full=False) as context:
            assert not context.memory.can_shift


class TestShift:
    @pytest.fixture
    def context(self, load: Callable[[str], Model]) -> Iterator[Context]:
        with new(load("llama-dense"), kv_unified=True) as context:
            feed(context, TOKENS[:20])
            yield context

    def test_closes_a_gap(self, context: Context) -> None:
        context.memory.seq_rm(0, 4, 9)
        context.memory.seq_add(0, 9, -1, -5)
        assert spans(context.memory)[0] == (0, 14)
        assert np.isfinite(feed(context, NEXT, 15)).all()

    def test_back_and_forth_changes_nothing(self, context: Context) -> None:
        expected = anew(context.model, TOKENS[:20] + NEXT)
        context.memory.seq_add(0, 0, -1, 100)
        context.memory.seq_add(0, 0, -1, -100)
        assert nmse(feed(context, NEXT, 20), expected) < 1e-9

    @pytest.mark.parametrize(
        ("p0", "p1", "delta"),
        [(0, -1, -1), (5, -1, -6), (19, 20, -20), (0, -1, 2**31 - 1), (0, -1, -(2**31)), (-1, -1, 2**31 - 19)],
    )
    def test_out_of_range_changes_nothing(self, context: Context, p0: int, p1: int, delta: int) -> None:
        with pytest.raises(ValueError, match="would move positions"):
            context.memory.seq_add(0, p0, p1, delta)
        assert spans(context.memory)[0] == (0, 19)
        assert nmse(feed(context, NEXT, 20), anew(context.model, TOKENS[:20] + NEXT)) < 1e-10

    @pytest.mark.parametrize(
        "arguments", [(0, 0, -1, 2**31), (0, 2**31, -1, 1), (0, 0, -(2**31) - 1, 1), (0, 0, 2**40, 1)]
    )
    def test_arguments_beyond_32_bits_are_a_value_error(self, context: Context, arguments: tuple) -> None:
        with pytest.raises(ValueError, match="must be in"):
            context.memory.seq_add(*arguments)

    @pytest.mark.parametrize("value", [1.0, "1", None, True])
    def test_arguments_that_are_no_ints_are_a_type_error(self, context: Context, value: object) -> None:
        for arguments in ((value, 0, -1, 1), (0, value, -1, 1), (0, 0, value, 1), (0, 0, -1, value)):
            with pytest.raises(TypeError, match="must be an int"):
                context.memory.seq_add(*arguments)  # type: ignore[arg-type]

    def test_numpy_ints_will_do(self, context: Context) -> None:
        context.memory.seq_add(np.int32(0), np.int64(0), np.int8(-1), np.int64(3))
        assert context.memory.seq_pos_max(np.int64(0)) == 22

    def test_a_range_that_holds_nothing_may_go_anywhere(self, context: Context) -> None:
        context.memory.seq_add(0, 50, 60, -1000)
        assert spans(context.memory)[0] == (0, 19)

    def test_division_rounds_down(self, context: Context) -> None:
        context.memory.seq_div(0, 0, -1, 4)
        assert spans(context.memory)[0] == (0, 4)
        assert np.isfinite(feed(context, NEXT, 5)).all()

    @pytest.mark.parametrize("d", [1, 0, -2, 2**31])
    def test_a_divisor_below_two_is_refused(self, context: Context, d: int) -> None:
        with pytest.raises(ValueError, match="d must be in"):
            context.memory.seq_div(0, 0, -1, d)

    def test_quantised_keys_can_be_rotated_where_llama_cpp_can(self, load: Callable[[str], Model]) -> None:
        found = []
        for shift in (0, 7):
            with new(load("llama-dense"), type_k="q8_0") as context:
                feed(context, TOKENS[:20])
                context.memory.seq_add(0, 0, -1, shift)
                found.append(feed(context, NEXT, 20 + shift))
        assert nmse(found[1], found[0]) < 1e-3

    @pytest.mark.parametrize("name", ["minimax-m3-moe", "laguna-moe"])
    def test_other_quantised_keys_cannot_be_rotated(self, load: Callable[[str], Model], name: str) -> None:
        with new(load(name), type_k="q8_0") as context:
            feed(context, TOKENS[:20])
            assert not context.memory.can_shift
            with pytest.raises(UnsupportedError, match="cannot be shifted"):
                context.memory.seq_add(0, 0, -1, 1)
            feed(context, NEXT, 20)

    def test_keys_in_bf16_cannot_be_rotated(self, load: Callable[[str], Model]) -> None:
        with new(load("llama-dense"), type_k="bf16", type_v="bf16") as context:
            feed(context, TOKENS[:20])
            assert not context.memory.can_shift
            with pytest.raises(UnsupportedError, match="cannot be shifted"):
                context.memory.seq_add(0, 0, -1, 1)
            feed(context, NEXT, 20)


class TestSnapshots:
    """Recurrent state with n_rs_seq can be rolled back by a few tokens."""

    @pytest.mark.parametrize("name", ["qwen35-dense", "mamba-dense"])
    def test_a_few_tokens_can_be_taken_back_or_are_refused(self, load: Callable[[str], Model], name: str) -> None:
        model = load(name)
        with new(model, n_rs_seq=4, n_seq_max=1) as context:
            feed(context, TOKENS[:20])
            try:
                context.memory.seq_rm(0, 18, -1)
            except UnsupportedError:
                assert nmse(feed(context, NEXT, 20), anew(model, TOKENS[:20] + NEXT)) < 1e-10
            else:
                assert context.memory.seq_pos_max(0) == 17
                assert nmse(feed(context, NEXT, 18), anew(model, TOKENS[:18] + NEXT)) < 1e-10
            with pytest.raises(UnsupportedError):
                context.memory.seq_rm(0, 3, -1)

    def test_a_shared_state_is_not_rolled_back(self, load: Callable[[str], Model]) -> None:
        model = load("qwen35-dense")
        with new(model, n_rs_seq=4, n_seq_max=2) as context:
            feed(context, TOKENS[:20])
            context.memory.seq_cp(0, 1)
            with pytest.raises(UnsupportedError, match="shares its state"):
                context.memory.seq_rm(1, 18, -1)
            assert nmse(feed(context, NEXT, 20, seq=0), anew(model, TOKENS[:20] + NEXT)) < 1e-10


def test_a_model_that_only_encodes_has_no_memory(tmp_path: Path) -> None:
    from tiny import write_bert

    with Model(write_bert(tmp_path / "bert.gguf")) as bert, Context(bert, n_ctx=64, embeddings=True) as context:
        for call in (context.memory.clear, partial(context.memory.seq_rm, 0), partial(context.memory.seq_pos_max, 0)):
            with pytest.raises(UnsupportedError, match="no memory"):
                call()
