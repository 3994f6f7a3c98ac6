"""What a docstring in Google style says: about the whole, and about each argument (pure Python)."""

from __future__ import annotations

import inspect
import re
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["parse_docstring"]

_SECTIONS = "Args|Arguments|Parameters|Attributes|Returns|Yields|Raises|Examples?|Notes?|See Also|Warnings?|Todo"
_SECTION = re.compile(rf"(?:^|(?<=[.!?] )|(?<=\n))[ \t]*({_SECTIONS}):(?=\s|$)")
_OF_ARGUMENTS = {"Args", "Arguments", "Parameters", "Attributes"}
_SPACE = re.compile(r"\s+")


def parse_docstring(text: str | None, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The description, and that of each argument.

    Args:
        text: the docstring; its "Args:" may stand on a line of its own or follow a sentence.
        names: the arguments there are; what is said about others is left out.

    Returns:
        What stands before the first section, and the descriptions by name, all with plain blanks between words.
    """
    doc = inspect.cleandoc(text or "")
    heads = list(_SECTION.finditer(doc))
    description = _plain(doc[: heads[0].start()] if heads else doc)
    found: dict[str, str] = {}
    for head, following in zip_longest(heads, heads[1:]):
        if head.group(1) in _OF_ARGUMENTS:
            body = doc[head.end() : following.start() if following else len(doc)]
            found.update(_entries(body, tuple(names)))
    return description, found


def _entries(body: str, names: tuple[str, ...]) -> dict[str, str]:
    if not names:
        return {}
    if body.split("\n", 1)[0].strip():  # on the line of the heading: only names that are known begin an entry
        listed = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        begin = rf"(?:^|(?<=\s))({listed})"
    else:
        lines = [line for line in body.split("\n") if line.strip()]
        indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
        begin = rf"^ {{{indent}}}\*{{0,2}}(\w+)"
    entry = re.compile(rf"{begin}(?:\s*\([^)\n]*\))?:\s", re.MULTILINE)
    starts = list(entry.finditer(body))
    ends = [match.start() for match in starts[1:]] + [len(body)]
    found: dict[str, str] = {}
    for match, end in zip(starts, ends, strict=True):
        if match.group(1) in names:
            found.setdefault(match.group(1), _plain(body[match.end() : end]))
    return found


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip()
