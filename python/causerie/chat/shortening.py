"""The beginning of a reply, kept short: what a parser has settled in the middle of a long text is cut out of it.

Parsers of replies start at the front each time. Inside a long text (content, thinking, a string among a call's
arguments) nothing depends on what stands in its middle, so that the rest reads the same without it; whether it does is
asked of the parser at each cut.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Shortener", "fields", "grown"]

_CUT = 2048  # characters of growth from which on a cut is tried
_KEPT = 128  # characters behind a cut, so that nothing that has begun is cut apart
_STRUCTURE = re.compile(r'\\.|["{}\[\]]', re.DOTALL)


def fields(found: Mapping[str, Any]) -> dict[str, str]:
    """The texts that grow while a reply arrives: "thinking", "text", and a call's arguments under its index."""
    texts = {"thinking": found["reasoning_content"], "text": found["content"]}
    return texts | {str(i): call["arguments"] for i, call in enumerate(found["tool_calls"])}


def grown(before: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, str] | None:
    """What each text has gained; None if something that had been there is there no more."""
    now = fields(found)
    if not before.keys() <= now.keys() or any(not now[key].startswith(text) for key, text in before.items()):
        return None
    return {key: text[len(before.get(key, "")) :] for key, text in now.items() if text != before.get(key)}


class Shortener:
    """A reply's beginning, and what has been read from it.

    Args:
        parse: reads a beginning; None if it cannot.
    """

    def __init__(self, parse: Callable[[str], dict[str, Any] | None]) -> None:
        self._parse = parse
        self.text = ""
        self.shortened = False
        self._may_shorten = True
        self._seen: dict[str, str] = {}
        self._tried: dict[str, int] = {}

    def add(self, text: str) -> None:
        """The next piece."""
        self.text += text

    def restore(self, text: str, seen: Mapping[str, str]) -> None:
        """Go back to the whole text, for good."""
        self.text, self._seen = text, dict(seen)
        self.shortened = self._may_shorten = False

    def parse(self) -> tuple[dict[str, Any], dict[str, str]] | None:
        """What the parser finds, with its texts shortened, and what each of them has gained since the last time."""
        found = self._parse(self.text)
        gained = None if found is None else grown(self._seen, found)
        if found is None or gained is None:
            return None
        self._seen = fields(found)
        for key in gained:
            if self._may_shorten and len(self._seen[key]) - self._tried.get(key, 0) > _CUT + _KEPT:
                self._cut(key)
        return found, gained

    def _cut(self, key: str) -> None:
        value = self._seen[key]
        start, end = self._tried.get(key, 0), len(value) - _KEPT
        kept = value[:start] + value[end:]
        if key.isdigit() and _depth(value[:start]) != _depth(value[:end]):
            self._tried[key] = end
            return
        for middle, tail in _readings(value[start:end], value[end:]):
            at = self.text.rfind(middle + tail)
            if at < 0:
                continue
            short = self.text[:at] + self.text[at + len(middle) :]
            found = self._parse(short)
            if found is not None and fields(found) == {**self._seen, key: kept}:
                self.text, self.shortened = short, True
                self._seen[key] = kept
                return
        self._tried[key] = end


def _readings(*parts: str) -> list[tuple[str, ...]]:
    """How a text of a message may stand in the reply: as it is, or before it was escaped as a JSON string."""
    try:
        plain = tuple(json.loads(f'"{part}"') for part in parts)
    except ValueError:
        return [parts]
    return [parts] if plain == parts else [parts, plain]


def _depth(value: str) -> tuple[int, bool]:
    """How deep in JSON's brackets a text ends, and whether inside a string."""
    depth, quoted = 0, False
    for match in _STRUCTURE.finditer(value):
        sign = match.group()
        if sign == '"':
            quoted = not quoted
        elif not quoted and sign in "{[":
            depth += 1
        elif not quoted and sign in "}]":
            depth -= 1
    return depth, quoted
