"""The parts of the command that need no model: arguments, how lines are read, transcripts, small texts."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.cli import transcript
from causerie.cli.app import main
from causerie.cli.arguments import build_parser
from causerie.cli.chat import sampling
from causerie.cli.commands import COMMANDS, parse
from causerie.cli.text import count, one_line, shorten, size
from causerie.cli.transcript import Entry

ENTRIES = [
    Entry("system", "Be brief."),
    Entry("user", "Two\n\nlines"),
    Entry("assistant", "Žluťoučký", "stop"),
    Entry("user", "More?"),
    Entry("assistant", "It is", "cancelled"),
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
        ["chat", "--thinking-budget", "-1"],
        ["chat", "--n-ctx", "1"],
        ["chat", "--threads", "0"],
        ["chat", "--overflow", "nonsense"],
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
    assert "a command is missing: chat, models, fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--verbose", "chat"], ["chat", "-v"], ["-v", "models", "list"], ["doctor", "-v"]]
)
def test_verbose_may_stand_anywhere(arguments: list[str]) -> None:
    assert build_parser().parse_args(arguments).verbose


def test_options_that_are_not_given_are_left_to_the_model() -> None:
    parse_args = build_parser().parse_args
    assert sampling(parse_args(["chat"])).given() == {"max_tokens": 1024}
    given = parse_args(
        ["chat", "--temperature", "0", "--top-k", "0", "--top-p", "0.5", "--min-p", "0", "--max-tokens", "5",
         "--thinking-budget", "0"]
    )  # fmt: skip
    assert sampling(given).given() == {
        "temperature": 0.0, "top_k": 0, "top_p": 0.5, "min_p": 0.0, "max_tokens": 5, "thinking_budget": 0,
    }  # fmt: skip


def test_what_the_sampler_refuses_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["chat", "x", "--temperature", "1e300"])
    assert caught.value.code == 2
    assert "temperature must be in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello", None),
        (" /etc/passwd", None),
        ("/reset", ("/reset", "")),
        ("/system  Be brief. ", ("/system", "Be brief.")),
        ("/system\nBe brief.\nAlways.", ("/system", "Be brief.\nAlways.")),
        ("/edit 1 Two\nlines", ("/edit", "1 Two\nlines")),
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


def test_the_documentation_has_every_command_and_every_option() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text("utf-8")
    assert re.findall(r"^\| `(/[^`]*)`", page, re.MULTILINE) == [command.usage for command in COMMANDS.values()]
    chat = build_parser().parse_args(["chat"]).parser
    options = {option for action in chat._actions for option in action.option_strings} - {"-h", "--help"}
    assert options == set(re.findall(r"`(--?[a-z-]+)`", page.split("| option |")[1].split("##")[0]))


def test_markdown_has_a_heading_per_message() -> None:
    assert transcript.as_markdown(ENTRIES, model="tiny") == (
        "# Conversation with tiny\n\n## System\n\nBe brief.\n\n## You\n\nTwo\n\nlines\n\n"
        "## Assistant\n\nŽluťoučký\n\n## You\n\nMore?\n\n## Assistant (stopped)\n\nIt is\n"
    )


def test_json_has_messages_in_the_openai_shape(tmp_path: Path) -> None:
    path = transcript.save(tmp_path / "talk.JSON", ENTRIES, model="tiny")
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
            transcript.save(path, ENTRIES, model="tiny")
    assert path.read_text() == "old"
    transcript.save(path, ENTRIES, model="tiny")
    assert path.read_text("utf-8").startswith("# Conversation")
    assert [entry.name for entry in tmp_path.iterdir()] == ["talk.md"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions and links of POSIX")
def test_a_transcript_follows_links_and_the_umask(tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to(tmp_path / "target.md")
    before = os.umask(0o027)
    try:
        transcript.save(tmp_path / "link.md", ENTRIES, model="tiny")
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
    assert [count(n, "cell") for n in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert shorten("  two\nlines", 20) == "  two lines"
    assert shorten("  two\nlines", 8) == "  two..."
    assert one_line(ValueError("two\n lines")) == "two lines"
    assert one_line(MemoryError()) == "MemoryError"
