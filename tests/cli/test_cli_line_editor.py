"""The keys of the interactive chat, pressed on prompt_toolkit's own fake terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from causerie.cli import line_editor

if TYPE_CHECKING:
    from pathlib import Path

ENTER, ALT_ENTER, CTRL_C, CTRL_D = "\r", "\x1b\r", "\x03", "\x04"
PASTE = "\x1b[200~{}\x1b[201~"

Type = Callable[..., str]


@pytest.fixture
def press() -> Iterator[Type]:
    """What the editor returns for some keys."""
    with create_pipe_input() as source:

        def type_(keys: str, history: Path | None = None) -> str:
            source.send_text(keys)
            return line_editor.build(history, source=source, screen=DummyOutput()).prompt()

        yield type_


def test_enter_sends(press: Type) -> None:
    assert press("hello" + ENTER) == "hello"


def test_alt_enter_starts_a_new_line(press: Type) -> None:
    assert press("one" + ALT_ENTER + "two" + ENTER) == "one\ntwo"


def test_pasted_lines_stay_together(press: Type) -> None:
    assert press(PASTE.format("one\ntwo\nthree") + "!" + ENTER) == "one\ntwo\nthree!"


def test_ctrl_c_empties_the_line_and_leaves_an_empty_one(press: Type) -> None:
    assert press("wrong" + CTRL_C + "right" + ENTER) == "right"
    with pytest.raises(KeyboardInterrupt):
        press(CTRL_C)


def test_ctrl_d_ends_the_input(press: Type) -> None:
    with pytest.raises(EOFError):
        press(CTRL_D)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/s", ["/system", "/save", "/stats"]),
        ("/res", ["/resume", "/reset"]),
        ("/x", []),
        ("a /s", []),
        ("", []),
        ("/save /s", []),
    ],
)
def test_commands_are_completed_and_nothing_else(typed: str, offered: list[str]) -> None:
    found = line_editor._CommandCompleter().get_completions(Document(typed), CompleteEvent())
    assert [completion.text for completion in found] == offered


def test_inputs_are_kept_for_the_next_time(press: Type, tmp_path: Path) -> None:
    press("first\\" + ALT_ENTER + "line" + ENTER, tmp_path / "history")
    assert press("\x1b[A" + ENTER, tmp_path / "history") == "first\\\nline"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_history_that_cannot_be_written_stops_nothing(press: Type, tmp_path: Path) -> None:
    (tmp_path / "history").touch(0o400)
    assert press("hello" + ENTER, tmp_path / "history") == "hello"


def test_a_history_that_vanished_stops_nothing(press: Type, tmp_path: Path) -> None:
    assert press("hello" + ENTER, tmp_path / "gone" / "history") == "hello"
