"""What of a model fits, by llama.cpp's own fitting, against what a loaded one takes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from causerie import ModelLoadError
from causerie.llama import Context, Model, device_uses, fit
from causerie.llama.device import default_devices, find_device

if TYPE_CHECKING:
    from pathlib import Path

TIB = 1 << 40


@pytest.mark.parametrize(
    "options",
    [{"n_ctx": 512}, {"n_ctx": 2048, "type_k": "q8_0", "type_v": "q8_0", "flash_attn": "enabled", "n_ubatch": 64}],
)
def test_what_is_foretold_is_what_a_context_takes(smollm2_path: Path, options: dict[str, Any]) -> None:
    found = fit(smollm2_path, model={"devices": "cpu"}, **options)
    assert (found.fits, found.reason, found.n_ctx) == (True, "", options["n_ctx"])
    assert (found.n_gpu_layers, found.tensor_split, dict(found.tensor_buft_overrides)) == (-1, (), {})
    with Model(smollm2_path, devices="cpu", load_mode="none") as model, Context(model, **options) as context:
        (real,), (foretold,) = device_uses(model, context), found.devices
        assert (foretold.name, foretold.layers) == (real.name, real.layers)
        assert foretold.cache_bytes == real.cache_bytes
        assert foretold.compute_bytes == pytest.approx(real.compute_bytes, rel=0.05)
        assert foretold.model_bytes == pytest.approx(real.model_bytes, rel=0.05)


def test_without_a_length_it_is_what_the_model_was_trained_with(smollm2_path: Path) -> None:
    with Model(smollm2_path, vocab_only=True) as model:
        trained = int(model.metadata["llama.context_length"])
    assert fit(smollm2_path, model={"devices": "cpu"}).n_ctx == trained


@pytest.mark.skipif(bool(default_devices()), reason="this machine has GPUs")
def test_what_cannot_fit_is_told_with_the_reason(smollm2_path: Path) -> None:
    found = fit(smollm2_path, margin=900 * TIB, n_ctx=512)
    assert not found.fits
    assert "900.0 TiB" in found.reason
    assert found.n_ctx == 512
    assert fit(smollm2_path, n_ctx=512).fits  # nothing is left behind of it


def test_a_context_that_is_not_given_becomes_smaller(smollm2_path: Path) -> None:
    most = fit(smollm2_path, model={"devices": "cpu"}, n_ctx_min=256)
    (cpu,) = most.devices
    # Less room than it would take; llama.cpp's fitting leaves repacked weights out of its account, so it is more.
    margin = find_device("CPU").memory_total - cpu.nbytes + cpu.cache_bytes
    found = fit(smollm2_path, model={"devices": "cpu"}, n_ctx_min=256, margin=margin)
    assert found.fits
    assert 256 <= found.n_ctx < most.n_ctx
    assert found.devices[0].cache_bytes == cpu.cache_bytes * found.n_ctx // most.n_ctx


def test_options_are_those_of_model_and_context(smollm2_path: Path) -> None:
    found = fit(smollm2_path, model={"devices": "cpu"}, n_ctx=256)
    with Model(smollm2_path, devices="cpu", **found.model_options) as model:
        assert model.devices[0].layers == model.n_layer


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"nonsense": 1}, TypeError, "nonsense"),
        ({"model": {"nonsense": 1}}, TypeError, "nonsense"),
        ({"model": {"devices": ["CUDA99"]}}, ValueError, "CUDA99"),
        ({"type_k": "q2_k"}, ValueError, "type_k"),
        ({"margin": -1}, ValueError, "margin"),
        ({"n_ctx_min": 2**32}, ValueError, "n_ctx_min"),
    ],
)
def test_wrong_options_are_named(smollm2_path: Path, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        fit(smollm2_path, **options)


def test_a_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\0\0\0\0 nothing")
    for name in ("bad.gguf", "missing.gguf"):
        with pytest.raises(ModelLoadError):
            fit(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status tells of the most memory in use")
def test_no_weights_are_loaded(smollm2_path: Path) -> None:
    code = f"""
from causerie.llama import fit
def peak():  # KiB; ru_maxrss begins with what the program had that started this one
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
before = peak()
for _ in range(3):
    assert fit({str(smollm2_path)!r}, model={{"devices": "cpu"}}, n_ctx=1024).devices[0].model_bytes > 80 << 20
print(peak() - before)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 40 << 10  # KiB: vocabulary and graphs
