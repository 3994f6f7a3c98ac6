"""Models and contexts for the tests of the primitives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from causerie.llama import Context, Model

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def model(smollm2_path: Path) -> Iterator[Model]:
    """SmolLM2-135M-Instruct, Q4_1."""
    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    """A small context of its own for each test."""
    with Context(model, n_ctx=512, n_batch=512) as ctx:
        yield ctx


@pytest.fixture(scope="session")
def tools_dir() -> Path:
    """Folder with llama.cpp's own programs, built from the vendored source by `make tools`."""
    chosen = os.environ.get("CAUSERIE_TOOLS_DIR")
    for folder in [Path(chosen)] if chosen else sorted((ROOT / "build").glob("*/bin")):
        if shutil.which("llama-completion", path=str(folder)) is not None:
            return folder
    pytest.fail("llama.cpp's own programs are not built: run `make tools`, or set CAUSERIE_TOOLS_DIR")


@pytest.fixture(scope="session")
def tiny_models(tools_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny random-weight model per architecture, by llama.cpp's name for it."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run(
        [tools_dir / "test-llama-archs", "-o", folder],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return {path.name.removesuffix(".gguf"): path for path in sorted(folder.glob("*.gguf"))}
