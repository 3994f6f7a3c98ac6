"""Control vectors: directions reach the layers they are for, and no others."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from causerie.errors import ClosedError, ModelLoadError
from causerie.llama import Batch, Context, Model
from causerie.llama.control_vector import ControlVector

PROMPT = list(range(100, 112))


def logits(ctx):
    ctx.memory.clear()
    batch = Batch(len(PROMPT))
    batch.add_sequence(PROMPT, 0, 0)
    ctx.decode(batch)
    return ctx.logits(-1).copy()


def write(path, tensors):
    writer = gguf.GGUFWriter(path, "controlvector")
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def directions(model):
    return np.random.default_rng(0).normal(0, 0.5, (model.n_layer, model.n_embd)).astype(np.float32)


def test_a_vector_changes_logits_and_none_restores_them_exactly(context, directions):
    base = logits(context)
    context.set_control_vector(ControlVector(directions))
    assert not np.allclose(logits(context), base)
    context.set_control_vector(None)
    assert np.array_equal(logits(context), base)


def test_a_later_vector_leaves_nothing_of_an_earlier_one(model, context, directions):
    context.set_control_vector(ControlVector({3: directions[3]}))
    only = logits(context)
    context.set_control_vector(ControlVector(directions))
    context.set_control_vector(ControlVector({3: directions[3]}))
    assert np.array_equal(logits(context), only)


def test_a_mapping_is_the_array_with_zeros_elsewhere(model, context, directions):
    array = np.zeros((model.n_layer, model.n_embd), np.float32)
    array[5] = directions[5]
    context.set_control_vector(ControlVector(array))
    expected = logits(context)
    context.set_control_vector(ControlVector({5: directions[5].tolist()}))
    assert np.array_equal(logits(context), expected)


def test_zeros_change_nothing(model, context):
    base = logits(context)
    context.set_control_vector(ControlVector(np.zeros((model.n_layer, model.n_embd))))
    assert np.allclose(logits(context), base, atol=1e-4)


def test_layer_zero_has_no_direction(context, directions):
    rows = np.zeros_like(directions)
    rows[0] = directions[0]
    vector = ControlVector(rows)
    assert not vector.data.any()
    with pytest.raises(ValueError):
        ControlVector({0: directions[0]})


def test_the_range_of_layers_includes_both_ends(context, directions):
    context.set_control_vector(ControlVector({4: directions[4], 5: directions[5]}))
    expected = logits(context)
    context.set_control_vector(ControlVector(directions), layer_range=(4, 5))
    assert np.array_equal(logits(context), expected)


@pytest.mark.parametrize("bounds", [(0, 3), (3, 2), (1, 30), (-1, 3), (1, 2**40)])
def test_a_range_outside_of_the_model_is_refused(context, directions, bounds):
    with pytest.raises(ValueError):
        context.set_control_vector(ControlVector(directions), layer_range=bounds)


@pytest.mark.parametrize(
    "data",
    [np.zeros(576), np.zeros((0, 576)), np.zeros((2, 0)), {}, {1: [1.0], 2: [1.0, 2.0]}, {1: [[1.0]]}, [[1.0], [np.nan]],
     {1: [np.inf]}],
    ids=str,
)  # fmt: skip
def test_data_of_another_shape_or_not_finite_is_refused(data):
    with pytest.raises(ValueError):
        ControlVector(data)


def test_a_vector_for_another_model_is_refused(model, context):
    with pytest.raises(ValueError, match="n_embd"):
        context.set_control_vector(ControlVector(np.ones((3, model.n_embd + 1))))
    with pytest.raises(ValueError, match="layers"):
        context.set_control_vector(ControlVector(np.ones((model.n_layer + 1, model.n_embd))))


def test_the_data_is_a_read_only_copy(directions):
    mine = directions.copy()
    vector = ControlVector(mine)
    mine[:] = 0
    assert np.array_equal(vector.data[1:], directions[1:])
    with pytest.raises(ValueError):
        vector.data[1] = 0


def test_a_file_is_read_and_scaled(context, directions, tmp_path):
    path = write(tmp_path / "vector.gguf", {"direction.2": directions[2], "direction.7": directions[7]})
    vector = ControlVector.load(path, scale=-2.0)
    assert vector.data.shape == (8, directions.shape[1])
    assert np.array_equal(vector.data[7], directions[7] * -2)
    context.set_control_vector(vector)
    logits(context)


@pytest.mark.parametrize(
    "tensors",
    [{}, {"direction.0": np.ones(8, np.float32)}, {"direction.x": np.ones(8, np.float32)},
     {"weights": np.ones(8, np.float32)}, {"direction.1": np.ones(8, np.float16)},
     {"direction.1": np.ones((2, 8), np.float32)}, {"direction.1": np.ones(8, np.float32), "direction.2": np.ones(4, np.float32)},
     {"direction.1": np.full(8, np.nan, np.float32)}],
    ids=str,
)  # fmt: skip
def test_a_file_with_something_else_is_refused(tmp_path, tensors):
    with pytest.raises(ModelLoadError) as caught:
        ControlVector.load(write(tmp_path / "vector.gguf", tensors))
    assert caught.value.reason


def test_a_missing_or_damaged_file_is_refused(tmp_path):
    path = tmp_path / "vector.gguf"
    with pytest.raises(ModelLoadError):
        ControlVector.load(path)
    write(path, {"direction.1": np.ones(1000, np.float32)})
    content = path.read_bytes()
    for length in (0, 3, 20, len(content) // 2, len(content) - 1200):
        path.write_bytes(content[:length])
        with pytest.raises(ModelLoadError):
            ControlVector.load(path)


def test_a_closed_context_says_so(model, directions):
    context = Context(model, n_ctx=64)
    context.close()
    with pytest.raises(ClosedError):
        context.set_control_vector(ControlVector(directions))
    with pytest.raises(ClosedError):
        context.set_control_vector(None)


def test_hybrid_and_recurrent_models_take_vectors_too(tiny_models):
    for name in ("mamba-dense", "falcon-h1-dense", "gemma3-dense"):
        with Model(tiny_models[name]) as tiny, Context(tiny, n_ctx=64, n_batch=64) as ctx:
            base = logits(ctx)
            ctx.set_control_vector(ControlVector(np.ones((tiny.n_layer, tiny.n_embd))))
            changed = logits(ctx)
            ctx.set_control_vector(None)
            assert np.array_equal(logits(ctx), base), name
            assert tiny.n_layer == 1 or not np.array_equal(changed, base), name
