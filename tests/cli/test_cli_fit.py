"""`causerie fit`, and the options of `causerie chat` that say where a model is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from causerie.llama.device import default_devices

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


def test_it_tells_what_fits(run: Run, smollm2_path: Path) -> None:
    result = run("fit", str(smollm2_path), "--device", "cpu", "--n-ctx", "512")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("it fits\n")
    assert "512 tokens" in result.stdout
    assert "30 layers" in result.stdout


def test_it_tells_programs_the_same(run: Run, smollm2_path: Path) -> None:
    result = run("fit", str(smollm2_path), "--device", "cpu", "--n-ctx", "512", "--json")
    facts = json.loads(result.stdout)
    assert facts["fits"] is True
    assert facts["n_ctx"] == 512
    assert facts["devices"][-1]["layers"] == 30


@pytest.mark.skipif(bool(default_devices()), reason="this machine has GPUs")
def test_what_does_not_fit_is_an_error_for_scripts(run: Run, smollm2_path: Path) -> None:
    result = run("fit", str(smollm2_path), "--margin", "2000000000", "--n-ctx", "512")
    assert result.returncode == 1
    assert result.stdout.startswith("it does not fit: ")


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "MODEL", "--device", "CUDA99"],
        ["chat", "--model", "MODEL", "--device", "CUDA99", "Hello"],
        ["chat", "--model", "MODEL", "--rpc", "nowhere", "Hello"],
        ["fit", "MODEL", "--type-k", "nonsense"],
    ],
)
def test_what_is_wrong_is_one_line(run: Run, smollm2_path: Path, command: list[str]) -> None:
    result = run(*(str(smollm2_path) if word == "MODEL" else word for word in command))
    assert result.returncode == 1
    assert result.stderr.startswith("causerie: error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--gpu-layers", "auto"], ["--isolate", "--gpu-layers", "0"]])
def test_wherever_the_model_is_the_answer_is_the_same(run: Run, options: list[str]) -> None:
    common = ["chat", "--device", "cpu", "--temperature", "0", "--max-tokens", "8", "--threads", "1", *options]
    result = run(*common, "Name a colour.")
    assert result.returncode == 0
    assert result.stdout.strip()
    plain = run("chat", "--temperature", "0", "--max-tokens", "8", "--threads", "1", "Name a colour.")
    assert result.stdout == plain.stdout
