"""Prints the pieces of an answer; what the model thinks before it is told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["AnswerPrinter"]

_FAINT, _PLAIN = "\x1b[2m", "\x1b[22m"


class AnswerPrinter:
    """Writes answers to one stream, and thinking to another or to the same: faint on a terminal, on lines of its own.

    Args:
        answers: takes what the model says.
        thoughts: takes what it thinks.
    """

    def __init__(self, answers: TextIO, thoughts: TextIO) -> None:
        self._answers = answers
        self._thoughts = thoughts
        self._thinking = False
        self._at_start = True

    def __call__(self, text: str, kind: str = "text") -> None:
        """Write a piece.

        Args:
            text: the piece.
            kind: of the chunk it came in.
        """
        thinking = kind == "thinking"
        if self._thinking and not thinking:
            self.end_line()
        self._thinking = thinking
        stream = self._stream
        if self._thinking and stream.isatty():
            stream.write(f"{_FAINT}{text}{_PLAIN}")
        else:
            stream.write(text)
        stream.flush()
        if text:
            self._at_start = text.endswith("\n")

    def end_line(self) -> None:
        """Begin a new line, if what was written last did not end one."""
        if not self._at_start:
            self._stream.write("\n")
            self._stream.flush()
            self._at_start = True

    @property
    def _stream(self) -> TextIO:
        return self._thoughts if self._thinking else self._answers
