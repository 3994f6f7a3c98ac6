"""What may be the beginning of a mark at the end of a reply that is still arriving.

llama.cpp's parsers end a text in front of a mark's beginning, and then read that beginning as what comes behind the
text: right if the mark is completed, and wrong if it is not.
"""

from __future__ import annotations

import json
from functools import lru_cache

__all__ = ["half_marks", "undecided"]


@lru_cache(64)
def half_marks(parser: str) -> tuple[str, ...]:
    """The beginnings of marks at which texts end, in a parser of llama.cpp in its own notation; "" has none."""
    nodes = json.loads(parser)["parsers"] if parser else []
    halves = {
        mark[:size]
        for node in nodes
        if node["type"] == "until"
        for mark in node["delimiters"]
        for size in range(1, len(mark))
        if not mark[:size].startswith(tuple(node["delimiters"]))
    }
    return tuple(sorted(halves))


def undecided(text: str, halves: tuple[str, ...], new: int | None = None, before: int = 0) -> int:
    """How many characters at the end of a text may begin a mark, so that what is in front of them does not end in one.

    The beginning of a beginning is one too: so the characters can be taken off one by one.

    Args:
        text: the text.
        halves: the beginnings of marks.
        new: how many characters of the text are new; None: all.
        before: how many it were without these.
    """
    start = len(text) - (len(text) if new is None else new)
    end = len(text)
    while end > start and text.endswith(halves, 0, end):
        end -= 1
    return len(text) - end + (before if end == start else 0)
