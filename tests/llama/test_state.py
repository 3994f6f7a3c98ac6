"""State: what was saved and restored goes on as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from causerie.errors import StateError, UnsupportedError
from causerie.llama import Batch, Context, Model

PROMPT = "The sea is salty because"


def feed(ctx, tokens, pos0=0, seq=0):
    """Evaluate tokens of a sequence; the logits of the last."""
    batch = Batch(len(tokens))
    batch.add_sequence(tokens, pos0, seq)
    ctx.decode(batch)
    return ctx.logits(-1).copy()


def greedy(ctx, tokens, count, pos0=0, seq=0):
    """Evaluate tokens, then the `count` most likely ones, one by one; their ids."""
    found = []
    for _ in range(count):
        token = int(feed(ctx, tokens, pos0, seq).argmax())
        found.append(token)
        pos0 += len(tokens)
        tokens = [token]
    return found


@pytest.fixture
def prompt(model):
    return model.vocab.tokenize(PROMPT)


def fresh(model, **options):
    return Context(model, **{"n_ctx": 512, "n_batch": 512, "n_seq_max": 2, **options})


def test_bytes_restored_in_another_context_go_on_exactly(model, prompt):
    with fresh(model) as ctx, fresh(model) as other:
        feed(ctx, prompt)
        other.state.set(ctx.state.get())
        assert np.array_equal(feed(ctx, [5], len(prompt)), feed(other, [5], len(prompt)))
        assert other.memory.seq_pos_max(0) == len(prompt)


def test_a_restored_context_saves_the_same_bytes(model, prompt):
    with fresh(model) as ctx, fresh(model) as other:
        feed(ctx, prompt)
        saved = ctx.state.get()
        other.state.set(saved)
        assert isinstance(saved, bytes)
        assert other.state.get() == saved


def test_size_is_what_get_returns(model, prompt):
    with fresh(model) as ctx:
        assert ctx.state.size() == len(ctx.state.get())
        feed(ctx, prompt, seq=1)
        assert ctx.state.size() == len(ctx.state.get())
        assert ctx.state.seq_size(1) == len(ctx.state.seq_get(1))
        assert ctx.state.seq_size(1, partial=True) == len(ctx.state.seq_get(1, partial=True))


def test_set_replaces_all_that_was_there(model, prompt):
    with fresh(model) as ctx, fresh(model) as other:
        feed(ctx, prompt)
        feed(other, prompt[:3], seq=1)
        other.state.set(ctx.state.get())
        assert other.memory.seq_pos_max(1) == -1


def test_there_is_no_output_after_set(model, prompt):
    with fresh(model) as ctx:
        feed(ctx, prompt)
        ctx.state.set(ctx.state.get())
        with pytest.raises(IndexError):
            ctx.logits(-1)


def test_outputs_of_the_last_batch_survive_seq_set(model, prompt):
    with fresh(model) as ctx:
        feed(ctx, prompt, seq=0)
        saved = ctx.state.seq_get(0)
        row = feed(ctx, prompt[:4], seq=1)
        ctx.state.seq_set(0, saved)
        assert np.array_equal(ctx.logits(-1), row)


@pytest.mark.parametrize("unified", [False, True])
def test_a_sequence_goes_on_under_another_id_and_disturbs_no_other(model, prompt, unified):
    with fresh(model, kv_unified=unified) as ctx, fresh(model, kv_unified=unified) as other:
        feed(ctx, prompt)
        other_prompt = prompt[::-1]
        feed(ctx, other_prompt, seq=1)
        feed(other, other_prompt, seq=0)
        other.state.seq_set(1, ctx.state.seq_get(0))
        assert greedy(other, [5], 4, len(prompt), seq=1) == greedy(ctx, [5], 4, len(prompt), seq=0)
        assert greedy(other, [6], 4, len(prompt), seq=0) == greedy(ctx, [6], 4, len(prompt), seq=1)


def test_an_empty_sequence_restores_to_an_empty_one(model, prompt):
    with fresh(model) as ctx:
        empty = ctx.state.seq_get(0)
        feed(ctx, prompt, seq=1)
        ctx.state.seq_set(1, empty)
        assert ctx.memory.seq_pos_max(1) == -1


def test_a_context_of_another_size_takes_the_state(model, prompt):
    with fresh(model, n_ctx=256) as ctx, fresh(model, n_ctx=1024) as other:
        feed(ctx, prompt)
        other.state.set(ctx.state.get())
        assert np.allclose(feed(ctx, [5], len(prompt)), feed(other, [5], len(prompt)), atol=1e-3)


def test_state_without_a_checksum_round_trips(model, prompt):
    with fresh(model) as ctx, fresh(model) as other:
        feed(ctx, prompt)
        saved = ctx.state.seq_get(0, checksum=False)
        other.state.seq_set(0, saved)
        assert other.memory.seq_pos_max(0) == len(prompt) - 1
        with pytest.raises(StateError):
            other.state.seq_set(0, saved[:-1])


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_buffer_is_taken(context, prompt, kind):
    feed(context, prompt)
    context.state.set(kind(context.state.get()))
    assert context.memory.seq_pos_max(0) == len(prompt) - 1


def test_files_bring_back_state_and_tokens(model, prompt, tmp_path):
    with fresh(model) as ctx, fresh(model) as other:
        expected = greedy(ctx, prompt, 1)
        ctx.state.save_file(tmp_path / "whole", prompt)
        ctx.state.seq_save_file(tmp_path / "one", 0, prompt.tolist())
        for tokens in (other.state.load_file(tmp_path / "whole"), other.state.seq_load_file(tmp_path / "one", 1)):
            assert tokens.dtype == np.int32
            assert np.array_equal(tokens, prompt)
        assert greedy(other, expected, 3, len(prompt), 0) == greedy(other, expected, 3, len(prompt), 1)


def test_a_file_without_tokens_gives_none_back(context, tmp_path):
    context.state.save_file(tmp_path / "state")
    assert context.state.load_file(tmp_path / "state").shape == (0,)


@pytest.mark.parametrize("tokens", [[-1], [2**31], [[1, 2]], [0.5], ["a"]])
def test_tokens_that_are_no_ids_are_refused(context, tmp_path, tokens):
    with pytest.raises(ValueError):
        context.state.save_file(tmp_path / "state", tokens)
    assert not (tmp_path / "state").exists()


NEW_PROCESS = """
import sys
from causerie.llama import Context, Model
from test_state import fresh, greedy
with Model(sys.argv[1]) as model, fresh(model) as ctx:
    whole = ctx.state.load_file(sys.argv[2])
    first = greedy(ctx, [5], 6, len(whole))
    one = ctx.state.seq_load_file(sys.argv[3], 1)
    print(first == greedy(ctx, [5], 6, len(one), 1), *first)
