"""Marks that stand for the texts of messages while a template is rendered, so that all around them is the template's.

A template is rendered twice: with marks in place of the texts, and with the texts. The first tells which text is the
template's own; the second tells what the template made of the texts (most take them as they are, some trim them).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from causerie.chat.messages import Message
    from causerie.chat.tool_call import ToolCall

__all__ = ["Fill", "Marked", "Slot", "align", "defused", "mark"]

# Private-use characters: no template writes them by itself. Some write JSON in ASCII.
_MARK = re.compile(r"(?:\ue000|\\ue000)([0-9]+)(?:\ue001|\\ue001)")
_JOINER = "\u2060"


class Slot(NamedTuple):
    """A text that a mark stands for; ``ids``: the very ids that the model generated for it."""

    text: str
    ids: tuple[int, ...] | None


class Marked(NamedTuple):
    """Messages with marks in them.

    Attributes:
        messages: the messages.
        slots: what the marks 0, 1, 2 ... stand for.
            contents: by message, the slot of its content; None where it has none of its own.
        unmarked: texts of people and models that stay in ``messages`` as they are: names, ids, blank texts.
        used: by message, the slots of all its texts.
    """

    messages: tuple[Message, ...]
    slots: tuple[Slot, ...]
    contents: tuple[int | None, ...]
    unmarked: tuple[str, ...]
    used: tuple[frozenset[int], ...]


class Fill(NamedTuple):
    """A slot in a rendered text: which one, the text that the template made of it, and the template's text behind."""

    slot: int
    text: str
    after: str


def mark(
    messages: Sequence[Message], generated: Sequence[tuple[int, ...] | None], *, leave: Collection[str] = ()
) -> Marked:
    """Replace every text in ``messages`` by a mark; texts that are equal by equal marks, as templates may compare them.

    Args:
        messages: the messages.
        generated: by message, the ids generated for its content; None where a person wrote it.
        leave: roles whose texts stay as they are, except those that were generated.
    """
    marker = _Marker()
    contents = []
    marked = []
    used = []
    for message, ids in zip(messages, generated, strict=True):
        marker.leave = message.role in leave
        marker.used = set()
        content = marker.content(message, ids)
        found = _MARK.fullmatch(content) if isinstance(content, str) and content != message.content else None
        contents.append(None if found is None else int(found[1]))
        marked.append(
            replace(
                message,
                content=content,
                thinking=marker.text(message.thinking),
                tool_calls=tuple(marker.call(call) for call in message.tool_calls),
            )
        )
        marker.unmarked += [text for text in (message.name, message.tool_call_id) if text]
        used.append(frozenset(marker.used))
    return Marked(tuple(marked), tuple(marker.slots), tuple(contents), tuple(marker.unmarked), tuple(used))


class _Marker:
    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.unmarked: list[str] = []
        self.leave = False
        self.used: set[int] = set()
        self._written: dict[str, int] = {}

    def text(self, text: str, ids: tuple[int, ...] | None = None) -> str:
        if ids is None and self.leave:
            return text
        if not ids and (not text or text.isspace()):  # templates often ask whether there is a text
            self.unmarked += [text] if text else []
            return text
        slot = len(self.slots) if ids is not None else self._written.setdefault(text, len(self.slots))
        if slot == len(self.slots):
            self.slots.append(Slot(text, ids))
        self.used.add(slot)
        return f"\ue000{slot}\ue001"

    def content(self, message: Message, ids: tuple[int, ...] | None) -> Any:
        content = message.content
        if isinstance(content, str):
            return self.text(content, ids)
        if ids is not None:
            return self.text(message.text, ids)
        return [{**part, "text": self.text(part["text"])} if part["type"] == "text" else part for part in content]

    def call(self, call: ToolCall) -> ToolCall:
        self.unmarked += [call.id, call.name]
        return replace(call, arguments=self._json(call.arguments))

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            self.unmarked += [key for key in value if key]
            return {key: self._json(item) for key, item in value.items()}
        return [self._json(item) for item in value] if isinstance(value, list) else value


def align(marked: str, real: str, slots: Sequence[Slot]) -> tuple[str, list[Fill]] | None:
    """Find each mark's text in the real rendering.

    Args:
        marked: the text rendered with marks.
        real: the text rendered with what the marks stand for.
        slots: what they stand for.

    Returns:
        The template's text before the first mark, and the marks in their order; joined, they give ``real``. A slot may
        be there several times, or not at all. None if the template did something else to a text than to trim it or to
        write it as JSON, or if it chose its own words by what a text says.
    """
    parts = _MARK.split(marked) if slots else [marked]
    if not real.startswith(parts[0]):
        return None
    # By position in `real`: how one may get there, the last step first.
    paths: dict[int, Any] = {len(parts[0]): None}
    for number, after in zip(parts[1::2], parts[2::2], strict=True):
        slot = int(number)
        if slot >= len(slots):
            return None
        paths = dict(_steps(paths, real, slot, slots[slot].text, after))
        if not paths:
            return None
    if len(real) not in paths:
        return None
    fills: list[Fill] = []
    path = paths[len(real)]
    while path is not None:
        path, fill = path
        fills.append(fill)
    return parts[0], fills[::-1]


def _steps(paths: dict[int, Any], real: str, slot: int, text: str, after: str) -> Iterator[tuple[int, Any]]:
    for forms in (_trimmed(text), _as_json(text)):
        found: dict[int, Any] = {}
        for form in forms:
            for position, path in paths.items():
                middle = position + len(form)
                if real.startswith(form, position) and real.startswith(after, middle):
                    found.setdefault(middle + len(after), (path, Fill(slot, form, after)))
        if found:
            yield from found.items()
            return


def _trimmed(text: str) -> Iterator[str]:
    lines = text.strip("\n"), text.lstrip("\n"), text.rstrip("\n")
    yield from dict.fromkeys((text, text.strip(), text.lstrip(), text.rstrip(), *lines))


def _as_json(text: str) -> Iterator[str]:
    for value in (text, text.strip()):
        for ascii_only in (False, True):
            once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
            yield once
            yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]


def defused(messages: Sequence[Message], harmful: Callable[[str], bool]) -> tuple[Message, ...]:
    """The messages with texts that cannot become, hold or complete a control token, and as like them as can be.

    Args:
        messages: the messages.
        harmful: tells whether a text holds that of a control token.
    """

    def defuse(value: Any) -> Any:
        if isinstance(value, str):
            if not value or value.isspace():
                return value
            return f"{_JOINER}{_JOINER.join(value) if harmful(value) else value}{_JOINER}"
        if isinstance(value, dict):
            return {key: defuse(item) for key, item in value.items()}
        return [defuse(item) for item in value] if isinstance(value, (list, tuple)) else value

    def content(message: Message) -> Any:
        if isinstance(message.content, str):
            return defuse(message.content)
        return [{**p, "text": defuse(p["text"])} if p["type"] == "text" else p for p in message.content]

    return tuple(
        replace(
            message,
            content=content(message),
            thinking=defuse(message.thinking),
            tool_calls=tuple(replace(call, arguments=defuse(call.arguments)) for call in message.tool_calls),
        )
        for message in messages
    )
