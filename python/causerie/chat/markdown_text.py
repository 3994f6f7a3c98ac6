"""A message's text as a part of a Markdown document: its Markdown stays, HTML in it shows as it was written.

Outside of code every ``<`` and ``&`` that would begin a tag or a character is written as a character reference. What is
code is decided by CommonMark's rules, and only where they leave no doubt: where a block of code begins in a list or a
quote, or a code span goes over a line's end, the rest is escaped too, which at worst shows ``&lt;`` in code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fenced", "literal", "quoted"]

_LINE_END = re.compile(r"\r\n|\r|\n")
_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})")
_FENCE_SOMEWHERE = re.compile(r"[\s>*+\-0-9.)]*(?:`{3,}[^`]*$|~{3,})")
_RUN = re.compile(r"`+")
_SPECIAL = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?[A-Za-z0-9]+;)")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def quoted(text: str) -> str:
    """A text as a block quote, out of which nothing in it can reach."""
    return "\n".join(f"> {line}" if line else ">" for line in _safe_lines(text))


def literal(text: str) -> str:
    """A text within a line, without any Markdown in it."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(text.split()))


def fenced(text: str, info: str = "") -> str:
    """A text as a block of code, whatever backticks are in it."""
    longest = max((len(run) for run in _RUN.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{info}", *_lines(text), fence])


def _lines(text: str) -> list[str]:
    return _LINE_END.split(text.replace("\0", "\ufffd"))


def _safe_lines(text: str) -> Iterator[str]:
    lines = _lines(text)
    position, open_span, in_doubt = 0, False, False
    while position < len(lines):
        line = lines[position]
        end = None if in_doubt else _code_end(lines, position)
        if end is not None:
            yield from lines[position:end]
            position, open_span = end, False
            continue
        in_doubt = in_doubt or _FENCE_SOMEWHERE.match(line) is not None
        open_span = open_span and bool(line.strip(" \t"))
        safe, unmatched = _safe_line(line)
        yield _escaped(line) if in_doubt or open_span else safe
        open_span = open_span or unmatched
        position += 1


def _code_end(lines: list[str], begin: int) -> int | None:
    """The end of the block of code that begins here; None: none does, or one whose end is in doubt."""
    found = _FENCE.match(lines[begin])
    if found is None or len(found[1]) > 3:
        return None
    indent, fence = found[1], found[2]
    closing = re.compile(rf"[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    for end in range(begin + 1, len(lines)):
        line = lines[end]
        own = len(line) - len(line.lstrip(" "))
        if closing.match(line) and len(indent) <= own <= 3:
            return end + 1
        if indent and (closing.match(line) or (line.strip(" \t") and own < len(indent))):
            return None  # in a list it would end here, and elsewhere not
    return None if indent else len(lines)


def _safe_line(line: str) -> tuple[str, bool]:
    """A line of text, its code spans as they are, and whether one may begin in it that ends in a later line."""
    pieces: list[str] = []
    start = position = 0
    while (run := _RUN.search(line, position)) is not None:
        begin = run.start()
        before = line[start:begin]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            begin += 1  # this backtick is a character and no more
            if begin == run.end():
                position = begin
                continue
        length = run.end() - begin
        end = next((r.end() for r in _RUN.finditer(line, run.end()) if r.end() - r.start() == length), None)
        if end is None:
            return _escaped(line), True
        pieces += _escaped(line[start:begin]), line[begin:end]
        start = position = end
    # In a table the bars come first, and cut what looks like a code span.
    return _escaped(line) if "|" in line else "".join([*pieces, _escaped(line[start:])]), False


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: "&lt;" if found[0] == "<" else "&amp;", text)
