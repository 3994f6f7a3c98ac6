"""The words of GBNF: literals, classes, tokens, numbers and space, and where an error is (pure Python)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from causerie.errors import GrammarError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_REPETITIONS", "NAME", "Reader", "located"]

# llama.cpp's own limit; a larger maximum means "no maximum" there.
MAX_REPETITIONS = 2000
# Longer texts are no token of any vocabulary, and llama.cpp's tokeniser is not for letters without end.
_MAX_TOKEN_TEXT = 1024

NAME = re.compile(r"[a-zA-Z0-9-]+")
_ESCAPE = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\\"\[\]-])"
_IN_CLASS = rf"(?:[^\]\\]|{_ESCAPE})"
_LITERAL = re.compile(rf'"(?:[^"\\]|{_ESCAPE})*"')
_CLASS = re.compile(rf"\[\^?(?:{_IN_CLASS}(?:-(?!\]){_IN_CLASS})?)*\]")
_ANY_ESCAPE = re.compile(_ESCAPE)
_TOKEN = re.compile(r"!?<(?:\[([0-9]+)\]>|(?!\[)[^>]*>)")
_INT = re.compile(r"[0-9]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_OR_NEWLINE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")


def located(text: str, pos: int, what: str, **facts: object) -> GrammarError:
    """What is wrong at a place of a text, with line and column."""
    line = text.count("\n", 0, pos) + 1
    column = pos - (text.rfind("\n", 0, pos) + 1) + 1
    near = text[pos : pos + 30].split("\n", 1)[0]
    where = f"at {near!r}" if near else "at the end"
    return GrammarError(f"line {line}, column {column}: {what} ({where})", line=line, column=column, **facts)


class Reader:
    """A place in a text, and what can be read there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def fail(self, what: str, pos: int | None = None) -> NoReturn:
        """Raise with line and column of the place, or of another one."""
        raise located(self.text, self.pos if pos is None else pos, what)

    def char(self) -> str:
        """The next character, "" at the end."""
        return self.text[self.pos : self.pos + 1]

    def space(self, newline: bool) -> None:
        """Skip blanks and comments, and perhaps newlines."""
        match = (_SPACE_OR_NEWLINE if newline else _SPACE).match(self.text, self.pos)
        self.pos = match.end() if match else self.pos

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """What the pattern matches here; fails if nothing."""
        match = pattern.match(self.text, self.pos)
        if match is None:
            self.fail(f"expecting {what}")
        self.pos = match.end()
        return match

    def literal(self) -> int:
        """Read "..."; how many characters it has."""
        match = _LITERAL.match(self.text, self.pos)
        if match is None:
            self._fail_inside('"')
        self.pos = match.end()
        return len(_ANY_ESCAPE.sub("x", match.group())) - 2

    def char_class(self) -> int:
        """Read [...]; at most how many elements it has, 0 if it is empty."""
        match = _CLASS.match(self.text, self.pos)
        if match is None:
            self._fail_inside("]")
        self.pos = match.end()
        return len(match.group()[1:-1].removeprefix("^"))

    def _fail_inside(self, end: str) -> NoReturn:
        """Say what is wrong with a literal or class that starts here."""
        pos = self.pos + 1
        while pos < len(self.text) and self.text[pos] != end:
            if self.text[pos] == "\\":
                match = _ANY_ESCAPE.match(self.text, pos)
                if match is None:
                    self.fail("unknown escape", pos)
                pos = match.end()
            else:
                pos += 1
        self.fail(f"what starts here is never closed by {end}")

    def token(self, is_token: Callable[[str], bool], n_tokens: int) -> None:
        """Read <[id]> or <text>, or its negation with ! in front."""
        start = self.pos
        match = self.take(_TOKEN, "a token such as <[123]> or <|im_end|>")
        number, text = match.group(1), match.group().removeprefix("!")
        if number is not None:
            if len(number) > 10 or int(number) >= n_tokens:
                self.fail(f"token ids of this vocabulary are 0..{n_tokens - 1}", start)
        elif len(text) > _MAX_TOKEN_TEXT or not is_token(text):
            self.fail("this is not the text of a single token", start)

    def bounds(self, nested: bool) -> tuple[int, int | None]:
        """Read *, +, ?, {n}, {n,} or {n,m}; None: no maximum."""
        start = self.pos
        c = self.char()
        self.pos += 1
        self.space(nested)
        if c != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
        low = self._number()
        high: int | None = low
        self.space(nested)
        if self.char() == ",":
            self.pos += 1
            self.space(nested)
            high = self._number() if _INT.match(self.text, self.pos) else None
            self.space(nested)
        if self.char() != "}":
            self.fail("expecting , or }")
        self.pos += 1
        self.space(nested)
        if low > MAX_REPETITIONS:
            self.fail(f"{low} repetitions are more than llama.cpp's {MAX_REPETITIONS}", start)
        return low, None if high is None or high > MAX_REPETITIONS else high

    def _number(self) -> int:
        start = self.pos
        digits = self.take(_INT, "a number").group().lstrip("0") or "0"
        if len(digits) > 18:
            self.fail("the number is too large", start)
        return int(digits)
