"""The command in processes of its own, with the real model, and its parts in this one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from cli_command import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

    from causerie.cli.session import Session
    from causerie.llama.model import Model


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No file of the user but the model cache is read or written."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CAUSERIE_") or k == "CAUSERIE_CACHE_DIR"}
    return {
        **kept,
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONUTF8": "1",
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        # Threads that wait for each other by spinning make a busy machine slower by far more than the load.
        "OMP_THREAD_LIMIT": "1",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run `causerie ARGUMENTS` to its end; stdin is empty unless `input` is given."""

    def execute(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        options.setdefault("input", "")
        env = {**environment, **options.pop("env", {})}
        return subprocess.run(
            [*COMMAND, *arguments], capture_output=True, encoding="utf-8", env=env, cwd=tmp_path, timeout=300, **options
        )

    return execute


@pytest.fixture(scope="session")
def model(smollm2_path: Path) -> Iterator[Model]:
    """SmolLM2-135M-Instruct, Q4_1."""
    from causerie.llama.model import Model

    with Model(smollm2_path) as loaded:
        yield loaded


@pytest.fixture
def open_session(model: Model) -> Iterator[Callable[..., Session]]:
    """Make sessions that always take the likeliest token, with answers of 12 tokens at most."""
    from causerie.cli.session import Session
    from causerie.llama.sampler import Sampler

    opened: list[Session] = []

    def make(**options: object) -> Session:
        session = Session(model, Sampler.chain([Sampler.greedy()]), **{"n_ctx": 512, "max_tokens": 12, **options})
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


@pytest.fixture
def session(open_session: Callable[..., Session]) -> Session:
    """One such session."""
    return open_session()
