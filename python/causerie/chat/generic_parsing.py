"""Replies that call tools in plain text (see `generic_grammar`), read whole or while they arrive."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from causerie.chat.messages import Message
from causerie.chat.parsing import ReplyDelta, ReplyParser
from causerie.chat.reply_calls import ReplyCalls
from causerie.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.chat.chat_template import Prompt

__all__ = ["GenericReplyParser"]

_SPACE = " \t\r\n"
_MOST_SPACE = 64  # in the marker, and in front of it
_MARKER = re.compile(r'\{[ \t\r\n]{0,64}"tool_calls"[ \t\r\n]{0,64}:')
_NAME = r'[ \t\r\n]*\{[ \t\r\n]*"name"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*'
_HEAD = re.compile(_NAME + r',[ \t\r\n]*"arguments"[ \t\r\n]*:[ \t\r\n]*(?=\{)')
_LONGEST_HEAD = 512
_STRUCTURE = re.compile(r'["\\{}\[\]]')


def _marker_begins(text: str) -> int:
    """Where in ``text``, which holds no marker, one may have begun that more text completes; its length if nowhere."""
    start = text.rfind("{")
    if start < 0 or len(text) - start > 2 * _MOST_SPACE + len('{"tool_calls":'):
        return len(text)
    rest = text[start + 1 :]
    for expected in ('"tool_calls"', ":"):
        inside = rest.lstrip(_SPACE)
        if len(rest) - len(inside) > _MOST_SPACE:
            return len(text)
        if len(inside) <= len(expected):
            return start if expected.startswith(inside) else len(text)
        if not inside.startswith(expected):
            return len(text)
        rest = inside[len(expected) :]
    return len(text)


class _Arguments:
    """Finds the end of a JSON object that arrives in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False  # the next character, at the very beginning of the next piece

    def feed(self, text: str) -> int | None:
        """The place behind its last brace; None if it goes on."""
        start = int(self._escaped and bool(text))
        self._escaped = self._escaped and not text
        skip = -1
        for match in _STRUCTURE.finditer(text, start):
            sign, place = match.group(), match.start()
            if place == skip:
                continue
            if sign == "\\":
                skip = place + 1
                self._escaped = skip == len(text)
            elif sign == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if sign in "{[" else -1
                if not self._depth:
                    return place + 1
        return None


class _Scanner:
    """Takes text apart into what is said and the calls behind it.

    Args:
        calls: gets the calls that are complete.
    """

    def __init__(self, calls: ReplyCalls) -> None:
        self._calls = calls
        self._rest = ""
        self._state = "text"
        self._call: dict[str, Any] = {}
        self._arguments = _Arguments()
        self.error: str | None = None

    def feed(self, text: str) -> Iterator[ReplyDelta]:
        """Read the next piece."""
        if self.error is None:
            self._rest += text
        while self.error is None and self._rest:
            state = self._state
            yield from getattr(self, f"_{state}")()
            if self._state == state:
                return

    def flush(self) -> Iterator[ReplyDelta]:
        """End of the reply: text that was held back."""
        if self._state == "text" and self._rest:
            yield ReplyDelta("text", self._rest)
            self._rest = ""
        elif self._state not in {"text", "done"} and self.error is None:
            self.error = "a call breaks off"

    def _text(self) -> Iterator[ReplyDelta]:
        text = self._rest
        found = _MARKER.search(text)
        end = found.start() if found else _marker_begins(text)
        said = text[:end].rstrip(_SPACE)
        said = text[: max(len(said), end - _MOST_SPACE)]
        if said:
            yield ReplyDelta("text", said)
        self._rest = text[found.end() if found else len(said) :]
        if found:
            self._state = "open"

    def _sign(self, next_states: dict[str, str]) -> None:
        """Take one of the characters that may come next, behind space."""
        self._rest = self._rest.lstrip(_SPACE)
        sign = self._rest[:1]
        if sign in next_states:
            self._state, self._rest = next_states[sign], self._rest[1:]
        elif sign:
            self.error = f"{self._rest[:20]!r} stands among the calls, where one of {' '.join(next_states)} belongs"

    def _open(self) -> Iterator[ReplyDelta]:
        self._sign({"[": "head"})
        yield from ()

    def _head(self) -> Iterator[ReplyDelta]:
        found = _HEAD.match(self._rest)
        if found is None:
            if len(self._rest) > _LONGEST_HEAD:
                self.error = f"{self._rest[:20]!r} begins no call"
            return
        self._rest = self._rest[found.end() :]
        try:
            name = json.loads(found[1])
        except ValueError as error:
            self.error = f"the name {found[1]} is not JSON: {error}"
            return
        self._call = {"id": "", "name": name, "parts": []}
        self._arguments = _Arguments()
        self._state = "value"
        yield from ()

    def _value(self) -> Iterator[ReplyDelta]:
        end = self._arguments.feed(self._rest)
        text, self._rest = self._rest[:end], "" if end is None else self._rest[end:]
        index = len(self._calls.done)
        self._call["parts"].append(text)
        yield ReplyDelta("tool_call_delta", text, index, self._call["name"])
        if end is None:
            return
        try:
            call = self._calls.complete({**self._call, "arguments": "".join(self._call["parts"])})
        except TemplateError as error:
            self.error = str(error)
            return
        self._state = "close"
        yield ReplyDelta("tool_call", index=index, name=call.name, tool_call=call)

    def _close(self) -> Iterator[ReplyDelta]:
        self._sign({"}": "more"})
        yield from ()

    def _more(self) -> Iterator[ReplyDelta]:
        self._sign({",": "head", "]": "end"})
        yield from ()

    def _end(self) -> Iterator[ReplyDelta]:
        self._sign({"}": "done"})
        yield from ()

    def _done(self) -> Iterator[ReplyDelta]:
        self._rest = self._rest.lstrip(_SPACE)
        if self._rest:
            self.error = f"{self._rest[:20]!r} stands behind the calls"
        yield from ()


class GenericReplyParser:
    """As `ReplyParser`, for replies that call tools in plain text. Thinking is read by the template's own parser.

    Args:
        prompt: what the reply answers.
    """

    def __init__(self, prompt: Prompt) -> None:
        self._inner = ReplyParser(prompt)
        self._calls = ReplyCalls(prompt)
        self._scanner = _Scanner(self._calls)
        self._said: list[str] = []
        self._message: Message | None = None

    def feed(self, text: str) -> list[ReplyDelta]:
        """Read the next piece; as `ReplyParser.feed`."""
        return list(self._read(self._inner.feed(text)))

    def flush(self, *, partial: bool = False) -> list[ReplyDelta]:
        """End the reply; as `ReplyParser.flush`."""
        if self._message is not None:
            return []
        deltas = list(self._read(self._inner.flush(partial=partial)))
        held = list(self._scanner.flush())
        self._said += [delta.text for delta in held]
        if self._scanner.error is not None and not partial:
            raise TemplateError(f"the reply's calls cannot be read: {self._scanner.error}")
        thinking = self._inner.finish(partial=partial).thinking
        self._message = Message("assistant", "".join(self._said), thinking=thinking, tool_calls=tuple(self._calls.done))
        return deltas + held

    def finish(self, *, partial: bool = False) -> Message:
        """The message; as `ReplyParser.finish`."""
        while self._message is None:
            self.flush(partial=partial)
        return self._message

    def _read(self, deltas: list[ReplyDelta]) -> Iterator[ReplyDelta]:
        for delta in deltas:
            if delta.kind != "text":
                yield delta
                continue
            for found in self._scanner.feed(delta.text):
                if found.kind == "text":
                    self._said.append(found.text)
                yield found
