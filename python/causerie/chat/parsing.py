"""Replies as messages: a template's way to write thinking and tool calls, read whole or while it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from causerie.chat.half_marks import half_marks, undecided
from causerie.chat.messages import Message
from causerie.chat.reply_calls import ReplyCalls
from causerie.chat.shortening import Shortener, fields
from causerie.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from causerie.chat.chat_template import Prompt
    from causerie.chat.tool_call import ToolCall
    from causerie.llama.template import ReplyFormat

__all__ = ["ReplyDelta", "ReplyParser", "ReplyReader", "parse_reply"]

DeltaKind: TypeAlias = Literal["text", "thinking", "tool_call_delta", "tool_call"]

# Parsing starts over for each piece of a reply. Where a long one cannot be shortened, it waits for more to come.
_LONG = 4096
_SHARE = 256


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """What one more piece of a reply adds to its message.

    Attributes:
        kind: "text", "thinking", "tool_call_delta" (more of a call's arguments) or "tool_call" (a complete call).
        text: what is added; of a call, the text of its arguments. "" for a complete call.
        index: which of the reply's calls, from 0.
        name: the tool, for both kinds of calls.
        tool_call: the complete call.
    """

    kind: DeltaKind
    text: str = ""
    index: int = 0
    name: str = ""
    tool_call: ToolCall | None = None


class ReplyReader(Protocol):
    """Reads a reply while it arrives, as `ReplyParser` does."""

    def feed(self, text: str) -> list[ReplyDelta]:
        """Read the next piece."""

    def flush(self, *, partial: bool = False) -> list[ReplyDelta]:
        """End the reply."""

    def finish(self, *, partial: bool = False) -> Message:
        """The message."""


@lru_cache(maxsize=16)
def _reply_format(name: str, parser: str, generation_prompt: str) -> ReplyFormat:
    from causerie.llama.template import ReplyFormat

    return ReplyFormat(name, parser, generation_prompt)


def _format_of(prompt: Prompt) -> ReplyFormat:
    return _reply_format(prompt.format or "Content-only", prompt.parser, prompt.generation_prompt)


def _message(found: Mapping[str, Any], calls: ReplyCalls, *, partial: bool) -> Message:
    try:
        for call in found["tool_calls"][len(calls.done) :]:
            calls.complete(call)
    except TemplateError:
        if not partial:
            raise
    return Message("assistant", found["content"], thinking=found["reasoning_content"], tool_calls=tuple(calls.done))


def _as_text(text: str) -> dict[str, Any]:
    return {"content": text, "reasoning_content": "", "tool_calls": []}


def parse_reply(prompt: Prompt, text: str, *, partial: bool = False) -> Message:
    """What `Prompt.parse` does."""
    if not isinstance(text, str):
        raise TypeError(f"a reply is a str, not {type(text).__name__}")
    read = text[: len(text) - undecided(text, half_marks(prompt.parser))] if partial else text
    try:
        found = _format_of(prompt).parse(read, partial=partial)
    except TemplateError:
        if not partial:
            raise
        found = _as_text("")
    return _message(found, ReplyCalls(prompt), partial=partial)


class ReplyParser:
    """Reads a reply while it arrives. The texts of its deltas, joined, are those of the message at the end.

    What one piece costs does not grow with the reply: of what has been read, only as much is parsed again as llama.cpp
    needs to go on. Not for several threads at once.

    Args:
        prompt: what the reply answers.
    """

    def __init__(self, prompt: Prompt) -> None:
        self._format = _format_of(prompt)
        self._calls = ReplyCalls(prompt)
        self._pieces: list[str] = []
        self._told: dict[str, list[str]] = {}  # what the deltas have said: thinking, text, arguments of each call
        self._halves = half_marks(prompt.parser)
        self._undecided = 0  # characters at the end
        self._short = Shortener(lambda text: self._partial(text[: len(text) - self._undecided]))
        self._waiting = 0  # characters that have not been parsed yet
        self._wait_for = 0
        self._message: Message | None = None

    def feed(self, text: str) -> list[ReplyDelta]:
        """Read the next piece, of any length.

        Raises:
            TypeError: ``text`` is not a str.
            ValueError: it cannot be encoded, or the reply has been finished.
            ClosedError: llama.cpp's parser is closed.
        """
        if not isinstance(text, str):
            raise TypeError(f"a reply is a str, not {type(text).__name__}")
        if self._message is not None:
            raise ValueError("this reply is finished")
        text.encode()
        self._pieces.append(text)
        self._waiting += len(text)
        self._short.add(text)
        self._undecided = undecided(self._short.text, self._halves, len(text), self._undecided)
        if self._waiting < max(self._wait_for, 1):
            return []
        self._waiting = self._wait_for = 0
        found = self._short.parse()
        if found is None and self._short.shortened:
            self._short.restore("".join(self._pieces), {key: "".join(parts) for key, parts in self._told.items()})
            found = self._short.parse()
        size = len(self._short.text)
        if found is None:  # what does not fit the format will not fit with more of it
            self._wait_for = size // 4
            return []
        if size > _LONG:
            self._wait_for = size // _SHARE
        return list(self._deltas(*found))

    def flush(self, *, partial: bool = False) -> list[ReplyDelta]:
        """End the reply. Returns what was held back, because it might have begun something else.

        Args:
            partial: as for `finish`.

        Raises:
            TemplateError: as `finish`.
        """
        if self._message is not None:
            return []
        found = self._whole(partial=partial)
        gained = {}
        for key, text in fields(found).items():
            told = "".join(self._told.get(key, ()))
            if text.startswith(told):
                gained[key] = text[len(told) :]
        deltas = list(self._deltas(found, gained))
        first = len(self._calls.done)
        self._message = _message(found, self._calls, partial=partial)
        deltas += (
            ReplyDelta("tool_call", index=first + i, name=call.name, tool_call=call)
            for i, call in enumerate(self._calls.done[first:])
        )
        return deltas

    def finish(self, *, partial: bool = False) -> Message:
        """The message, as `Prompt.parse` gives it for the whole text. Later calls give the same.

        Args:
            partial: the reply breaks off (it reached a limit, was cancelled), or is to be taken as it is: calls that
                are not complete are left out, and so is what does not fit the format behind what does. A reply of
                which nothing fits is text.

        Raises:
            TemplateError: the text does not fit the format, or a call breaks off.
        """
        while self._message is None:
            self.flush(partial=partial)
        return self._message

    def _whole(self, *, partial: bool) -> dict[str, Any]:
        text = "".join(self._pieces)
        try:
            return self._format.parse(text)
        except TemplateError:
            if not partial:
                raise
        found = self._partial(text)
        return found if found is not None and any(fields(found).values()) else _as_text(text)

    def _partial(self, text: str) -> dict[str, Any] | None:
        try:
            return self._format.parse(text, partial=True)
        except TemplateError:
            return None

    def _deltas(self, found: Mapping[str, Any], grown: Mapping[str, str]) -> Iterator[ReplyDelta]:
        calls = found["tool_calls"]
        for key, text in grown.items():
            index = int(key) if key.isdigit() else -1
            if index > len(self._calls.done):
                yield from self._completed(calls, index)
            known = key in self._told
            self._told.setdefault(key, []).append(text)
            if index >= 0 and (text or not known):
                yield ReplyDelta("tool_call_delta", text, index, calls[index]["name"])
            elif index < 0 and text:
                yield ReplyDelta("thinking" if key == "thinking" else "text", text)

    def _completed(self, calls: list[Mapping[str, str]], end: int) -> Iterator[ReplyDelta]:
        while len(self._calls.done) < end:
            index = len(self._calls.done)
            arguments = "".join(self._told[str(index)])  # those in calls may be shortened
            try:
                call = self._calls.complete({**calls[index], "arguments": arguments})
            except TemplateError:  # to be told at the end
                return
            yield ReplyDelta("tool_call", index=index, name=call.name, tool_call=call)
