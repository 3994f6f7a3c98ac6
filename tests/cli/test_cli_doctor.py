"""`causerie doctor`, `causerie models`, `--version`, and how little it takes to say `--help`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import causerie
from causerie import models
from causerie.cli import app, progress
from causerie.cli.doctor import doctor

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

HEAVY = ("numpy", "causerie._native", "causerie.llama", "prompt_toolkit", "rich", "huggingface_hub")


def test_doctor_tells_people_what_is_here_and_what_is_missing(run: Run) -> None:
    result = run("doctor")
    assert result.returncode == 0
    build = causerie.build_info()
    for text in (build.version, build.llama_version, build.llama_commit, build.compiler, "devices", "threads", "free"):
        assert text in result.stdout
    diagnosis = causerie.doctor()
    for name, advice in diagnosis.missing.items():
        assert any(name in line and advice in line for line in result.stdout.splitlines())
    for device in diagnosis.devices:
        assert device.description in result.stdout


def test_doctor_tells_programs_the_same(run: Run) -> None:
    result = run("doctor", "--json")
    assert result.returncode == 0
    facts = json.loads(result.stdout)
    diagnosis = causerie.doctor()
    assert facts["ok"] is True
    assert facts["llama_commit"] == diagnosis.build.llama_commit
    assert facts["backends"] == list(diagnosis.build.backends)
    assert facts["flags"] == dict(diagnosis.build.flags)
    assert [device["name"] for device in facts["devices"]] == [device.name for device in diagnosis.devices]
    assert facts["missing"] == dict(diagnosis.missing)
    assert facts["python"] == diagnosis.python
    assert isinstance(facts["memory_available"], (int, type(None)))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native module cannot be loaded."""

    def fail() -> None:
        raise ImportError("libllama.so: cannot open\nshared object file")

    monkeypatch.setattr(causerie, "doctor", fail, raising=False)


@pytest.mark.usefixtures("broken")
def test_doctor_says_why_the_native_module_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(as_json=False) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "libllama.so: cannot open shared object file" in err
    assert "pip install --force-reinstall" in err


@pytest.mark.usefixtures("broken")
def test_doctor_says_it_to_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(as_json=True) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is False
    assert "libllama.so" in facts["error"]
    assert "pip install" in facts["advice"]


@pytest.mark.parametrize(
    ("command", "code"), [(["doctor"], 1), (["chat", "hello"], 1), (["models"], 0), (["--help"], 0)]
)
def test_without_the_native_module_no_command_ends_in_a_traceback(
    command: list[str], code: int, environment: dict[str, str], smollm2_path: Path
) -> None:
    block = "import sys; sys.modules['causerie._native'] = None\n"
    script = f"{block}from causerie.cli import main; sys.exit(main({command!r}))"
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    if code:
        assert result.stderr.startswith("causerie: error: ")
        assert "causerie._native" in result.stderr


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["chat", "--help"], ["models", "list"]])
def test_what_needs_no_model_loads_nothing_heavy(command: list[str], environment: dict[str, str]) -> None:
    code = f"""
import sys
from causerie.cli import main
try:
    main({command!r})
except SystemExit:
    pass
print("LOADED", [name for name in {HEAVY!r} if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert result.stdout.splitlines()[-1] == "LOADED []"


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"causerie {causerie.__version__}\n"


def test_the_script_of_the_package_is_this_command() -> None:
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="causerie")
    assert script.load() is app.main


def test_models_lists_what_is_cached_and_what_could_be(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    (folder / "mine.gguf").write_bytes(b"GGUF" * 500)
    env = {"CAUSERIE_CACHE_DIR": str(tmp_path / "cache")}
    for arguments in (["models"], ["models", "list"]):
        result = run(*arguments, env=env)
        assert result.returncode == 0
        mine, known = result.stdout.splitlines()
        assert mine.split() == ["mine.gguf", "2.0", "KiB", str(folder / "mine.gguf")]
        assert known.startswith("smollm2")
        assert "causerie models fetch smollm2" in known


def test_models_path_fetches_nothing(run: Run, tmp_path: Path) -> None:
    result = run("models", "path", "smollm2", env={"CAUSERIE_CACHE_DIR": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"})
    assert result.returncode == 1
    assert "causerie models fetch smollm2" in result.stderr
    assert not (tmp_path / "cache").exists()


def test_models_path_and_fetch_print_where_a_model_is(run: Run, smollm2_path: Path) -> None:
    assert run("models", "path", "smollm2").stdout == f"{smollm2_path}\n"
    assert run("models", "fetch", "smollm2").stdout == f"{smollm2_path}\n"
    assert run("models", "path", str(smollm2_path)).stdout == f"{smollm2_path}\n"


def test_models_remove_deletes(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    (folder / "mine.gguf").write_bytes(b"GGUF")
    result = run("models", "remove", "mine.gguf", env={"CAUSERIE_CACHE_DIR": str(tmp_path / "cache")})
    assert (result.returncode, result.stderr) == (0, "causerie: removed mine.gguf (4 B)\n")
    assert not (folder / "mine.gguf").exists()


def test_a_fetch_is_noted_once_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.fetch_progress("tiny") as report:
        report(0, 2048)
        report(2048, 2048)
    assert capsys.readouterr() == ("", "causerie: fetching tiny (2.0 KiB)\n")


def test_what_is_not_fetched_is_not_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.fetch_progress("tiny"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.fetch_progress("tiny") as report:
        report(1000, 2000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Fetching tiny" in err
    assert "1.0/2.0 kB" in err


def test_a_terminal_without_rich_gets_the_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress.fetch_progress("tiny") as report:
        report(0, None)
    assert capsys.readouterr().err == "causerie: fetching tiny\n"


def test_a_cache_folder_that_cannot_be_read_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    result = run("chat", "x", env={"CAUSERIE_CACHE_DIR": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"})
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert os.linesep not in result.stdout


def test_the_cache_folder_of_the_tests_is_the_users(smollm2_path: Path) -> None:
    assert smollm2_path.is_relative_to(models.default_cache_dir())
