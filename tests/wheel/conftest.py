"""A portable wheel, named by CAUSERIE_WHEEL (`make test-wheel`), and environments that it is installed in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from installed import Installed


@pytest.fixture(scope="session")
def wheel() -> Path:
    chosen = os.environ.get("CAUSERIE_WHEEL")
    if not chosen:
        pytest.skip("CAUSERIE_WHEEL names no portable wheel: make wheel test-wheel")
    return Path(chosen).resolve(strict=True)


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a fresh environment of this Python."""
    return Installed(tmp_path_factory.mktemp("installed"), sys.executable, wheel)


@pytest.fixture
def changed(installed: Installed, tmp_path: Path) -> Installed:
    """A copy of the installed package that may be changed; everything else of the environment is shared."""
    return installed.copy(tmp_path / "copy")
