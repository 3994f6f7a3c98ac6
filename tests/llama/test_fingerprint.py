"""A fingerprint tells a model's content, and nothing of where it lies."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from tiny import write_llama

from causerie.llama import Model

if TYPE_CHECKING:
    from pathlib import Path


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
