"""Types of weights: llama.cpp loads any, and aborts on a worker thread when it computes with an impossible one."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny import retyped, write_llama

from causerie import ModelLoadError
from causerie.llama import Batch, Context, Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

MATRIX, EMBEDDING, NORM = "blk.1.attn_q.weight", "token_embd.weight", "blk.0.attn_norm.weight"
IMPOSSIBLE = ("i8", "i16", "i32", "i64", "f64", "q8_1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("whole") / "tiny.gguf")


def refusal(path: Path, **options: Any) -> str:
    """Why the model is not loaded."""
    with pytest.raises(ModelLoadError) as caught:
        Model(path, **options)
    assert (caught.value.path, caught.value.size) == (str(path), path.stat().st_size)
    return caught.value.reason


@pytest.mark.parametrize("kind", IMPOSSIBLE)
@pytest.mark.parametrize("name", [MATRIX, EMBEDDING, NORM])
def test_weights_of_a_type_that_cannot_be_computed_with(tmp_path: Path, whole: Path, name: str, kind: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(retyped(whole, {name: kind}))
    assert refusal(path) == f"tensor {name} is of type {kind}, which llama.cpp cannot compute with there"


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0"])
def test_vectors_of_a_type_that_is_for_matrices_only(tmp_path: Path, whole: Path, kind: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(retyped(whole, {NORM: kind}))
    assert f"{NORM} is of type {kind}" in refusal(path)


@pytest.mark.several_threads
@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0", "q4_0", "mxfp4"])
def test_weights_of_all_types_that_matrices_have_can_be_evaluated(tmp_path: Path, whole: Path, kind: str) -> None:
    path = tmp_path / "fine.gguf"
    path.write_bytes(retyped(whole, {MATRIX: kind, EMBEDDING: kind, "output.weight": kind}))
    with Model(path) as model, Context(model, n_ctx=64, n_threads=2) as context:
        batch = Batch(3)
        batch.add_sequence([4, 5, 6], 0, 0)
        context.decode(batch)
        assert np.isfinite(context.logits()).all()


def test_weights_in_a_file_object(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(ModelLoadError, match=f"{MATRIX} is of type i32"):
        Model(io.BytesIO(retyped(whole, {MATRIX: "i32"})))


def test_weights_do_not_matter_where_only_the_vocabulary_is_loaded(tmp_path: Path, whole: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(retyped(whole, {MATRIX: "i32"}))
    Model(path, vocab_only=True).close()


@pytest.mark.several_threads
@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (np.ones((128, 2), np.int32), None),
        (np.full((128, 2), 2, np.int32), "holds ids that are out of range"),
        (np.full((128, 2), -1, np.int32), "holds ids that are out of range"),
        (np.ones((128, 2), np.float32), "is of type f32"),
        (np.ones((128, 2), np.int64), "is of type i64"),
    ],
)
def test_a_table_of_experts_holds_the_ids_of_experts(
    tmp_path: Path, tiny_models: dict[str, Path], ids: NDArray[Any], reason: str | None
) -> None:
    name = "blk.0.ffn_gate_tid2eid.weight"
    path = tmp_path / "hashed.gguf"
    path.write_bytes(retyped(tiny_models["deepseek4-moe"], {"blk.0.exp_probs_b.bias": None}, {name: ids}))
    hashed = {"deepseek4.hash_layer_count": 1}
    if reason is not None:
        assert f"tensor {name} {reason}" in refusal(path, kv_overrides=hashed)
        return
    with Model(path, kv_overrides=hashed) as model, Context(model, n_ctx=64, n_threads=2) as context:
        batch = Batch(3)
        batch.add_sequence([4, 5, 6], 0, 0)
        context.decode(batch)


def test_weights_of_every_architecture_are_accepted(tiny_models: dict[str, Path]) -> None:
    for path in tiny_models.values():
        Model(path).close()


TYPES = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import gguf
from tiny import retyped
from causerie import ModelLoadError
from causerie.llama import Batch, Context, Model
from causerie.llama._params import ggml_types

whole, path = Path(sys.argv[1]), Path(sys.argv[2])
evaluated = refused = 0
for name in (tensor.name for tensor in gguf.GGUFReader(whole).tensors):
    if name.startswith("blk.1."):
        continue
    for kind in ggml_types():
        try:
            path.write_bytes(retyped(whole, {name: kind}))
            with Model(path) as model, Context(model, n_ctx=64, n_batch=32, n_threads=2) as context:
                batch = Batch(4)
                batch.add_sequence([4, 5, 6], 0, 0)
                context.decode(batch)
                evaluated += 1
        except ModelLoadError:
            refused += 1
        except ValueError:
            pass  # its blocks are longer than the rows
print(evaluated, refused)
"""


@pytest.mark.several_threads
def test_no_type_of_any_tensor_ends_the_process(tmp_path: Path) -> None:
    whole = write_llama(tmp_path / "whole.gguf")
    done = subprocess.run(
        [sys.executable, "-c", TYPES, whole, tmp_path / "odd.gguf", Path(__file__).parent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    evaluated, refused_types = map(int, done.stdout.split())
    assert (evaluated > 80, refused_types > 80) == (True, True)