"""


def test_a_new_process_goes_on_exactly(model, prompt, tmp_path):
    with fresh(model) as ctx:
        feed(ctx, prompt)
        ctx.state.save_file(tmp_path / "whole", prompt)
        ctx.state.seq_save_file(tmp_path / "one", 0, prompt)
        expected = greedy(ctx, [5], 6, len(prompt))
    found = subprocess.run(
        [sys.executable, "-c", NEW_PROCESS, model.path, tmp_path / "whole", tmp_path / "one"],
        cwd=Path(__file__).parent,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == ["True", *map(str, expected)]
    assert found.stderr == ""


# One of each kind of memory: attention, recurrent, hybrid, sliding window, multi-axis positions, latent attention.
KINDS = [
    "llama-dense", "mamba-dense", "mamba2-dense", "minimax-01-moe", "jamba-dense", "falcon-h1-dense", "lfm2-dense",
    "granitehybrid-dense", "qwen3next-moe", "kimi-linear-moe", "gemma3-dense", "gpt-oss-moe", "qwen2vl-dense",
    "deepseek2-moe", "deepseek4-moe",
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def tiny(request, tiny_models):
    with Model(tiny_models[request.param]) as loaded:
        yield loaded


@pytest.mark.parametrize("options", [{}, {"kv_unified": True}, {"swa_full": False}], ids=str)
def test_every_kind_of_memory_round_trips(tiny, options):
    first, second = np.arange(1, 41), np.arange(50, 80)
    with fresh(tiny, n_ctx=256, **options) as ctx, fresh(tiny, n_ctx=256, **options) as other:
        feed(ctx, first, seq=0)
        feed(ctx, second, seq=1)
        whole, one = ctx.state.get(), ctx.state.seq_get(0)
        expected = feed(ctx, [5, 6], 40, 0), feed(ctx, [5, 6], 30, 1)
        other.state.set(whole)  # may be put into other cells, and floats be added in another order
        assert np.allclose(feed(other, [5, 6], 40, 0), expected[0], atol=2e-3)
        assert np.allclose(feed(other, [5, 6], 30, 1), expected[1], atol=2e-3)
        other.state.seq_set(1, one)
        assert np.allclose(feed(other, [5, 6], 40, 1), expected[0], atol=2e-3)


def test_a_partial_state_takes_a_sequence_back(tiny):
    with fresh(tiny, n_ctx=256, swa_full=False) as ctx:
        feed(ctx, np.arange(1, 41))
        checkpoint = ctx.state.seq_get(0, partial=True)
        expected = feed(ctx, [5, 6], 40)
        feed(ctx, np.arange(60, 90), 42)
        ctx.state.seq_set(0, checkpoint)
        assert ctx.memory.seq_pos_max(0) == 39
        assert np.allclose(feed(ctx, [5, 6], 40), expected, atol=2e-3)


@pytest.mark.parametrize("name", ["falcon-h1-dense", "gemma3-dense"])
def test_a_partial_state_is_small_and_needs_the_rest(tiny_models, name):
    with Model(tiny_models[name]) as tiny, fresh(tiny, n_ctx=256, swa_full=False) as ctx:
        feed(ctx, np.arange(1, 41))
        checkpoint = ctx.state.seq_get(0, partial=True)
        assert len(checkpoint) < len(ctx.state.seq_get(0))
        before = feed(ctx, [5, 6], 0, 1)
        with pytest.raises(StateError, match="rest"):
            ctx.state.seq_set(1, checkpoint)
        assert ctx.memory.seq_pos_max(1) == 1
        assert np.array_equal(ctx.logits(-1), before)


def test_a_sequence_that_was_rolled_back_is_saved_where_it_is(tiny_models):
    with Model(tiny_models["nemotron_h-dense"]) as tiny, fresh(tiny, n_rs_seq=4) as ctx:
        feed(ctx, np.arange(1, 11))
        expected = feed(ctx, [5, 6], 10)
        ctx.memory.seq_rm(0, 10)
        ctx.state.seq_set(1, ctx.state.seq_get(0))
        assert np.allclose(feed(ctx, [5, 6], 10, 1), expected, atol=2e-3)


def test_a_context_without_memory_has_no_state(tiny_models):
    with Model(tiny_models["llada-dense"]) as tiny, Context(tiny, n_ctx=64) as ctx:
        for call in (ctx.state.size, ctx.state.get, lambda: ctx.state.seq_get(0), lambda: ctx.state.seq_size(0)):
            with pytest.raises(UnsupportedError):
                call()
