"""What resolve() takes for a name, and what it says where there is no such model."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from causerie import models
from causerie.errors import ModelLoadError


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "some.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_the_chat_model_of_the_tests_is_the_promised_file(smollm2_path: Path) -> None:
    entry = models.aliases()["smollm2"]
    assert smollm2_path.stat().st_size == entry.size
    assert hashlib.sha256(smollm2_path.read_bytes()).hexdigest() == entry.sha256


def test_a_path_is_returned_absolute(gguf: Path) -> None:
    assert models.resolve("some.gguf") == gguf
    assert models.resolve(Path("some.gguf")) == gguf
    assert models.resolve(str(gguf)) == gguf


def test_a_path_below_the_home_folder_is_expanded(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gguf.parent))
    monkeypatch.setenv("USERPROFILE", str(gguf.parent))
    assert models.resolve("~/some.gguf") == gguf


def test_an_alias_wins_over_a_file_of_that_name_and_a_path_means_the_file(gguf: Path, smollm2_path: Path) -> None:
    decoy = gguf.with_name("smollm2")
    decoy.write_bytes(b"GGUF")
    assert models.resolve("./smollm2") == decoy
    assert models.resolve(Path("smollm2")) == decoy
    cache = smollm2_path.parents[1]
    assert models.resolve("smollm2", cache_dir=cache) == smollm2_path


@pytest.mark.parametrize("name", ["no/such/model.gguf", "missing.gguf", Path("missing")])
def test_a_missing_file_is_named_with_what_else_could_be_asked_for(gguf: Path, name: str | Path) -> None:
    with pytest.raises(ModelLoadError, match="no model file at") as caught:
        models.resolve(name)
    assert str(gguf.parent / name) in str(caught.value)
    assert "smollm2" in str(caught.value)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_unknown_name_lists_aliases_and_forms() -> None:
    with pytest.raises(ModelLoadError, match=r"unknown model 'gpt-9'.*smollm2.*hf:owner/repo:filename"):
        models.resolve("gpt-9")


@pytest.mark.parametrize(
    ("name", "said"),
    [("", "an empty name"), (".", "a folder"), ("a\0b", "null"), ("x" * 5000, "cannot read"), (os.devnull, "regular")],
)
def test_what_is_no_model_file_is_refused(gguf: Path, name: str, said: str) -> None:
    with pytest.raises(ModelLoadError, match=said):
        models.resolve(name)


@pytest.mark.parametrize("name", ["hf:", "hf:repo:file.gguf", "hf:owner/repo", "hf:owner/repo:", "hf:a/b/c:file"])
def test_a_malformed_hub_name_shows_the_right_form(name: str) -> None:
    with pytest.raises(ModelLoadError, match="hf:owner/repo:filename"):
        models.resolve(name)


def test_the_alias_table_is_read_only() -> None:
    with pytest.raises(TypeError):
        models.aliases()["mine"] = models.aliases()["smollm2"]  # type: ignore[index]


def test_importing_models_imports_nothing_heavy() -> None:
    code = "import sys, causerie.models.hub; print([m for m in ('huggingface_hub', 'tqdm', 'pip') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(models.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
