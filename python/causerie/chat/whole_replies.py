"""Replies with thinking or tool calls, put into a prompt as the very ids they were generated as.

A template writes such a message with marks of its own around its parts. Where it writes the same text that the model
wrote, the ids of the model go in; elsewhere the template's text does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from causerie.chat.segments import Generated, Part, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.chat.layout import Layout

__all__ = ["Written", "content_ids", "content_of", "with_whole_replies"]


class Written(NamedTuple):
    """How the model wrote a message that has thinking, tool calls, or a format of its own.

    Attributes:
        ids: those that say its content, and nothing else; None: not known.
        whole: those of all of it, with the marks around its parts; () if the message is not all that was generated.
        text: what they say.
        follows: what the template wrote right before it.
    """

    ids: tuple[int, ...] | None = None
    whole: tuple[int, ...] = ()
    text: str = ""
    follows: str = ""


def content_of(generated: Written | tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The ids that say a message's content alone."""
    return generated.ids if isinstance(generated, Written) else generated


def content_ids(
    tokens: Sequence[int], pieces: Sequence[bytes], content: str, thinking: str = ""
) -> tuple[int, ...] | None:
    """The ids that say a reply's content, where it begins and ends with some of them.

    Args:
        tokens: the ids of the whole reply.
        pieces: the bytes of each.
        content: what to look for.
        thinking: what stands before it.
    """
    whole, wanted = b"".join(pieces), content.encode()
    if not wanted:
        return None
    before = thinking.encode()
    start = whole.find(wanted, max(0, whole.find(before)) + len(before))
    if start < 0:
        return None
    places = {0: 0}
    position = 0
    for count, piece in enumerate(pieces, 1):
        position += len(piece)
        places.setdefault(position, count)
    first, last = places.get(start), places.get(start + len(wanted))
    return None if first is None or last is None else tuple(tokens[first:last])


class _Piece(NamedTuple):
    start: int
    text: str
    part: Part
    slot: int | None

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def with_whole_replies(layout: Layout, replies: Sequence[Written | None]) -> list[Part]:
    """The parts of a prompt, with the ids of whole replies where the template writes the same text.

    Args:
        layout: the prompt.
        replies: by message.
    """
    if not any(reply is not None and reply.whole for reply in replies):
        return layout.parts()
    pieces = list(_pieces(layout))
    text = "".join(piece.text for piece in pieces)
    found: list[tuple[int, int, Written]] = []
    cursor = 0
    for index, reply in enumerate(replies):
        if reply is None or not reply.whole:
            continue
        place = _place(text, pieces, reply, layout.marked.used[index], cursor)
        if place is not None:
            cursor = place + len(reply.text)
            found.append((place, cursor, reply))
    return _replaced(pieces, found)


def _pieces(layout: Layout) -> list[_Piece]:
    found: list[_Piece] = []
    position = 0
    slots: list[int | None] = [None]
    texts = [layout.before]
    parts = layout.parts()
    for fill in layout.fills:
        slots += [fill.slot, None] if fill.after else [fill.slot]
        texts += [fill.text, fill.after] if fill.after else [fill.text]
    for slot, text, part in zip(slots, texts, parts, strict=True):
        found.append(_Piece(position, text, part, slot))
        position += len(text)
    return found


def _place(text: str, pieces: list[_Piece], reply: Written, own: frozenset[int], cursor: int) -> int | None:
    """Where the reply stands, behind what the template wrote before it; nothing but the reply's own texts is inside."""
    wanted = reply.follows + reply.text
    place = text.find(wanted, max(0, cursor - len(reply.follows)))
    while place >= 0:
        start, end = place + len(reply.follows), place + len(wanted)
        if all(_fits(piece, place, start, end, own) for piece in pieces if piece.end > place and piece.start < end):
            return start
        place = text.find(wanted, place + 1)
    return None


def _fits(piece: _Piece, place: int, start: int, end: int, own: frozenset[int]) -> bool:
    """Whether a piece that overlaps [place, end) is the template's, or one of the reply's texts and inside of it."""
    if piece.slot is None or not piece.text:
        return True
    return place <= start <= piece.start and piece.end <= end and piece.slot in own


def _replaced(pieces: list[_Piece], found: list[tuple[int, int, Written]]) -> list[Part]:
    parts: list[Part] = []
    waiting = found[::-1]
    for piece in pieces:
        position = piece.start
        while waiting and waiting[-1][0] < piece.end:
            start, end, reply = waiting[-1]
            if position < start:
                parts.append(Text(piece.text[position - piece.start : start - piece.start], trusted=True))
            if start >= piece.start:
                parts.append(Generated(reply.whole))
            position = min(end, piece.end)
            if end > piece.end:
                break
            waiting.pop()
        if position == piece.start:
            parts.append(piece.part)
        elif position < piece.end:
            parts.append(Text(piece.text[position - piece.start :], trusted=True))
    return parts
