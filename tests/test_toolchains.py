"""toolchains/: folders to compile with, made of wheels and packages, and what is said where they cannot be had."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).resolve().parents[1] / "toolchains"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"toolchain_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cuda = load("cuda")
vulkan = load("vulkan")


def make_wheels(folder: Path) -> None:
    """What pip would leave there: tiny ones."""
    files = {
        "nvcc-1.whl": {"nvidia/cu13/bin/nvcc": "#!/bin/sh\necho release 13.0\n", "nvcc.dist-info/METADATA": "x"},
        "nvvm-1.whl": {"nvidia/cu13/nvvm/bin/cicc": "", "nvidia/cu13/lib/libnvvm.so.4": "n", "nvidia/__init__.py": ""},
        "cublas-1.whl": {"nvidia/cu13/lib/libcublas.so.13": "c", "nvidia/cu13/../../../outside": "evil"},
    }
    for name, content in files.items():
        with zipfile.ZipFile(folder / name, "w") as wheel:
            for path, text in content.items():
                wheel.writestr(path, text)


def test_wheels_become_one_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(cuda, "download", lambda folder: (asked.append(folder), make_wheels(folder)))
    toolkit = tmp_path / "tool kit"
    assert cuda.collect(toolkit)
    assert os.access(toolkit / "bin" / "nvcc", os.X_OK)
    assert os.access(toolkit / "nvvm" / "bin" / "cicc", os.X_OK)
    assert (toolkit / "lib64" / "libcublas.so").read_text() == "c"
    assert (toolkit / "lib" / "libnvvm.so").is_symlink()
    assert not list(tmp_path.rglob("outside"))
    assert not list(toolkit.rglob("*.whl"))
    assert not cuda.collect(toolkit)  # there already
    assert len(asked) == 1
    (toolkit / cuda.STAMP).write_text("of another release\n")
    (toolkit / "old").touch()
    assert cuda.collect(toolkit)
    assert not (toolkit / "old").exists()


def test_without_a_package_index_one_line_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    result = subprocess.run(
        [sys.executable, FOLDER / "cuda.py", tmp_path / "toolkit"], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: pip cannot download nvidia-cuda-nvcc==")
    assert not (tmp_path / "toolkit" / cuda.STAMP).exists()


def test_a_system_without_apt_is_told_what_to_do(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, FOLDER / "vulkan.py", tmp_path / "sdk"], capture_output=True, text=True, env={"PATH": ""}
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: apt-get is not here")
    assert "VULKAN_SDK" in result.stderr


def test_who_may_not_install_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*command: str, **_: object) -> str:
        if command[0] != "dpkg-query":
            raise AssertionError(command)
        if command[-1] == "glslc":
            raise vulkan.ToolchainError("no packages found")
        return "not-installed" if command[-1] == "libvulkan1" else "installed"

    monkeypatch.setattr(vulkan, "run", run)
    monkeypatch.setattr(vulkan.os, "geteuid", lambda: 1000)
    with pytest.raises(vulkan.ToolchainError, match=r"apt-get install --no-install-recommends libvulkan1 glslc$"):
        vulkan.install(vulkan.INSTALLED)
    assert vulkan.install(("mesa-vulkan-drivers",)) == []


def test_a_command_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(vulkan.ToolchainError, match="sh -c echo no >&2; exit 3\nno"):
        vulkan.run("sh", "-c", "echo no >&2; exit 3")
