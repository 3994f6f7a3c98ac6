"""Random schemas, patterns, grammars, templates, messages and replies end with exit code 0, whatever they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "fuzz_chat.py"
# Seeds that once found something, and how many new ones a run tries: CAUSERIE_FUZZ_CHAT_SEEDS=5000 for a long one.
KEPT_SEEDS: tuple[int, ...] = (21579,)
NEW_SEEDS = int(os.environ.get("CAUSERIE_FUZZ_CHAT_SEEDS", "90"))


def run(first: int, count: int) -> None:
    command = [sys.executable, "-X", "faulthandler", PROGRAM, str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120 + 10 * count)
    last = done.stdout.splitlines()[-1] if done.stdout else "nothing"
    assert done.returncode == 0, f"exit code {done.returncode} at {last}\n{done.stderr[-4000:]}"
    assert last == "done"


@pytest.mark.timeout(0)
def test_nothing_random_ends_the_process() -> None:
    run(0, NEW_SEEDS)


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_what_once_found_something(seed: int) -> None:
    run(seed, 1)
