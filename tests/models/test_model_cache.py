"""The cache folder: where it is, what it trusts, and what it lists and removes."""

from __future__ import annotations

import errno
import os
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from causerie import models
from causerie.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tiny


def test_the_environment_variable_names_the_cache_folder(cache_dir: Path) -> None:
    assert models.default_cache_dir() == cache_dir
    assert not cache_dir.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the rule of the XDG specification")
def test_the_user_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAUSERIE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models.default_cache_dir() == tmp_path / "xdg" / "causerie"
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert models.default_cache_dir() == tmp_path / ".cache" / "causerie"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [("darwin", "HOME", "Library/Caches/causerie"), ("win32", "LOCALAPPDATA", "causerie")],
)
def test_other_platforms_have_their_own_user_cache_folder(
    platform: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAUSERIE_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert models.default_cache_dir() == tmp_path / expected


def test_an_empty_cache_lists_nothing(cache_dir: Path) -> None:
    assert models.list_cached() == []
    cache_dir.write_text("not even a folder")
    assert models.list_cached() == []


def test_cached_models_are_listed_by_alias_or_file_name(tiny: Tiny) -> None:
    models.resolve("tiny")
    other = tiny.models / "by-hand.gguf"
    other.write_bytes(b"GGUF")
    first, second = models.list_cached()
    assert (first.name, first.path, first.size) == ("by-hand.gguf", other, 4)
    assert (second.name, second.path, second.size) == ("tiny", tiny.path, tiny.alias.size)
    assert abs((datetime.now(timezone.utc) - second.modified).total_seconds()) < 60


def test_a_removed_model_is_gone_and_comes_back_when_asked_for(tiny: Tiny) -> None:
    models.resolve("tiny")
    assert models.remove("tiny") == tiny.alias.size
    assert models.list_cached() == []
    assert {entry.name for entry in tiny.models.iterdir()} <= {".tiny.lock"}
    assert models.resolve("tiny").read_bytes() == tiny.content


@pytest.mark.parametrize("name", ["tiny", "../cache/models/x.gguf", "hf:owner/repo:file.gguf"])
def test_removing_what_is_not_cached_says_so(tiny: Tiny, name: str) -> None:
    with pytest.raises(ModelLoadError, match="is not cached") as caught:
        models.remove(name)
    assert caught.value.errno == errno.ENOENT


def test_a_file_put_there_by_hand_is_verified_once_and_taken(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    tiny.models.mkdir(parents=True)
    tiny.path.write_bytes(tiny.content)
    assert models.resolve("tiny") == tiny.path
    tiny.path.with_name(f".{tiny.path.name}.verified").write_text('{"torn')
    assert models.resolve("tiny") == tiny.path


def test_a_truncated_file_is_fetched_again(tiny: Tiny) -> None:
    models.resolve("tiny")
    os.truncate(tiny.path, 1000)
    assert models.resolve("tiny").read_bytes() == tiny.content


def test_a_file_changed_in_place_is_fetched_again(tiny: Tiny) -> None:
    models.resolve("tiny")
    with tiny.path.open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    os.utime(tiny.path, (1, 1))
    assert models.resolve("tiny").read_bytes() == tiny.content


def test_a_warm_cache_is_used_without_pip_or_network(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    models.resolve("tiny")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    seen: list[int] = []
    assert models.resolve("tiny", progress=lambda done, _: seen.append(done)) == tiny.path
    assert seen == []


def test_another_cache_folder_may_be_asked_for(tiny: Tiny, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    path = models.resolve("tiny", cache_dir=elsewhere)
    assert path == elsewhere / "models" / tiny.path.name
    assert [model.name for model in models.list_cached(cache_dir=elsewhere)] == ["tiny"]
    assert models.list_cached() == []
