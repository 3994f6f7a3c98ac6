"""The characters of regular expressions: escapes and classes in brackets (pure Python)."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from causerie.chat.schema.charset import CharSet, chars, complement, union

__all__ = ["ClassReader", "Pair"]

_HEX = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,6})\})")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_ASCII = {
    "d": chars("0123456789"),
    "w": union([((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))]),
    "s": chars(" \t\n\r\f\v"),
}
_EXTRA_SPACE = chars("\ufeff\u1680\u180e\u2028\u2029\u202f\u205f\u3000")


@cache
def _unicode(name: str) -> CharSet:
    r"""What \d, \w or \s may mean anywhere."""
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))
    spans = (match.span() for match in re.finditer(rf"\{name}+", text))

    def code(index: int) -> int:
        return ord(text[index])

    found = union([tuple((code(a), code(b - 1)) for a, b in spans)])
    return union([found, _EXTRA_SPACE]) if name == "s" else found


@dataclass(frozen=True)
class Pair:
    """A class of characters: those that are in it for everybody, and those that are in it for somebody."""

    narrow: CharSet
    wide: CharSet

    @classmethod
    def of(cls, code: int, last: int | None = None) -> Pair:
        """A character, or a range."""
        ranges = ((code, code if last is None else last),)
        return cls(ranges, ranges)

    def negated(self) -> Pair:
        """Everything outside."""
        return Pair(complement(self.wide), complement(self.narrow))

    def __or__(self, other: Pair) -> Pair:
        return Pair(union([self.narrow, other.narrow]), union([self.wide, other.wide]))


class ClassReader:
    """A place in a pattern, and the characters that can be read there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def fail(self, what: str, pos: int | None = None) -> NoReturn:
        """Raise with the position."""
        raise NotImplementedError

    def char(self) -> str:
        """The next character, "" at the end."""
        return self.text[self.pos : self.pos + 1]

    def take(self, expected: str) -> bool:
        """Read this text if it comes next."""
        found = self.text.startswith(expected, self.pos)
        self.pos += len(expected) if found else 0
        return found

    def checked(self, code: int, start: int) -> int:
        """A code point that is a character."""
        if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF:
            self.fail("this is not a Unicode character", start)
        return code

    def escape(self, *, in_class: bool = False) -> Pair:
        """Read what a backslash begins."""
        start = self.pos
        if match := _HEX.match(self.text, start):
            self.pos = match.end()
            return Pair.of(self.checked(int(next(filter(None, match.groups())), 16), start))
        self.pos += 2
        c = self.text[start + 1 : start + 2]
        if not c:
            self.fail("nothing follows the backslash", start)
        if c.lower() in _ASCII:
            pair = Pair(_ASCII[c.lower()], _unicode(c.lower()))
            return pair if c.islower() else pair.negated()
        if in_class and c == "b":
            return Pair.of(8)
        if c == "0" and self.char().isdigit():
            self.fail("octal escapes are not supported: write \\xHH", start)
        if c in _CONTROLS:
            return Pair.of(ord(_CONTROLS[c]))
        if c.isalnum():
            self.fail(f"the escape \\{c} is not supported", start)
        return Pair.of(self.checked(ord(c), start))

    def bracket(self) -> Pair:
        """Read [...]."""
        start = self.pos
        self.pos += 1
        negated = self.take("^")
        if self.char() == "]":
            self.fail("Python and JSON schema read ] at the start of a class differently: write \\]")
        found = Pair((), ())
        while self.char() != "]":
            if not self.char():
                self.fail("this bracket is never closed", start)
            found |= self._member()
        self.pos += 1
        return found.negated() if negated else found

    def _member(self) -> Pair:
        """Read a character, a range or a class escape."""
        start = self.pos
        first = self._class_atom()
        if self.char() != "-" or self.text[self.pos + 1 : self.pos + 2] in {"", "]"}:
            return first
        self.pos += 1
        last = self._class_atom()
        low, high = self._only(first, start), self._only(last, start)
        if high < low:
            self.fail("the range ends before it starts", start)
        return Pair.of(low, high)

    def _only(self, pair: Pair, start: int) -> int:
        if len(pair.wide) != 1 or pair.wide[0][0] != pair.wide[0][1]:
            self.fail("a range needs single characters at its ends", start)
        return pair.wide[0][0]

    def _class_atom(self) -> Pair:
        start = self.pos
        if self.char() == "\\":
            return self.escape(in_class=True)
        self.pos += 1
        return Pair.of(self.checked(ord(self.text[start]), start))
