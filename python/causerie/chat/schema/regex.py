"""Regular expressions, the part of them that is regular, as both Python and JSON schema (ECMA 262) write it.

Where the two differ, what is generated matches in both: the escapes for digits, words and space give ASCII, their
opposites what is outside the Unicode classes, and a point no line separator. Capturing makes no difference to what a
pattern matches, nor does laziness.
"""

from __future__ import annotations

import re
from typing import NoReturn

from causerie.chat.schema.automaton import EMPTY, Expression, Symbol, either, repeated, sequence
from causerie.chat.schema.charset import ANY, chars, complement
from causerie.chat.schema.regex_classes import ClassReader, Pair
from causerie.errors import SchemaError

__all__ = ["parse_regex"]

_GROUP = re.compile(r"\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>)")
_BRACES = re.compile(r"\{(\d*)(,?)(\d*)\}")
_MAX_NESTING = 50
_MAX_LENGTH = 4000
_MAX_COUNT = 100_000
_ANY_TEXT = repeated(Symbol(ANY), 0, None)
_DOT = Symbol(complement(chars("\n\r\u2028\u2029")))


class _Parser(ClassReader):
    """Reads one pattern; `search`: it may match anywhere, unless anchored."""

    def __init__(self, pattern: str, path: str, *, search: bool, dotall: bool, wide: bool) -> None:
        super().__init__(pattern)
        self.path = path
        self.search = search
        self.wide = wide
        self.dot = Symbol(ANY) if dotall or wide else _DOT
        self.depth = 0

    def fail(self, what: str, pos: int | None = None) -> NoReturn:
        position = self.pos if pos is None else pos
        where = f"{self.path}: " if self.path else ""
        raise SchemaError(
            f"{where}pattern {self.text!r}, position {position}: {what}",
            path=self.path,
            position=position,
            pattern=self.text,
        )

    def read(self) -> Expression:
        if len(self.text) > _MAX_LENGTH:
            self.fail(f"the pattern is longer than {_MAX_LENGTH} characters", 0)
        options = [self.whole_option()]
        while self.take("|"):
            options.append(self.whole_option())
        if self.pos < len(self.text):
            self.fail("this parenthesis closes nothing")
        return either(options)

    def whole_option(self) -> Expression:
        """An option of the pattern itself, where anchors may stand at the ends."""
        begins = not self.search
        while self.take("^") or self.take("\\A"):
            begins = True
        body = self.option()
        ends = not self.search
        while self.take("$") or self.take("\\Z"):
            ends = True
        if self.char() not in {"", "|", ")"}:
            self.fail("an anchor is supported only at the start or the end of a pattern", self.pos - 1)
        behind = [] if ends else [_ANY_TEXT]
        if ends and self.wide:  # Python's $ stands before a line break at the end, too
            behind = [repeated(Symbol(chars("\n")), 0, 1)]
        return sequence([*([] if begins else [_ANY_TEXT]), body, *behind])

    def option(self) -> Expression:
        items = []
        while (c := self.char()) and c not in "|)$" and not self.text.startswith("\\Z", self.pos):
            items.append(self.quantified(self.atom()))
        return sequence(items)

    def atom(self) -> Expression:
        start = self.pos
        c = self.char()
        if c == "(":
            return self.group()
        if c == "[":
            return self.symbol(self.bracket())
        if c == ".":
            self.pos += 1
            return self.dot
        if c == "\\":
            return self.escaped()
        if c == "^":
            self.fail("an anchor is supported only at the start or the end of a pattern")
        if c in "*+?" or (c == "{" and _BRACES.match(self.text, self.pos)):
            self.fail("there is nothing to repeat", start)
        self.pos += 1
        return self.single(ord(c), start)

    def group(self) -> Expression:
        start = self.pos
        self.pos += 1
        if self.char() == "?":
            match = _GROUP.match(self.text, self.pos)
            if match is None:
                self.fail("lookaround, flags, conditions and other extensions are not supported", start)
            self.pos = match.end()
        self.depth += 1
        if self.depth > _MAX_NESTING:
            self.fail(f"groups are nested deeper than {_MAX_NESTING}", start)
        options = [self.option()]
        while self.take("|"):
            options.append(self.option())
        if self.char() in {"$", "\\"}:
            self.fail("an anchor is supported only at the start or the end of a pattern")
        if not self.take(")"):
            self.fail("this parenthesis is never closed", start)
        self.depth -= 1
        return either(options)

    def escaped(self) -> Expression:
        start = self.pos
        c = self.text[start + 1 : start + 2]
        if c in set("123456789") or self.text.startswith("\\k<", start):
            self.fail("a back reference is not regular, so no grammar can follow it")
        if c in set("bBA"):
            self.fail(f"the assertion \\{c} is not supported here")
        return self.symbol(self.escape())

    def symbol(self, pair: Pair) -> Expression:
        return Symbol(pair.wide if self.wide else pair.narrow)

    def single(self, code: int, start: int) -> Expression:
        return Symbol(Pair.of(self.checked(code, start)).narrow)

    def quantified(self, item: Expression) -> Expression:
        start = self.pos
        bounds = self.bounds()
        if bounds is None:
            return item
        low, high = bounds
        if high is not None and high < low:
            self.fail(f"the maximum {high} is less than the minimum {low}", start)
        if max(low, high or 0) > _MAX_COUNT:
            self.fail(f"more than {_MAX_COUNT} repetitions", start)
        self.take("?")  # lazy
        if self.char() == "+":
            self.fail("possessive quantifiers are not supported")
        if self.char() == "*" or self.char() == "?" or _BRACES.match(self.text, self.pos):
            self.fail("a repetition cannot be repeated: put it in a group")
        return repeated(item, low, high) if item != EMPTY else EMPTY

    def bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.char() in simple:
            self.pos += 1
            return simple[self.text[self.pos - 1]]
        match = _BRACES.match(self.text, self.pos)
        if match is None:
            return None
        low, comma, high = match.groups()
        if not low:
            self.fail("Python and JSON schema read this differently: write {0,n}, or \\{ for a brace")
        if len(low) > 9 or len(high) > 9:
            self.fail(f"more than {_MAX_COUNT} repetitions")
        self.pos = match.end()
        return int(low), int(high) if high else None if comma else int(low)


def parse_regex(
    pattern: str, path: str = "", *, search: bool = False, dotall: bool = False, wide: bool = False
) -> Expression:
    """The texts that a pattern matches.

    Args:
        pattern: the regular expression.
        path: where in a schema it stands, for the error.
        search: it may match anywhere in the text, as JSON schema's "pattern" does; otherwise the whole text.
        dotall: whether . is any character, also a line break.
        wide: take in what matches only for one of the two, where what does not match is wanted.

    Raises:
        SchemaError: it is malformed, not regular, or uses what is not supported; `.position` tells where (from 0).
    """
    return _Parser(pattern, path, search=search, dotall=dotall, wide=wide).read()
