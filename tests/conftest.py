"""Fixtures that every floor's tests share."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that; tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The chat model of the tests, fetched once per machine into the user's own cache."""
    from causerie import models

    return models.resolve("smollm2")


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder (not created yet) that stands in for the user's during one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CAUSERIE_CACHE_DIR", str(folder))
    return folder
