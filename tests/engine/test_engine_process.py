"""Ctrl-C, os.fork and the end of the interpreter in the middle of a generation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["interrupt", "fork", "leave"])
def test_in_a_process_of_its_own(tiny_models: dict[str, Path], name: str) -> None:
    program = Path(__file__).parent / "engine_process.py"
    result = subprocess.run(
        [sys.executable, program, name, tiny_models["llama-dense"]], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "fine\n"
    assert "Traceback" not in result.stderr
