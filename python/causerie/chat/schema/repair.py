"""Closes JSON that was cut off: what is complete stays, what is not is completed or left out (pure Python)."""

from __future__ import annotations

import json
import re
from typing import Any

from causerie.errors import SchemaError

__all__ = ["close_json"]

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)("?)', re.DOTALL)
_CHARACTERS = re.compile(r"(?:[^\\]|\\u[0-9a-fA-F]{4}|\\[^u])*", re.DOTALL)
_CUT_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{0,3})?")
_NOTHING = object()


class _Reader:
    """Reads a value as far as it goes; `cut` tells that it ended early."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.cut = False

    def peek(self) -> str:
        match = _SPACE.match(self.text, self.pos)
        self.pos = match.end() if match else self.pos
        return self.text[self.pos : self.pos + 1]

    def value(self) -> Any:
        c = self.peek()
        if c == "{":
            return self.object()
        if c == "[":
            return self.array()
        if c == '"':
            return self.string()
        return self.word() if c and c in "tfn" else self.number()

    def word(self) -> Any:
        rest = self.text[self.pos :]
        for word, value in _WORDS.items():
            if rest.startswith(word) or word.startswith(rest):
                self.cut = len(rest) < len(word)
                self.pos += min(len(word), len(rest))
                return value
        raise ValueError

    def number(self) -> Any:
        match = _NUMBER.match(self.text, self.pos)
        if match is None:
            if self.text[self.pos :] not in {"", "-"}:
                raise ValueError
            self.pos, self.cut = len(self.text), True
            return _NOTHING
        self.pos = match.end()
        rest = self.text[self.pos :]
        if re.fullmatch(r"\.|[eE][+-]?", rest):  # its next digit is missing
            self.pos, self.cut = len(self.text), True
        return json.loads(match.group())

    def string(self) -> str:
        match = _STRING.match(self.text, self.pos)
        if match is None:
            raise ValueError
        body, end = match.groups()
        self.pos = match.end()
        if not end:
            whole = _CHARACTERS.match(body)
            kept = whole.group() if whole else ""
            if not _CUT_ESCAPE.fullmatch(body[len(kept) :]):
                raise ValueError
            self.pos, self.cut = len(self.text), True
            text = str(json.loads(f'"{kept}"', strict=False))
            return text[:-1] if "\ud800" <= text[-1:] <= "\udbff" else text  # half of a pair
        return str(json.loads(f'"{body}"', strict=False))

    def array(self) -> list[Any]:
        self.pos += 1
        found: list[Any] = []
        while self.peek() != "]" and not self.ended():
            item = self.value()
            if item is not _NOTHING:
                found.append(item)
            self.comma("]")
        self.pos += 1
        return found

    def object(self) -> dict[str, Any]:
        self.pos += 1
        found: dict[str, Any] = {}
        while self.peek() != "}" and not self.ended():
            name = self.string()
            if self.peek() not in {":", ""}:
                raise ValueError
            self.pos += 1
            if self.cut or not self.peek():
                self.cut = True
                break
            item = self.value()
            if item is not _NOTHING:
                found[name] = item
            self.comma("}")
        self.pos += 1
        return found

    def ended(self) -> bool:
        self.cut = self.cut or self.pos >= len(self.text)
        return self.cut

    def comma(self, end: str) -> None:
        """Step over what separates items; nothing where the text ends."""
        c = self.peek()
        if c == ",":
            self.pos += 1
        elif c not in {end, ""}:
            raise ValueError


def close_json(text: str) -> str:
    """JSON that was cut off anywhere, as JSON text.

    Strings end where they were cut, true, false and null are completed, numbers keep the digits they have, and a
    property without a value is left out. Complete JSON stays as it is.

    Args:
        text: the beginning of a JSON text.

    Raises:
        SchemaError: it is not the beginning of one.
    """
    reader = _Reader(text)
    try:
        value = reader.value()
        if value is not _NOTHING and not reader.peek():
            return json.dumps(value, ensure_ascii=False) if reader.cut else text
    except (ValueError, RecursionError):
        pass
    raise SchemaError(f"this is not the beginning of JSON: {text!r:.80}", path="$")
