"""Where the pieces of answers go, and how thinking is told apart."""

from __future__ import annotations

import io

from causerie.cli.printing import AnswerPrinter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(*pieces: tuple[str, str], answers: io.StringIO, thoughts: io.StringIO) -> None:
    write = AnswerPrinter(answers, thoughts)
    for text, kind in pieces:
        write(text, kind)
    write.end_line()


def test_thinking_goes_elsewhere() -> None:
    answers, thoughts = io.StringIO(), io.StringIO()
    pieces = [("Is it", "thinking"), ("?", "thinking"), ("It", "text"), (" is.", "text")]
    printed(*pieces, answers=answers, thoughts=thoughts)
    assert thoughts.getvalue() == "Is it?\n"
    assert answers.getvalue() == "It is.\n"


def test_on_a_terminal_it_is_faint_and_on_lines_of_its_own() -> None:
    screen = Terminal()
    printed(("Hm.", "thinking"), ("Yes.\n", "text"), answers=screen, thoughts=screen)
    assert screen.getvalue() == "\x1b[2mHm.\x1b[22m\nYes.\n"


def test_a_line_is_ended_once() -> None:
    screen = io.StringIO()
    printed(("Hm.\n", "thinking"), ("", "text"), ("Yes.", "text"), answers=screen, thoughts=screen)
    assert screen.getvalue() == "Hm.\nYes.\n"
