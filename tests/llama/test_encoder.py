"""Models that encode: embeddings per token and pooled, classifiers, encoder-decoders, diffusion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from gguf import PoolingType
from tiny import N_EMBD, N_VOCAB, write_bert, write_llama, write_t5

from causerie import BusyError, DecodeError, UnsupportedError
from causerie.llama import Batch, Context, Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = [2, 4, 31, 32, 3]
OTHER = [2, 9, 40, 3]
OPTIONS = {"n_ctx": 64, "n_batch": 64, "n_ubatch": 64, "n_threads": 1}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(write_bert(tmp_path_factory.mktemp("bert") / "bert.gguf")) as model:
        yield model


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write_bert(
        tmp_path_factory.mktemp("rank") / "rank.gguf", pooling=PoolingType.RANK, labels=["no", "maybe", "yes"]
    )
    with Model(path) as model:
        yield model


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(write_t5(tmp_path_factory.mktemp("t5") / "t5.gguf")) as model:
        yield model


def batch_of(*sequences: list[int], n_seq_max: int = 1) -> Batch:
    batch = Batch(64, n_seq_max=n_seq_max)
    for seq, tokens in enumerate(sequences):
        batch.add_sequence(tokens, 0, seq)
    return batch


def per_token(model: Model, tokens: list[int]) -> np.ndarray:
    with Context(model, **OPTIONS, embeddings=True, pooling="none") as context:
        context.encode(batch_of(tokens))
        return np.array([context.embeddings(i) for i in range(len(tokens))])


class TestEmbeddings:
    def test_per_token_are_float32_rows_without_a_copy(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True, pooling="none") as context:
            context.encode(batch_of(TEXT))
            row = context.embeddings(1)
            assert (row.dtype, row.shape) == (np.float32, (N_EMBD,))
            assert np.shares_memory(row, context.embeddings(1))
            assert (context.embeddings(-1) == context.embeddings(len(TEXT) - 1)).all()
            assert len({tuple(context.embeddings(i)) for i in range(len(TEXT))}) == len(TEXT)

    def test_all_tokens_have_one_whether_asked_or_not(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True, pooling="none") as context:
            batch = Batch(8)
            for i, token in enumerate(TEXT):
                batch.add(token, i)
            context.encode(batch)
            assert np.isfinite([context.embeddings(i) for i in range(len(TEXT))]).all()

    @pytest.mark.parametrize(
        ("pooling", "pool"),
        [("mean", lambda rows: rows.mean(0)), ("cls", lambda rows: rows[0]), ("last", lambda rows: rows[-1])],
    )
    def test_pooled_are_what_the_pooling_says(self, bert: Model, pooling: str, pool: object) -> None:
        with Context(bert, **OPTIONS, embeddings=True, pooling=pooling) as context:
            context.encode(batch_of(TEXT))
            np.testing.assert_allclose(context.embeddings_seq(0), pool(per_token(bert, TEXT)), rtol=1e-4, atol=1e-5)

    def test_of_several_sequences_equal_those_of_each_alone(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True, n_seq_max=4) as context:
            context.encode(batch_of(TEXT, OTHER, TEXT[::-1]))
            together = [context.embeddings_seq(seq) for seq in range(3)]
            for seq, tokens in enumerate((TEXT, OTHER, TEXT[::-1])):
                context.encode(batch_of(tokens))
                np.testing.assert_allclose(together[seq], context.embeddings_seq(0), rtol=1e-4, atol=1e-5)

    def test_of_a_sequence_are_a_copy(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True) as context:
            context.encode(batch_of(TEXT))
            first = context.embeddings_seq(0)
            kept = first.copy()
            context.encode(batch_of(OTHER))
            assert (first == kept).all()
            assert (first != context.embeddings_seq(0)).any()

    def test_of_a_sequence_that_was_not_in_the_batch_are_an_index_error(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True, n_seq_max=4) as context:
            with pytest.raises(IndexError):
                context.embeddings_seq(0)
            context.encode(batch_of(TEXT))
            with pytest.raises(IndexError, match="sequence 1"):
                context.embeddings_seq(1)
            with pytest.raises(ValueError, match="sequence id"):
                context.embeddings_seq(4)

    def test_of_the_wrong_kind_are_refused(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True) as context:
            context.encode(batch_of(TEXT))
            with pytest.raises(UnsupportedError, match="embeddings_seq"):
                context.embeddings(0)
        with Context(bert, **OPTIONS, embeddings=True, pooling="none") as context:
            context.encode(batch_of(TEXT))
            with pytest.raises(UnsupportedError, match="pooling"):
                context.embeddings_seq(0)
        with Context(bert, **OPTIONS) as context:
            context.encode(batch_of(TEXT))
            with pytest.raises(UnsupportedError, match="embeddings=True"):
                context.embeddings(0)

    def test_need_micro_batches_that_the_sequences_divide(self, bert: Model) -> None:
        with pytest.raises(ValueError, match="n_ubatch=64 must be a multiple of n_seq_max=3"):
            Context(bert, **OPTIONS, embeddings=True, n_seq_max=3)

    def test_models_have_no_logits(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True) as context:
            context.encode(batch_of(TEXT))
            with pytest.raises(UnsupportedError, match="no logits"):
                context.logits(0)

    def test_decode_does_the_same_where_there_is_no_memory(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True) as context:
            context.encode(batch_of(TEXT))
            expected = context.embeddings_seq(0)
            context.decode(batch_of(TEXT))
            assert (context.embeddings_seq(0) == expected).all()

    def test_longer_than_n_ubatch_is_refused(self, bert: Model) -> None:
        with Context(bert, n_ctx=64, n_batch=64, n_ubatch=4, embeddings=True) as context:
            for call in (context.encode, context.decode):
                with pytest.raises(ValueError, match=f"n_ubatch={context.n_ubatch}"):
                    call(batch_of([4] * 60))

    def test_longer_than_the_models_positions_is_refused(self, bert: Model) -> None:
        with Context(bert, n_ctx=128, n_batch=128, n_ubatch=128, embeddings=True) as context:
            batch = Batch(128)
            batch.add_sequence([4] * 65, 0, 0)
            with pytest.raises(ValueError, match=r"positions 0..63, not 64"):
                context.encode(batch)

    def test_of_a_chat_model_come_with_its_logits(self, tmp_path: Path) -> None:
        with Model(write_llama(tmp_path / "l.gguf")) as model:
            with Context(model, **OPTIONS) as plain:
                plain.decode(batch_of(TEXT))
                expected = plain.logits().copy()
            with Context(model, **OPTIONS, embeddings=True) as context:
                context.decode(batch_of(TEXT))
                np.testing.assert_allclose(context.logits(), expected, rtol=1e-4, atol=1e-5)
                assert context.embeddings(0).shape == (N_EMBD,)
                assert (context.embeddings(0) != context.embeddings(1)).any()
            with Context(model, **OPTIONS, embeddings=True, pooling="last") as context:
                context.decode(batch_of(TEXT))
                assert context.embeddings_seq(0).shape == (N_EMBD,)

    def test_a_view_blocks_a_batch_that_would_move_it(self, bert: Model) -> None:
        with Context(bert, **OPTIONS, embeddings=True, pooling="none") as context:
            context.encode(batch_of(OTHER))
            view = context.embeddings(0)
            kept = view.copy()
            with pytest.raises(BusyError):
                context.encode(batch_of([4] * 40))
            assert (view == kept).all()
            del view
            context.encode(batch_of([4] * 40))


class TestRank:
    def test_gives_one_score_per_label(self, reranker: Model) -> None:
        assert reranker.classifier_labels == ("no", "maybe", "yes")
        with Context(reranker, **OPTIONS, embeddings=True, n_seq_max=2) as context:
            context.encode(batch_of(TEXT, OTHER))
            one, two = context.embeddings_seq(0), context.embeddings_seq(1)
            assert one.shape == two.shape == (3,)
            assert (one != two).any()
            context.encode(batch_of(OTHER))
            np.testing.assert_allclose(context.embeddings_seq(0), two, rtol=1e-4, atol=1e-5)

    def test_of_a_model_without_a_classifier_is_refused_or_gives_numbers(self, bert: Model) -> None:
        try:
            context = Context(bert, **OPTIONS, embeddings=True, pooling="rank")
        except ValueError:
            return
        with context:
            context.encode(batch_of(TEXT))
            assert np.isfinite(context.embeddings_seq(0)).all()


class TestEncoderDecoder:
    def test_decodes_what_it_has_encoded(self, t5: Model) -> None:
        assert (t5.has_encoder, t5.has_decoder, t5.decoder_start_token) == (True, True, 0)
        found = []
        for source in (TEXT, OTHER, TEXT):
            with Context(t5, **OPTIONS) as context:
                context.encode(batch_of(source))
                context.decode(batch_of([0]))
                found.append(context.logits().copy())
                assert found[-1].shape == (N_VOCAB,)
                second = Batch(1)
                second.add(5, 1, output=True)
                context.decode(second)
                assert np.isfinite(context.logits()).all()
        assert (found[0] == found[2]).all()
        assert (found[0] != found[1]).any()

    def test_decoding_before_encoding_is_refused(self, t5: Model) -> None:
        with Context(t5, **OPTIONS) as context:
            with pytest.raises(UnsupportedError, match="encode"):
                context.decode(batch_of([0]))
            context.encode(batch_of(TEXT))
            context.decode(batch_of([0]))

    def test_a_failed_encoding_does_not_count(self, t5: Model) -> None:
        with Context(t5, **OPTIONS) as context:
            with pytest.raises(ValueError, match="empty"):
                context.encode(Batch(1))
            with pytest.raises(UnsupportedError, match="encode"):
                context.decode(batch_of([0]))

    def test_the_encoder_gives_no_logits(self, t5: Model) -> None:
        with Context(t5, **OPTIONS) as context:
            context.encode(batch_of(TEXT))
            with pytest.raises(UnsupportedError, match="no logits"):
                context.logits()
            context.decode(batch_of([0]))
            context.logits()

    def test_the_encoder_gives_embeddings(self, t5: Model) -> None:
        with Context(t5, **OPTIONS, embeddings=True, pooling="none") as context:
            context.encode(batch_of(TEXT))
            assert np.isfinite([context.embeddings(i) for i in range(len(TEXT))]).all()

    def test_a_longer_source_after_a_view_is_refused_until_it_is_gone(self, t5: Model) -> None:
        with Context(t5, **OPTIONS) as context:
            context.encode(batch_of(OTHER))
            context.decode(batch_of([0]))
            view = context.logits()
            with pytest.raises(BusyError):
                context.encode(batch_of([4] * 40))
            del view
            with pytest.raises(DecodeError, match="Y = X"):  # llama.cpp looks at what the decoder remembers
                context.encode(batch_of([4] * 40))
            context.memory.clear()
            context.encode(batch_of([4] * 40))

    def test_the_memory_of_the_decoder_can_be_used(self, t5: Model) -> None:
        with Context(t5, **OPTIONS) as context:
            context.encode(batch_of(TEXT))
            context.decode(batch_of([0, 5, 6]))
            expected = context.logits().copy()
            context.memory.seq_rm(0, 2, -1)
            batch = Batch(1)
            batch.add(6, 2, output=True)
            context.decode(batch)
            np.testing.assert_allclose(context.logits(), expected, rtol=1e-3, atol=1e-4)


def test_a_model_without_an_encoder_refuses_to_encode(tmp_path: Path) -> None:
    with Model(write_llama(tmp_path / "l.gguf")) as model, Context(model, **OPTIONS) as context:
        with pytest.raises(UnsupportedError, match="no encoder"):
            context.encode(batch_of(TEXT))
        context.decode(batch_of(TEXT))


class TestDiffusion:
    @pytest.mark.parametrize("name", ["llada-dense", "dream-dense"])
    def test_gives_logits_of_every_token_without_memory(self, tiny_models: dict[str, Path], name: str) -> None:
        with Model(tiny_models[name]) as model, Context(model, **OPTIONS) as context:
            for _ in range(2):
                context.decode(batch_of(TEXT))
                rows = [context.logits(i).copy() for i in range(len(TEXT))]
                assert np.isfinite(rows).all()
            with pytest.raises(UnsupportedError, match="no memory"):
                context.memory.seq_pos_max(0)

    def test_positions_need_not_start_at_zero_or_go_on(self, tiny_models: dict[str, Path]) -> None:
        with Model(tiny_models["llada-dense"]) as model, Context(model, **OPTIONS) as context:
            batch = Batch(4)
            batch.add_sequence([4, 5], 7, 0)
            context.decode(batch)
            gap = Batch(4)
            gap.add(4, 3, output=True)
            gap.add(4, 9, output=True)
            with pytest.raises(DecodeError, match="not continuous"):
                context.decode(gap)
