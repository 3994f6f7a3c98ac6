"""Filling a batch: its arrays, its limits, and what it refuses."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie import OutOfMemoryError
from causerie.llama import Batch


class TestTokens:
    def test_add_returns_the_index_and_fills_the_arrays(self) -> None:
        batch = Batch(4, n_seq_max=2)
        assert batch.add(7, 3, seqs=(1, 0), output=True) == 0
        assert batch.add(8, 4) == 1
        assert len(batch) == 2
        assert batch.token is not None
        assert batch.token[:2].tolist() == [7, 8]
        assert batch.pos[:2].tolist() == [3, 4]
        assert batch.n_seq_id[:2].tolist() == [2, 1]
        assert batch.seq_id[0].tolist() == [1, 0]
        assert batch.output[:2].tolist() == [1, 0]

    def test_add_sequence_is_the_same_as_adding_each(self) -> None:
        one, other = Batch(8, n_seq_max=3), Batch(8, n_seq_max=3)
        assert one.add_sequence([5, 6, 7], 10, 2) == 2
        for i, token in enumerate((5, 6, 7)):
            other.add(token, 10 + i, (2,), output=i == 2)
        for name in ("token", "pos", "n_seq_id", "output"):
            assert (getattr(one, name)[:3] == getattr(other, name)[:3]).all()
        assert (one.seq_id[:3, 0] == 2).all()

    def test_the_last_output_can_be_left_out(self) -> None:
        batch = Batch(4)
        batch.add_sequence([1, 2], 0, 0, output_last=False)
        assert not batch.output[:2].any()

    def test_clear_forgets_all(self) -> None:
        batch = Batch(2)
        batch.add_sequence([1, 2], 0, 0)
        batch.clear()
        assert len(batch) == 0
        batch.add(9, 0)
        assert batch.output[0] == 0

    def test_the_native_batch_sees_what_is_written_into_the_arrays(self) -> None:
        batch = Batch(3, n_seq_max=2)
        batch.add(1, 0, (0, 1))
        batch.add(2, 1, (1,))
        assert batch.token is not None
        batch.token[1] = 99
        native = batch._ready(2)
        assert (native.n_tokens, native.token[1], native.pos[1]) == (2, 99, 1)
        assert (native.seq_id[0][0], native.seq_id[0][1], native.seq_id[1][0]) == (0, 1, 1)

    @pytest.mark.parametrize("name", ["token", "pos", "n_seq_id", "seq_id", "output", "embd"])
    def test_an_array_cannot_be_exchanged(self, name: str) -> None:
        batch = Batch(2)
        with pytest.raises(AttributeError, match="write into"):
            setattr(batch, name, np.zeros(2, np.int32))

    def test_repr_tells_how_full_it_is(self) -> None:
        assert repr(Batch(3)) == "<Batch 0 of 3>"

    @given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
    def test_any_tokens_come_out_as_they_went_in(self, tokens: list[int]) -> None:
        batch = Batch(64)
        last = batch.add_sequence(np.array(tokens, np.int64), 3, 0)
        assert batch.token is not None
        assert batch.token[: last + 1].tolist() == tokens
        assert batch.pos[: last + 1].tolist() == list(range(3, 3 + len(tokens)))


class TestEmbeddings:
    def test_rows_go_into_embd(self) -> None:
        batch = Batch(2, n_embd=3)
        assert batch.add_embedding([1, 2, 3], 0) == 0
        assert batch.add_embedding(np.array([4, 5, 6], np.float64), 1, output=True) == 1
        assert batch.token is None
        assert batch.embd is not None
        assert batch.embd.tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_several_positions_each_lie_section_by_section(self) -> None:
        batch = Batch(5, n_embd=2, n_pos=4)
        batch.add_embedding([0, 0], (0, 1, 2, 3))
        batch.add_embedding([0, 0], (4, 5, 6, 7))
        native = batch._ready(2)
        assert [native.pos[i] for i in range(8)] == [0, 4, 1, 5, 2, 6, 3, 7]

    def test_the_kind_of_entry_is_fixed(self) -> None:
        with pytest.raises(TypeError, match="embeddings"):
            Batch(2, n_embd=3).add(1, 0)
        with pytest.raises(TypeError, match="embeddings"):
            Batch(2, n_embd=3).add_sequence([1], 0, 0)
        with pytest.raises(TypeError, match="token ids"):
            Batch(2).add_embedding([1.0], 0)

    @pytest.mark.parametrize("vector", [[1, 2], [[1, 2, 3]], [], 5])
    def test_a_vector_of_another_shape_is_refused(self, vector: object) -> None:
        with pytest.raises(ValueError, match="shape"):
            Batch(2, n_embd=3).add_embedding(vector, 0)  # type: ignore[arg-type]

    @pytest.mark.parametrize("pos", [(0, 1), 0, (0, 1, 2, -1), (0, 1, 2, 2**31)])
    def test_a_wrong_count_or_range_of_positions_is_refused(self, pos: object) -> None:
        with pytest.raises(ValueError, match="pos"):
            Batch(2, n_embd=3, n_pos=4).add_embedding([1, 2, 3], pos)  # type: ignore[arg-type]


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"capacity": 0}, ValueError), ({"capacity": -1}, ValueError), ({"capacity": 2**31}, ValueError),
            ({"capacity": 1.5}, TypeError), ({"capacity": None}, TypeError), ({"capacity": True}, TypeError),
            ({"capacity": 1, "n_seq_max": 0}, ValueError), ({"capacity": 1, "n_seq_max": 257}, ValueError),
            ({"capacity": 1, "n_embd": -1}, ValueError), ({"capacity": 1, "n_pos": 4}, ValueError),
            ({"capacity": 1, "n_embd": 1, "n_pos": 5}, ValueError),
        ],
    )  # fmt: skip
    def test_sizes_out_of_range(self, options: dict, error: type) -> None:
        with pytest.raises(error):
            Batch(**options)

    @pytest.mark.parametrize("options", [{"capacity": 2**31 - 1}, {"capacity": 2**20, "n_embd": 2**20}])
    def test_more_than_memory_holds(self, options: dict[str, int]) -> None:
        with pytest.raises(OutOfMemoryError) as caught:
            Batch(**options)
        assert (caught.value.needed or 0) > (caught.value.available or 0)

    @pytest.mark.parametrize(
        ("token", "pos", "seqs", "error"),
        [
            (-1, 0, (0,), ValueError), (2**31, 0, (0,), ValueError), (1.0, 0, (0,), TypeError), ("1", 0, (0,), TypeError),
            (None, 0, (0,), TypeError), (1, -1, (0,), ValueError), (1, 2**31, (0,), ValueError), (1, 0.5, (0,), TypeError),
            (1, 0, (), ValueError), (1, 0, (0, 1, 2), ValueError), (1, 0, (0, 0), ValueError), (1, 0, (-1,), ValueError),
            (1, 0, (256,), ValueError), (1, 0, (0.0,), TypeError), (1, 0, "0", TypeError), (1, 0, None, TypeError),
        ],
    )  # fmt: skip
    def test_an_entry_out_of_range_changes_nothing(self, token: object, pos: object, seqs: object, error: type) -> None:
        batch = Batch(2, n_seq_max=2)
        with pytest.raises(error):
            batch.add(token, pos, seqs)  # type: ignore[arg-type]
        assert len(batch) == 0

    @pytest.mark.parametrize(
        ("tokens", "pos0", "seq", "error"),
        [
            ([], 0, 0, ValueError), ([[1]], 0, 0, ValueError), ([1.5], 0, 0, ValueError), (["a"], 0, 0, ValueError),
            ([-1], 0, 0, ValueError), ([2**31], 0, 0, ValueError), ([1], -1, 0, ValueError), ([1], 2**31 - 1, 0, ValueError),
            ([1], 0.0, 0, TypeError), ([1], 0, -1, ValueError), ([1], 0, 256, ValueError), ([True], 0, 0, ValueError),
            ([1, 2, 3], 0, 0, ValueError), (None, 0, 0, ValueError), (5, 0, 0, ValueError),
        ],
    )  # fmt: skip
    def test_a_sequence_out_of_range_changes_nothing(
        self, tokens: object, pos0: object, seq: object, error: type
    ) -> None:
        batch = Batch(2)
        with pytest.raises(error):
            batch.add_sequence(tokens, pos0, seq)  # type: ignore[arg-type]
        assert len(batch) == 0

    def test_one_entry_too_many(self) -> None:
        batch = Batch(1)
        batch.add(1, 0)
        with pytest.raises(ValueError, match="batch is full"):
            batch.add(1, 1)
        with pytest.raises(ValueError, match="batch is full"):
            batch.add_sequence([1], 1, 0)
        assert len(batch) == 1


def test_threads_may_fill_it_together() -> None:
    batch = Batch(4000)

    def work(seq: int) -> None:
        for i in range(500):
            batch.add(seq, i)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(batch) == 4000
    assert batch.token is not None
    assert np.bincount(batch.token).tolist() == [500] * 8
