"""A rendered prompt taken apart: the template's text, and between it the texts of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.chat.marks import Fill
from causerie.chat.segments import Generated, Part, Text

if TYPE_CHECKING:
    from causerie.chat.marks import Marked

__all__ = ["Layout"]


@dataclass(slots=True)
class Layout:
    """A rendered prompt.

    Attributes:
        marked: the messages, and what the marks stand for.
        before: the template's text before the first mark.
        fills: the marks in their order, each with the template's text behind it.
    """

    marked: Marked
    before: str
    fills: list[Fill]

    def parts(self) -> list[Part]:
        """What it is made of, for `SegmentEncoder`."""
        parts: list[Part] = [Text(self.before, trusted=True)]
        for slot, text, after in self.fills:
            ids = self.marked.slots[slot].ids
            parts.append(Text(text, trusted=False) if ids is None else Generated(ids))
            if after:
                parts.append(Text(after, trusted=True))
        return parts

    def text(self) -> str:
        """The template's text, with marks."""
        return self.before + "".join(f"\ue000{fill.slot}\ue001{fill.after}" for fill in self.fills)

    @property
    def real(self) -> str:
        """The text, as the template wrote it."""
        return self.before + "".join(f"{fill.text}{fill.after}" for fill in self.fills)

    def cut_behind_last(self) -> bool:
        """Drop what comes behind the last message's content; False if that cannot be found."""
        slot = self.marked.contents[-1]
        while slot is not None and self.fills:
            fill = self.fills.pop()
            if fill.slot == slot:
                whole = self.marked.slots[slot].text
                # If the template trimmed it: what goes on is not trimmed at its end.
                self.fills.append(Fill(slot, whole[max(0, whole.find(fill.text)) :], ""))
                return True
        return False
