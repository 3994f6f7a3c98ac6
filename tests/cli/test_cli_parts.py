"""The parts of the command that need no model: arguments, settings, slash commands, transcripts."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.cli import transcript
from causerie.cli.app import main
from causerie.cli.arguments import build_parser
from causerie.cli.commands import COMMANDS, Commands, parse
from causerie.cli.prompt import Turn
from causerie.cli.sampling import build_sampler, settings
from causerie.cli.text import one_line, size
from causerie.llama.sampler import Sampler

if TYPE_CHECKING:
    from pathlib import Path

TURNS = [
    Turn("system", "Be brief."),
    Turn("user", "Two\n\nlines"),
    Turn("assistant", "Žluťoučký", (1, 2), "stop"),
    Turn("user", "More?"),
    Turn("assistant", "It is", (3,), "cancelled"),
]


@pytest.mark.parametrize(
    "arguments",
    [
        ["chat", "--temperature", "-1"],
        ["chat", "--temperature", "nan"],
        ["chat", "--temperature", "inf"],
        ["chat", "--top-p", "1.5"],
        ["chat", "--min-p", "x"],
        ["chat", "--top-k", "-1"],
        ["chat", "--seed", "4294967295"],
        ["chat", "--max-tokens", "0"],
        ["chat", "--n-ctx", "1"],
        ["chat", "--threads", "0"],
        ["chat", "one", "two"],
        ["nonsense"],
        ["models", "fetch"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(arguments)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_missing_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "chat, models or doctor" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--verbose", "chat"], ["chat", "-v"], ["-v", "models", "list"], ["doctor", "-v"]]
)
def test_verbose_may_stand_anywhere(arguments: list[str]) -> None:
    assert build_parser().parse_args(arguments).verbose


def options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"temperature": None, "top_k": None, "top_p": None, "min_p": None, "seed": None, **given}
    )


def test_settings_come_from_the_command_line_then_the_model_then_llama_cpp() -> None:
    recommended = {"temp": "0.6", "top_k": "20", "min_p": "nonsense", "mirostat": "1"}
    chosen = settings(options(temperature=0.0), recommended)
    assert chosen == {"temp": 0.0, "top_k": 20.0, "top_p": 0.95, "min_p": 0.05}


def kinds(monkeypatch: pytest.MonkeyPatch, **given: Any) -> list[tuple[str, Any]]:
    for name in ("greedy", "dist", "top_k", "top_p", "min_p", "temperature"):
        monkeypatch.setattr(Sampler, name, lambda *value, name=name: (name, *value))
    monkeypatch.setattr(Sampler, "chain", list)
    model: Any = SimpleNamespace(sampling_defaults={})
    return build_sampler(options(**given), model)  # type: ignore[return-value]


def test_the_sampler_follows_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds(monkeypatch, seed=7) == [
        ("top_k", 40),
        ("top_p", 0.95),
        ("min_p", 0.05),
        ("temperature", 0.8),
        ("dist", 7),
    ]
    assert kinds(monkeypatch, temperature=0.0, seed=7) == [("greedy",)]
    assert ("top_k", 0) not in kinds(monkeypatch, top_k=0)
    assert kinds(monkeypatch)[-1] != kinds(monkeypatch)[-1]  # another seed each time


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello", None),
        (" /etc/passwd", None),
        ("/reset", ("/reset", "")),
        ("/system  Be brief. ", ("/system", "Be brief.")),
        ("/system\nBe brief.\nAlways.", ("/system", "Be brief.\nAlways.")),
        ("/save a b.md", ("/save", "a b.md")),
        ("/", ("/", "")),
    ],
)
def test_lines_with_a_slash_are_commands(line: str, expected: tuple[str, str] | None) -> None:
    assert parse(line) == expected


@given(st.text())
def test_any_line_is_a_command_or_not(text: str) -> None:
    command = parse("/" + text)
    assert command is not None
    assert command[0].startswith("/")
    assert not any(c in command[0] for c in " \n")


class FakeSession:
    system: str | None = None
    messages = TURNS
    was_reset = False

    def reset(self) -> None:
        self.was_reset = True


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def commands(said: list[str]) -> Commands:
    session: Any = FakeSession()
    return Commands(session, model="tiny", say=said.append)


def test_help_lists_every_command(commands: Commands, said: list[str]) -> None:
    assert commands.run("/help", "")
    assert all(any(line.startswith(name) for line in said) for name in COMMANDS)


def test_every_listed_command_exists(commands: Commands, said: list[str]) -> None:
    for name in COMMANDS:
        commands.run(name, "")
    assert not any("Unknown" in line for line in said)


def test_an_unknown_command_gets_a_hint(commands: Commands, said: list[str]) -> None:
    assert commands.run("/nonsense", "x")
    assert said == ["Unknown command /nonsense: /help lists the commands."]


def test_quit_leaves(commands: Commands) -> None:
    assert not commands.run("/quit", "")


def test_system_sets_and_shows(commands: Commands, said: list[str]) -> None:
    commands.run("/system", "")
    assert "no system text" in said.pop()
    commands.run("/system", "Be brief.")
    commands.run("/system", "")
    assert said[-1] == "Be brief."


def test_save_says_where_or_why_not(commands: Commands, said: list[str], tmp_path: Path) -> None:
    commands.run("/save", str(tmp_path / "a b.md"))
    assert said.pop() == f"Saved to {tmp_path / 'a b.md'}"
    for bad in (str(tmp_path), str(tmp_path / "no" / "folder.md"), "a\0b", "~nobody-of-that-name/x"):
        assert commands.run("/save", bad)
        assert said.pop().startswith("Not saved: ")
    commands.run("/save", "")
    assert said == ["Usage: /save PATH"]
    assert [path.name for path in tmp_path.iterdir()] == ["a b.md"]


def test_markdown_has_a_heading_per_message() -> None:
    assert transcript.as_markdown(TURNS, model="tiny") == (
        "# Conversation with tiny\n\n## System\n\nBe brief.\n\n## You\n\nTwo\n\nlines\n\n"
        "## Assistant\n\nŽluťoučký\n\n## You\n\nMore?\n\n## Assistant (stopped)\n\nIt is\n"
    )


def test_json_has_messages_in_the_openai_shape(tmp_path: Path) -> None:
    path = transcript.save(tmp_path / "talk.JSON", TURNS, model="tiny")
    loaded = json.loads(path.read_text("utf-8"))
    assert loaded["model"] == "tiny"
    assert loaded["messages"][0] == {"role": "system", "content": "Be brief."}
    assert loaded["messages"][4] == {"role": "assistant", "content": "It is", "finish_reason": "cancelled"}


def test_a_transcript_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "talk.md"
    path.write_text("old")

    def fail(_: int) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            transcript.save(path, TURNS, model="tiny")
    assert path.read_text() == "old"
    transcript.save(path, TURNS, model="tiny")
    assert path.read_text("utf-8").startswith("# Conversation")
    assert [entry.name for entry in tmp_path.iterdir()] == ["talk.md"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions and links of POSIX")
def test_a_transcript_follows_links_and_the_umask(tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to(tmp_path / "target.md")
    before = os.umask(0o027)
    try:
        transcript.save(tmp_path / "link.md", TURNS, model="tiny")
    finally:
        os.umask(before)
    assert (tmp_path / "link.md").is_symlink()
    assert stat.S_IMODE((tmp_path / "target.md").stat().st_mode) == 0o640


def test_sizes_and_errors_read_well() -> None:
    assert [size(n) for n in (0, 1023, 1536, 98_362_432, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "93.8 MiB",
        "3.0 TiB",
    ]
    assert one_line(ValueError("two\n lines")) == "two lines"
    assert one_line(MemoryError()) == "MemoryError"
