"""A fingerprint tells a model's content, and nothing of where it lies."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import write_llama

from causerie.llama import Model

LOAD = """
import sys
from causerie.llama import Context, Model
with Model(sys.argv[1]) as model, Context(model, n_ctx=64, n_threads=1):
    print(sorted({"hashlib", "_hashlib"} & set(sys.modules)))
"""


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def fingerprint(source: object, **options: object) -> str:
    with Model(source, **options) as model:
        return model.fingerprint


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("fingerprint") / "tiny.gguf")


@pytest.fixture(scope="module")
def expected(tiny_path: Path) -> str:
    found = fingerprint(tiny_path)
    assert len(found) == 32
    return found


def test_another_path_is_the_same(tiny_path: Path, expected: str, tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(tiny_path.read_bytes())
    assert fingerprint(tmp_path / "other.gguf") == expected


def test_split_files_are_the_same(expected: str, tmp_path: Path) -> None:
    first = write_llama(tmp_path / "split.gguf", split_max_tensors=5)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    assert len(parts) > 2
    assert fingerprint(first) == fingerprint(parts) == expected


def test_a_file_object_is_the_same_also_behind_something_else(tiny_path: Path, expected: str, tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(b"x" * 32 + tiny_path.read_bytes())
    with (tmp_path / "packed").open("rb") as file:
        for source in (file, io.BytesIO((tmp_path / "packed").read_bytes())):
            source.seek(32)
            assert fingerprint(source) == expected


def test_other_weights_in_the_same_shape_differ(expected: str, tmp_path: Path) -> None:
    assert fingerprint(write_llama(tmp_path / "tiny.gguf", seed=1)) != expected


def test_other_metadata_differ(expected: str, tmp_path: Path) -> None:
    assert fingerprint(write_llama(tmp_path / "tiny.gguf", extra={"general.author": "somebody"})) != expected


def test_overridden_metadata_differ(tiny_path: Path, expected: str) -> None:
    assert fingerprint(tiny_path, kv_overrides={"llama.rope.freq_base": 5.0}) != expected


def test_loading_does_not_need_it(tiny_path: Path) -> None:
    """It takes OpenSSL, which is larger than all of this library's Python."""
    found = subprocess.run([sys.executable, "-c", LOAD, tiny_path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.skipif(os.name == "nt", reason="Windows does not remove what is open")
def test_is_that_of_the_files_which_were_loaded(tiny_path: Path, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_path.read_bytes())
    with Model(path) as model:
        path.unlink()
        write_llama(path, seed=1)
        assert model.fingerprint == expected
        assert model.fingerprint == expected


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@pytest.mark.parametrize("asked", [False, True])
def test_leaves_no_descriptor_open(tiny_path: Path, asked: bool) -> None:
    before = descriptors()
    for closed in (False, True):
        model = Model(tiny_path)
        if asked:
            assert model.fingerprint
        if closed:
            model.close()
        del model
        assert descriptors() == before
