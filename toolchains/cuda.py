#!/usr/bin/env python3
"""Collect NVIDIA's CUDA toolkit, as far as llama.cpp needs it, from wheels of the package index: `make cuda-toolkit`.

The folder serves as CUDAToolkit_ROOT, with bin/nvcc. No NVIDIA driver is needed to compile: without a driver's library
there, build with GGML_CUDA_NO_VMM=ON and GGML_CUDA_NCCL=OFF, as `make wheel-cuda` does.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Of CUDA 13.0 update 2, all of them: a compiler and headers of different releases refuse each other.
WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cublas==13.1.0.3",
)
INSIDE = "nvidia/cu13/"
PROGRAMS = ("bin/", "nvvm/bin/")
STAMP = "wheels.txt"


class ToolchainError(Exception):
    """The toolkit cannot be collected here."""


def collect(folder: Path) -> bool:
    """Fill the folder; False: it was filled with these wheels already.

    Raises:
        ToolchainError: the package index has no such wheels for this machine, or cannot be reached.
    """
    stamp = folder / STAMP
    wanted = "\n".join(WHEELS) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as downloads:
        download(Path(downloads))
        for wheel in sorted(Path(downloads).glob("*.whl")):
            unpack(wheel, folder)
    add_links(folder)
    stamp.write_text(wanted)
    return True


def download(folder: Path) -> None:
    """Let pip fetch the wheels.

    Raises:
        ToolchainError: with pip's words.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    result = subprocess.run(
        [*command, "--only-binary=:all:", "--dest", folder, *WHEELS], check=False, capture_output=True, text=True
    )
    if result.returncode:
        raise ToolchainError(f"pip cannot download {', '.join(WHEELS)}:\n{result.stderr.strip()}")


def unpack(wheel: Path, folder: Path) -> None:
    """Take a wheel's part of the toolkit out of it; programs become executable, which a wheel does not remember."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            name = entry.filename.removeprefix(INSIDE)
            parts = Path(name).parts
            if name == entry.filename or entry.is_dir() or ".." in parts or Path(name).is_absolute():
                continue
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            if name.startswith(PROGRAMS):
                target.chmod(0o755)


def add_links(folder: Path) -> None:
    """The names that a linker looks for: libx.so beside libx.so.13, and lib64, where CMake looks first."""
    for library in sorted((folder / "lib").glob("*.so.*")):
        link = library.with_name(library.name.partition(".so.")[0] + ".so")
        if not link.exists():
            link.symlink_to(library.name)
    (folder / "lib64").symlink_to("lib")


def main() -> int:
    """Collect, and say where."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="is emptied and filled")
    folder = parser.parse_args().folder
    try:
        made = collect(folder)
        version = subprocess.run([folder / "bin" / "nvcc", "--version"], check=True, capture_output=True, text=True)
    except (ToolchainError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    release = version.stdout.strip().splitlines()[-1]
    print(f"{folder}: {'collected' if made else 'there already'}, {release}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
