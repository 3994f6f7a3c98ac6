"""A wheel with the CUDA plugin (`make wheel-cuda`), on a machine that has no NVIDIA driver."""

from __future__ import annotations

import ctypes
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from installed import Installed

if TYPE_CHECKING:
    from pathlib import Path

CHAT = """
import sys, causerie
try:
    causerie.Engine(sys.argv[1], devices=["CUDA0"])
except ValueError as error:
    print(error)
with causerie.Engine(sys.argv[1], n_ctx=256) as engine:
    print([d.backend for d in engine.stats().devices if d.layers])
    print(engine.conversation().send("Say hello.", max_tokens=8, temperature=0).usage.completion_tokens)
"""


def has_driver() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def cuda_wheel(wheel: Path) -> Path:
    names = zipfile.ZipFile(wheel).namelist()
    if not any("ggml-cuda" in name for name in names):
        pytest.skip(f"{wheel.name} has no CUDA plugin: make wheel-cuda")
    if has_driver():
        pytest.skip("this machine has NVIDIA's driver: tests/gpu/run.sh")
    return wheel


def works_on_the_cpu(installed: Installed, model: Path) -> None:
    unknown, backends, tokens = installed.run(CHAT, model).splitlines()
    assert unknown == "no device named 'CUDA0'; found: CPU"
    assert (backends, tokens) == ("['CPU']", "8")


def test_without_nvidias_libraries_the_plugin_is_left_out(cuda_wheel: Path, tmp_path: Path, smollm2_path: Path) -> None:
    installed = Installed(tmp_path / "bare", sys.executable, cuda_wheel)
    facts = installed.facts()
    (plugin,) = [p for p in facts["plugins"] if p["backend"] == "cuda"]
    assert not plugin["used"]
    assert "cublas" in plugin["problem"] or "cudart" in plugin["problem"]
    works_on_the_cpu(installed, smollm2_path)


@pytest.mark.slow
def test_with_them_it_is_linked_and_says_that_there_is_no_driver(
    cuda_wheel: Path, tmp_path: Path, smollm2_path: Path
) -> None:
    installed = Installed(tmp_path / "with libraries", sys.executable, cuda_wheel, extra="cuda13")
    facts = installed.facts()
    (plugin,) = [p for p in facts["plugins"] if p["backend"] == "cuda"]
    assert plugin["problem"] is None or not plugin["problem"]
    assert "no driver" in facts["missing"]["cuda"]
    works_on_the_cpu(installed, smollm2_path)
