"""Evaluating batches: logits by every way of batching, views of them, and batches that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tiny import N_VOCAB, write_llama

from causerie import BusyError, CacheFullError, DecodeError, UnsupportedError
from causerie.llama import Batch, Context, Model, _errors, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(write_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", n_ctx=512)) as loaded:
        yield loaded


@pytest.fixture
def ctx(tiny: Model) -> Iterator[Context]:
    with Context(tiny, n_ctx=256, n_batch=64, n_ubatch=32, n_seq_max=4, n_threads=1) as context:
        yield context


def feed(context: Context, tokens: list[int] | np.ndarray, pos0: int = 0, seq: int = 0) -> int:
    batch = Batch(max(len(tokens), 1))
    last = batch.add_sequence(tokens, pos0, seq)
    context.decode(batch)
    return last


def nmse(found: np.ndarray, expected: np.ndarray) -> float:
    """Normalised mean squared error, as llama.cpp's tests measure it."""
    return float(np.mean((found - expected) ** 2) / np.mean(expected**2))


@pytest.fixture(scope="module")
def run(model: Model) -> Callable[..., np.ndarray]:
    ids = model.vocab.tokenize("The quick brown fox jumps over the lazy dog, and then it sleeps.")

    def run(chunk: int = len(ids), others: int = 0, **options: object) -> np.ndarray:
        with Context(model, **{"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, "n_seq_max": 4, **options}) as context:
            batch = Batch(64)
            for start in range(0, len(ids), chunk):
                batch.clear()
                for seq in range(1, 1 + others):
                    batch.add_sequence(ids[::-1][:chunk], start, seq, output_last=False)
                last = batch.add_sequence(ids[start : start + chunk], start, 0)
                context.decode(batch)
            return context.logits(last).copy()

    return run


class TestLogits:
    @pytest.mark.parametrize(
        "way",
        [{"chunk": 1}, {"chunk": 8}, {"n_ubatch": 4}, {"others": 2}, {"kv_unified": True}, {"n_threads_batch": 1}],
        ids=str,
    )
    def test_are_the_same_however_the_tokens_are_batched(self, run: Callable[..., np.ndarray], way: dict) -> None:
        assert (run(**way) == run()).all()

    def test_are_one_float32_per_token_of_the_vocabulary(self, ctx: Context) -> None:
        feed(ctx, [4, 5, 6])
        logits = ctx.logits()
        assert (logits.dtype, logits.shape) == (np.float32, (N_VOCAB,))
        assert np.isfinite(logits).all()

    def test_go_by_batch_index_or_from_the_end(self, ctx: Context) -> None:
        batch = Batch(4)
        for i, token in enumerate((4, 5, 6, 7)):
            batch.add(token, i, output=i in {1, 3})
        ctx.decode(batch)
        assert (ctx.logits(3) == ctx.logits(-1)).all()
        assert (ctx.logits(1) == ctx.logits(-2)).all()
        assert (ctx.logits(1) != ctx.logits(3)).any()

    def test_of_rows_in_mixed_order_belong_to_their_entries(self, ctx: Context, tiny: Model) -> None:
        batch = Batch(12)
        where = {}
        for i in range(3):
            for seq in range(4):
                index = batch.add(4 + 3 * seq + i, i, (seq,), output=i == 2)
                if i == 2:
                    where[seq] = index
        ctx.decode(batch)
        for seq in range(4):
            with Context(tiny, n_ctx=256, n_threads=1) as alone:
                feed(alone, [4 + 3 * seq + i for i in range(3)])
                assert nmse(ctx.logits(where[seq]), alone.logits()) < 1e-10

    @pytest.mark.parametrize("i", [0, 1, 3, 100, -2, -100, 2**40])
    def test_that_were_not_asked_for_are_an_index_error(self, ctx: Context, i: int) -> None:
        feed(ctx, [4, 5, 6])
        with pytest.raises(IndexError, match="output"):
            ctx.logits(i)

    @pytest.mark.parametrize("i", [1.0, "1", None, True])
    def test_go_by_ints_only(self, ctx: Context, i: object) -> None:
        feed(ctx, [4, 5])
        with pytest.raises(TypeError, match="index must be an int"):
            ctx.logits(i)  # type: ignore[arg-type]
        assert ctx.logits(np.int64(1)).size

    def test_are_none_before_the_first_and_after_a_failed_evaluation(self, ctx: Context) -> None:
        with pytest.raises(IndexError, match="nothing was evaluated yet"):
            ctx.logits()
        feed(ctx, [4, 5])
        with pytest.raises(DecodeError):
            feed(ctx, [4], pos0=9)
        with pytest.raises(IndexError, match="failed"):
            ctx.logits()

    def test_a_batch_without_output_gives_none(self, ctx: Context) -> None:
        batch = Batch(2)
        batch.add(4, 0)
        ctx.decode(batch)
        with pytest.raises(IndexError):
            ctx.logits()


class TestViews:
    def test_are_no_copies(self, ctx: Context) -> None:
        i = feed(ctx, [4, 5, 6])
        with ctx._resource as pointer:
            address = int(ffi.cast("uintptr_t", lib.llama_get_logits_ith(pointer, i)))
        view = ctx.logits(i)
        assert view.__array_interface__["data"][0] == address
        assert not view.flags.owndata
        assert np.shares_memory(view, ctx.logits(i))

    def test_outlive_the_context(self, tiny: Model) -> None:
        context = Context(tiny, n_ctx=256, n_threads=1)
        feed(context, [4, 5, 6])
        view, copy = context.logits(), context.logits().copy()
        context.close()
        assert (view == copy).all()

    def test_block_an_evaluation_that_would_move_them(self, ctx: Context) -> None:
        feed(ctx, [4])
        view = ctx.logits()
        kept = view.copy()
        batch = Batch(32)
        for i in range(32):
            batch.add(4, i + 1, output=True)
        with pytest.raises(BusyError, match="32 rows"):
            ctx.decode(batch)
        assert (view == kept).all()
        assert ctx.memory.seq_pos_max(0) == 0
        del view
        ctx.decode(batch)
        assert ctx.memory.seq_pos_max(0) == 32

    def test_do_not_block_an_evaluation_that_fits(self, ctx: Context) -> None:
        feed(ctx, [4])
        view = ctx.logits()
        before = view.copy()
        feed(ctx, [9], pos0=1)
        assert (view != before).any()

    def test_of_views_count_too(self, ctx: Context) -> None:
        feed(ctx, [4])
        part = ctx.logits()[3:9][::2]
        batch = Batch(32)
        for i in range(32):
            batch.add(4, i + 1, output=True)
        with pytest.raises(BusyError):
            ctx.decode(batch)
        assert part.size == 3


class TestRefusedBatches:
    def fails(self, context: Context, fill: Callable[[Batch], object], error: type, match: str, **options: int) -> None:
        """The batch is refused, nothing changes, and the context goes on."""
        feed(context, [4, 5])
        batch = Batch(128, **{"n_seq_max": 4, **options})
        fill(batch)
        with pytest.raises(error, match=match):
            context.decode(batch)
        assert [context.memory.seq_pos_max(s) for s in range(4)] == [1, -1, -1, -1]
        feed(context, [6], pos0=2)
        assert np.isfinite(context.logits()).all()

    def test_empty(self, ctx: Context) -> None:
        self.fails(ctx, lambda _: None, ValueError, "empty")

    def test_larger_than_n_batch(self, ctx: Context) -> None:
        self.fails(ctx, lambda b: b.add_sequence([4] * 65, 2, 0), ValueError, "more than n_batch=64")

    def test_a_token_out_of_range(self, ctx: Context) -> None:
        self.fails(ctx, lambda b: b.add(N_VOCAB, 2), ValueError, "token ids must be in 0..63")

    def test_a_sequence_out_of_range(self, ctx: Context) -> None:
        self.fails(ctx, lambda b: b.add(4, 0, (4,)), ValueError, "sequence ids must be in 0..3")

    def test_a_negative_token_written_into_the_array(self, ctx: Context) -> None:
        def fill(batch: Batch) -> None:
            batch.add(4, 2)
            assert batch.token is not None
            batch.token[0] = -1

        self.fails(ctx, fill, ValueError, "token ids")

    @pytest.mark.parametrize("position", [-1, -(2**31)])
    def test_a_negative_position_written_into_the_array(self, ctx: Context, position: int) -> None:
        def fill(batch: Batch) -> None:
            batch.add(4, 2)
            batch.pos[0] = position

        self.fails(ctx, fill, ValueError, "positions must not be negative")

    @pytest.mark.parametrize("count", [0, -1, 5, 2**31 - 1])
    def test_a_wrong_count_of_sequences_written_into_the_array(self, ctx: Context, count: int) -> None:
        def fill(batch: Batch) -> None:
            batch.add(4, 2)
            batch.n_seq_id[0] = count

        self.fails(ctx, fill, ValueError, "1..4 sequence ids")

    def test_a_wrong_sequence_in_an_unused_column_does_not_matter(self, ctx: Context) -> None:
        batch = Batch(2, n_seq_max=4)
        batch.add(4, 0)
        batch.seq_id[0, 1:] = 99
        ctx.decode(batch)

    @pytest.mark.parametrize(
        "entries",
        [
            [(4, 3, (0,))], [(4, 1, (0,))], [(4, 0, (0,))], [(4, 2, (0,)), (4, 4, (0,))], [(4, 3, (0,)), (4, 2, (0,))],
            [(4, 2, (0, 1))], [(4, 0, (1, 2)), (4, 1, (2, 3)), (4, 2, (1, 3))], [(4, 2**31 - 1, (0,))],
        ],
        ids=str,
    )  # fmt: skip
    def test_positions_that_do_not_continue(self, ctx: Context, entries: list) -> None:
        self.fails(ctx, lambda b: [b.add(*entry) for entry in entries], DecodeError, "refused the batch")

    def test_the_code_of_a_refusal_is_minus_one(self, ctx: Context) -> None:
        feed(ctx, [4])
        with pytest.raises(DecodeError, match=r"Y = X \+ 1") as caught:
            feed(ctx, [4], pos0=7)
        assert caught.value.code == -1

    def test_embeddings_of_another_width(self, ctx: Context) -> None:
        self.fails(ctx, lambda b: b.add_embedding([0.0] * 7, 2), ValueError, "n_embd_inp=32", n_embd=7)

    def test_embeddings_with_several_positions(self, ctx: Context) -> None:
        self.fails(ctx, lambda b: b.add_embedding([0.0] * 32, (2, 2, 2, 2)), ValueError, "n_pos", n_embd=32, n_pos=4)

    def test_without_causal_attention_more_than_n_ubatch(self, ctx: Context) -> None:
        ctx.set_causal_attn(False)
        batch = Batch(64)
        batch.add_sequence([4] * 33, 0, 0)
        with pytest.raises(ValueError, match="n_ubatch=32"):
            ctx.decode(batch)
        ctx.set_causal_attn(True)
        ctx.decode(batch)

    @pytest.mark.parametrize("name", ["gpt2-dense", "starcoder-dense", "mpt-dense"])
    def test_a_position_behind_the_models_table(self, tiny_models: dict[str, Path], name: str) -> None:
        with Model(tiny_models[name]) as model, Context(model, n_ctx=1024, n_threads=1) as context:
            feed(context, [4], pos0=model.n_ctx_train - 1)
            with pytest.raises(ValueError, match=r"has positions 0..255"):
                feed(context, [4], pos0=model.n_ctx_train)
            with pytest.raises(ValueError, match=r"has positions 0..255"):
                feed(context, [4], pos0=2**31 - 2, seq=0)


class TestFullCache:
    def test_changes_nothing_and_goes_on_when_there_is_room(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=256, n_batch=256, n_seq_max=2, kv_unified=True, n_threads=1) as context:
            feed(context, [4] * 200)
            with pytest.raises(CacheFullError, match="larger n_ctx"):
                feed(context, [5] * 57, seq=1)
            assert (context.memory.seq_pos_max(0), context.memory.seq_pos_max(1)) == (199, -1)
            feed(context, [5] * 56, seq=1)
            with pytest.raises(CacheFullError):
                feed(context, [5], pos0=200)
            context.memory.seq_rm(1)
            feed(context, [5], pos0=200)
            assert np.isfinite(context.logits()).all()

    def test_is_no_lack_of_memory_whatever_a_backend_warned_of(
        self, tiny: Model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        warned = "WARNING: failed to allocate 8.00 MiB of pinned memory"
        monkeypatch.setattr(_errors, "call_log", lambda: warned)
        with Context(tiny, n_ctx=256, n_threads=1) as context:
            feed(context, [4] * 256)
            with pytest.raises(CacheFullError, match=warned):
                feed(context, [4], pos0=256)


class TestEmbeddingInput:
    def test_gives_the_logits_of_the_token_it_is_the_row_of(self, tmp_path: Path) -> None:
        from gguf import GGUFReader

        path = write_llama(tmp_path / "t.gguf")
        table = next(t for t in GGUFReader(path).tensors if t.name == "token_embd.weight").data
        with Model(path) as model, Context(model, n_ctx=64, n_threads=1) as context:
            feed(context, [4, 5, 6])
            expected = context.logits().copy()
            context.memory.clear()
            batch = Batch(3, n_embd=model.n_embd_inp)
            for i, token in enumerate((4, 5, 6)):
                batch.add_embedding(table[token], i, output=i == 2)
            context.decode(batch)
            np.testing.assert_allclose(context.logits(), expected, rtol=1e-4, atol=1e-5)

    def test_with_four_positions_each(self, tiny_models: dict[str, Path]) -> None:
        with Model(tiny_models["qwen2vl-dense"]) as model, Context(model, n_ctx=64, n_threads=1) as context:
            batch = Batch(8, n_embd=model.n_embd_inp, n_pos=model.n_pos_embd)
            for i in range(3):
                batch.add_embedding(np.full(model.n_embd_inp, 0.1), (i, i, i, 0), output=i == 2)
            context.decode(batch)
            assert np.isfinite(context.logits()).all()
            one = Batch(8, n_embd=model.n_embd_inp)
            one.add_embedding(np.zeros(model.n_embd_inp), 3)
            with pytest.raises(ValueError, match="n_pos_embd=4"):
                context.decode(one)

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
    def test_that_is_not_finite_harms_nobody(self, ctx: Context, value: float) -> None:
        batch = Batch(1, n_embd=32)
        batch.add_embedding([value] * 32, 0, output=True)
        ctx.decode(batch)
        ctx.memory.clear()
        feed(ctx, [4])
        assert np.isfinite(ctx.logits()).all()


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"n_ctx": -1}, ValueError), ({"n_ctx": 2**31}, ValueError), ({"n_ctx": 1.0}, TypeError),
            ({"n_batch": 0}, ValueError), ({"n_ubatch": 0}, ValueError), ({"n_seq_max": 0}, ValueError),
            ({"n_seq_max": 257}, ValueError), ({"n_threads": 0}, ValueError), ({"n_threads": 10**6}, ValueError),
            ({"n_threads_batch": -1}, ValueError), ({"type_k": "f17"}, ValueError), ({"type_v": "i32"}, ValueError),
            ({"pooling": "max"}, ValueError), ({"attention": "both"}, ValueError), ({"flash_attn": True}, ValueError),
            ({"rope_scaling": "up"}, ValueError), ({"n_rs_seq": -1}, ValueError), ({"eval_callback": 5}, TypeError),
        ],
        ids=str,
    )  # fmt: skip
    def test_out_of_range_are_refused(self, tiny: Model, options: dict, error: type) -> None:
        with pytest.raises(error):
            Context(tiny, **{"n_ctx": 64, **options})

    def test_that_llama_cpp_refuses_are_a_value_error_with_its_reason(self, tiny: Model) -> None:
        with pytest.raises(ValueError, match=r"flash_attn|V cache"):
            Context(tiny, n_ctx=64, type_v="q8_0", flash_attn="disabled")

    def test_sizes_are_told_as_llama_cpp_rounded_them(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=64, n_seq_max=3, n_batch=1000, n_ubatch=1000) as context:
            assert (context.n_ctx, context.n_ctx_seq, context.n_seq_max) == (768, 256, 3)
            assert context.n_batch >= context.n_ubatch
        with Context(tiny, n_ctx=64, n_seq_max=3, kv_unified=True) as context:
            assert (context.n_ctx, context.n_ctx_seq) == (256, 256)
        with Context(tiny) as context:
            assert context.n_ctx == tiny.n_ctx_train

    def test_threads_can_be_changed(self, ctx: Context) -> None:
        ctx.set_n_threads(2, 1)
        assert (ctx.n_threads, ctx.n_threads_batch) == (2, 1)
        ctx.set_n_threads(1)
        assert (ctx.n_threads, ctx.n_threads_batch) == (1, 1)
        with pytest.raises(ValueError, match="n_threads"):
            ctx.set_n_threads(0)

    def test_times_are_counted_when_asked_for(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=64, no_perf=False, n_threads=1) as context:
            feed(context, [4, 5, 6])
            context.synchronize()
            feed(context, [4], pos0=3)
            context.synchronize()
            perf = context.perf()
            assert (perf.n_prompt, perf.n_eval) == (3, 1)
            assert perf.prompt_ms > 0
            context.perf_reset()
            assert context.perf().n_prompt <= 1

    @pytest.mark.parametrize("kind", ["f32", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
    def test_any_cache_type_gives_about_the_same(self, model: Model, kind: str) -> None:
        found = []
        for type_k in ("f16", kind):
            with Context(model, n_ctx=64, n_batch=32, n_ubatch=32, type_k=type_k, type_v=type_k) as context:
                feed(context, [1, 504, 4000])
                found.append(context.logits().copy())
        assert nmse(found[1], found[0]) < 0.5

    @pytest.mark.parametrize("kind", ["i8", "i32", "i64", "f64", "q8_1", "q4_K", "mxfp4"])
    def test_a_cache_type_that_would_crash_is_refused(self, tiny: Model, kind: str) -> None:
        for name in ("type_k", "type_v"):
            with pytest.raises(ValueError, match=f"{name} must be one of f32, f16"):
                Context(tiny, n_ctx=64, **{name: kind})

    def test_embeddings_are_given_only_when_asked_for(self, ctx: Context) -> None:
        feed(ctx, [4, 5])
        with pytest.raises(UnsupportedError, match="embeddings=True"):
            ctx.embeddings()
        with pytest.raises(UnsupportedError, match="embeddings=True"):
            ctx.embeddings_seq(0)
        ctx.set_embeddings(True)
        with pytest.raises(IndexError):
            ctx.embeddings()
        feed(ctx, [6], pos0=2)
        assert ctx.embeddings().shape == (32,)
        ctx.set_embeddings(False)
        feed(ctx, [6], pos0=3)
        assert ctx.logits().shape == (N_VOCAB,)
