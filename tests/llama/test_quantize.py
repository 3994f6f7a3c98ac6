"""Quantisation: the new file runs, and whatever goes wrong leaves no half-written one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

import gguf
import numpy as np
import pytest

from causerie.errors import ModelLoadError
from causerie.llama import Batch, Context, Model
from causerie.llama._quantize_options import ftypes
from causerie.llama.quantization import QuantizeOptions, quantize

PROMPT = list(range(1, 13))


def listing(folder):
    return sorted(entry.name for entry in folder.iterdir())


def logits(path):
    with Model(path) as model, Context(model, n_ctx=64, n_batch=64) as ctx:
        batch = Batch(len(PROMPT))
        batch.add_sequence(PROMPT, 0, 0)
        ctx.decode(batch)
        return ctx.logits(-1).copy()


def types_of(path):
    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}


@pytest.fixture(scope="module")
def source(tiny_models):
    """Two layers of width 256, float32."""
    return tiny_models["llama-dense"]


@pytest.fixture(scope="module")
def base(source):
    return logits(source)


def test_a_float_model_becomes_a_smaller_one_that_computes_the_same(source, base, tmp_path):
    report = quantize(source, tmp_path / "q8.gguf")
    assert report.paths == (tmp_path / "q8.gguf",)
    assert report.target_size < report.source_size / 3
    assert types_of(tmp_path / "q8.gguf")["blk.0.attn_q.weight"] == "Q8_0"
    assert np.corrcoef(logits(tmp_path / "q8.gguf"), base)[0, 1] > 0.999
    assert listing(tmp_path) == ["q8.gguf"]


def test_a_quantised_chat_model_can_be_requantised(smollm2_path, tmp_path):
    with pytest.raises(ValueError, match="allow_requantize"):
        quantize(smollm2_path, tmp_path / "q8.gguf")
    assert listing(tmp_path) == []
    quantize(smollm2_path, tmp_path / "q8.gguf", options=QuantizeOptions(allow_requantize=True))
    expected, found = logits(smollm2_path), logits(tmp_path / "q8.gguf")
    assert np.corrcoef(expected, found)[0, 1] > 0.99
    with Model(tmp_path / "q8.gguf") as model:
        assert model.ftype == "Q8_0"


@pytest.mark.parametrize("ftype", sorted(ftypes()))
def test_every_mixture_runs_or_asks_for_importance(source, tmp_path, ftype):
    target = tmp_path / "model.gguf"
    if ftype.startswith(("IQ1", "IQ2")) or ftype in {"Q2_K_S", "IQ3_XS", "IQ3_XXS"}:
        with pytest.raises(ValueError, match="imatrix"):
            quantize(source, target, options=QuantizeOptions(ftype=ftype))
        quantize(source, target, options=QuantizeOptions(ftype=ftype, imatrix=importance(source)))
    else:
        quantize(source, target, options=QuantizeOptions(ftype=ftype))
    assert np.isfinite(logits(target)).all()


def importance(path):
    rng = np.random.default_rng(0)
    tensors = [t for t in gguf.GGUFReader(path).tensors if len(t.shape) > 1]
    return {t.name: rng.random(int(t.shape[0]), dtype=np.float32) for t in tensors}


def test_importance_changes_the_result(source, tmp_path):
    for name, imatrix in (("plain", None), ("weighed", importance(source))):
        quantize(source, tmp_path / name, options=QuantizeOptions(ftype="Q4_K_M", imatrix=imatrix))
    assert not np.array_equal(logits(tmp_path / "plain"), logits(tmp_path / "weighed"))


def test_types_can_be_chosen_per_tensor(source, tmp_path):
    options = QuantizeOptions(
        ftype="Q4_0",
        output_tensor_type="f16",
        token_embedding_type="q5_1",
        tensor_types={r"attn_[qk]": "q8_0"},
    )
    quantize(source, tmp_path / "model", options=options)
    types = types_of(tmp_path / "model")
    assert types["output.weight"] == "F16"
    assert types["token_embd.weight"] == "Q5_1"
    assert types["blk.1.attn_k.weight"] == "Q8_0"
    assert types["blk.1.attn_v.weight"] == "Q4_0"


def test_pure_and_unquantised_output(source, tmp_path):
    quantize(source, tmp_path / "pure", options=QuantizeOptions(ftype="Q4_0", pure=True))
    assert set(types_of(tmp_path / "pure").values()) == {"F32", "Q4_0"}
    quantize(source, tmp_path / "output", options=QuantizeOptions(ftype="Q4_0", quantize_output_tensor=False))
    assert types_of(tmp_path / "output")["output.weight"] == "F32"


def test_metadata_can_be_overridden(source, tmp_path):
    overrides = {"general.name": "other", "x.int": 7, "x.float": 0.5, "x.bool": True}
    quantize(source, tmp_path / "model", options=QuantizeOptions(kv_overrides=overrides, only_copy=True))
    with Model(tmp_path / "model") as model:
        assert model.metadata["general.name"] == "other"
        assert model.metadata["x.int"] == "7"
        assert model.metadata["x.bool"] == "true"
    assert set(types_of(tmp_path / "model").values()) == {"F32"}


def test_layers_can_be_left_out(smollm2_path, tmp_path):
    quantize(smollm2_path, tmp_path / "model", options=QuantizeOptions(only_copy=True, prune_layers=[29, 3]))
    with Model(tmp_path / "model") as model:
        assert model.n_layer == 28


def test_a_dry_run_tells_the_size_and_writes_nothing(source, tmp_path):
    plan = quantize(source, None, options=QuantizeOptions(ftype="Q4_0", dry_run=True))
    report = quantize(source, tmp_path / "model", options=QuantizeOptions(ftype="Q4_0"))
    assert plan.paths == ()
    assert plan.target_size == pytest.approx(report.target_size, abs=6000)
    assert plan.source_size == report.source_size


@pytest.fixture
def split(source, tmp_path):
    """The model in several files."""
    folder = tmp_path / "split"
    folder.mkdir()
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(folder / "part.gguf", "llama", split_max_tensors=8)
    for key, value in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            kind = value.types[0]
            if value.contents() == []:
                continue
            writer.add_key_value(
                key, value.contents(), kind, value.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            )
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.iterdir())


def test_a_split_model_becomes_one_file_or_as_many(split, base, tmp_path):
    assert len(split) > 1
    quantize(split[0], tmp_path / "one.gguf", options=QuantizeOptions(only_copy=True))
    assert np.allclose(logits(tmp_path / "one.gguf"), base, atol=1e-4)
    report = quantize(split[0], tmp_path / "many", options=QuantizeOptions(keep_split=True))
    assert [path.name for path in report.paths] == [path.name.replace("part", "many") for path in split]
    assert np.corrcoef(logits(report.paths[0]), base)[0, 1] > 0.999
    with pytest.raises(ValueError, match="same"):
        quantize(split[0], split[0].parent / "part", options=QuantizeOptions(keep_split=True))
    split[1].unlink()
    with pytest.raises(ModelLoadError):
        quantize(split[0], tmp_path / "none.gguf")
    assert not (tmp_path / "none.gguf").exists()


def test_progress_goes_from_nothing_to_all(smollm2_path, tmp_path):
    seen, threads = [], set()

    def progress(fraction):
        seen.append(fraction)
        threads.add(threading.get_ident())

    quantize(
        smollm2_path,
        tmp_path / "model",
        options=QuantizeOptions(ftype="Q2_K", allow_requantize=True),
        progress=progress,
    )
    assert seen == sorted(seen)
    assert len(seen) > 3
    assert 0 <= seen[0] < 0.5
    assert seen[-1] == 1.0
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_progress_raises_reaches_the_caller_and_nothing_is_written(source, tmp_path, error):
    def progress(fraction):
        raise error("enough")

    with pytest.raises(error, match="enough"):
        quantize(source, tmp_path / "model", progress=progress)
    assert listing(tmp_path) == []
    quantize(source, tmp_path / "model")


def test_other_threads_may_drain_the_log_meanwhile(source, tmp_path):
    stop = threading.Event()

    def drain():
        from causerie.llama._lib import drain_log

        while not stop.is_set():
            drain_log()

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        seen = []
        quantize(source, tmp_path / "model", progress=seen.append)
        assert seen[-1] == 1.0
        with pytest.raises(ValueError, match="imatrix"):
            quantize(source, tmp_path / "other", options=QuantizeOptions(ftype="IQ2_XXS"))
    finally:
        stop.set()
        thread.join()


INTERRUPTED = """
import sys
from causerie.llama.quantization import QuantizeOptions, quantize
print("start", flush=True)
try:
    quantize(sys.argv[1], sys.argv[2], options=QuantizeOptions(ftype="Q4_K_M", allow_requantize=True, n_threads=1))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_control_c_ends_it_without_a_file(smollm2_path, tmp_path):
    arguments = [sys.executable, "-c", INTERRUPTED, smollm2_path, tmp_path / "model"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    assert (output, errors, process.returncode) == ("interrupted\n", "", 0)
    assert listing(tmp_path) == []


def test_a_source_that_is_no_model_is_refused(source, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("no model")
    (tmp_path / "cut").write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    (tmp_path / "header").write_bytes(source.read_bytes()[:3000])
    for name in ("missing", "empty", "text", "cut", "header"):
        with pytest.raises(ModelLoadError) as caught:
            quantize(tmp_path / name, tmp_path / "target")
        assert caught.value.path == str(tmp_path / name)
        assert caught.value.reason
    assert listing(tmp_path) == ["cut", "empty", "header", "text"]


def test_source_and_target_must_differ(source, tmp_path):
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "hard").hardlink_to(source)
    for target in (source, tmp_path / "link", tmp_path / "hard", os.path.relpath(source)):
        with pytest.raises(ValueError, match="same"):
            quantize(source, target)


def test_a_target_that_cannot_be_written_is_an_os_error(source, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileNotFoundError, match="missing/model"):
        quantize(source, tmp_path / "missing" / "model")
    with pytest.raises(IsADirectoryError):
        quantize(source, tmp_path / "folder")
    with pytest.raises(ValueError):
        quantize(source, None)
    assert listing(tmp_path) == ["folder"]


FULL_DISK = """
import resource, sys
from causerie.llama.quantization import QuantizeOptions, quantize
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    quantize(sys.argv[1], sys.argv[2], options=QuantizeOptions(ftype="F16"))
except OSError as error:
    print(type(error).__name__, error.filename)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
@pytest.mark.parametrize("missing", [1, 100, 5000, 1_000_000])
def test_a_full_disk_is_an_os_error_and_leaves_the_old_file(source, tmp_path, missing):
    quantize(source, tmp_path / "model", options=QuantizeOptions(ftype="F16"))
    limit = (tmp_path / "model").stat().st_size - missing
    (tmp_path / "model").write_text("old")
    found = subprocess.run(
        [sys.executable, "-c", FULL_DISK, source, tmp_path / "model", str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["OSError", str(tmp_path / "model")]
    assert (tmp_path / "model").read_text() == "old"
    assert listing(tmp_path) == ["model"]


@pytest.mark.parametrize(
    "options",
    [
        {"ftype": "Q9"}, {"ftype": "q8_0"}, {"ftype": "NVFP4"}, {"ftype": "GUESSED"}, {"output_tensor_type": "q8_1"},
        {"token_embedding_type": "i32"}, {"output_tensor_type": "q8_K"}, {"ftype": "Q4_0", "tensor_types": {"(": "q8_0"}},
        {"ftype": "Q4_0", "tensor_types": {"": "q8_0"}}, {"ftype": "Q4_0", "tensor_types": {"a": "nope"}},
        {"ftype": "Q4_0", "tensor_types": {"(?P<a>x)": "q8_0"}}, {"ftype": "Q4_0", "tensor_types": {"(" * 2000: "q8_0"}},
        {"ftype": "F16", "tensor_types": {"a": "q8_0"}}, {"n_threads": 0}, {"n_threads": 10**6}, {"max_buf_size": -1},
        {"prune_layers": [0, 1]}, {"prune_layers": [2]}, {"prune_layers": [-1]}, {"kv_overrides": {"a": 2**33}},
        {"kv_overrides": {"": 1}}, {"kv_overrides": {"a": "x" * 200}}, {"imatrix": {"output.weight": [1.0]}},
        {"imatrix": {"x": [-1.0]}}, {"imatrix": {"x": [np.nan]}}, {"imatrix": {"x": []}}, {"imatrix": {"x": [[1.0]]}},
        {"token_embedding_type": "iq2_xxs"}, {"output_tensor_type": "iq1_s"}, {"ftype": "IQ2_XS", "pure": True},
        {"ftype": "IQ2_S", "pure": True, "imatrix": {}}, {"ftype": "Q4_0", "tensor_types": {"output": "iq2_xs"}},
    ],
    ids=lambda options: re.sub(r"\W+", "-", str(options))[:60],
)  # fmt: skip
def test_a_wrong_option_is_refused(source, tmp_path, options):
    with pytest.raises(ValueError):
        quantize(source, tmp_path / "model", options=QuantizeOptions(**options))
    assert listing(tmp_path) == []


def test_an_unknown_mixture_lists_the_known(source, tmp_path):
    with pytest.raises(ValueError, match="Q4_K_M"):
        quantize(source, tmp_path / "model", options=QuantizeOptions(ftype="best"))


def test_rows_that_a_type_cannot_hold_are_refused(tiny_models, tmp_path):
    with pytest.raises(ValueError, match="rows"):
        quantize(tiny_models["deepseek2-moe"], tmp_path / "model", options=QuantizeOptions(token_embedding_type="q6_K"))


def test_importance_of_zero_does_not_end_the_process(source, tmp_path):
    zeros = {name: np.zeros_like(array) for name, array in importance(source).items()}
    for ftype in ("IQ1_S", "IQ2_XXS", "IQ3_XXS", "Q4_K_M"):
        quantize(source, tmp_path / "model", options=QuantizeOptions(ftype=ftype, imatrix=zeros, pure=True))


def test_sources_that_are_no_single_path_are_refused(source):
    with pytest.raises(TypeError):
        quantize([source, source], "x")
    with source.open("rb") as file, pytest.raises(TypeError):
        quantize(file, "x")
