"""Changing a reply's text on its way out, while it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from causerie.chat.stops import as_stops

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["KeywordRemover", "OutputTransform"]


class OutputTransform(Protocol):
    """Changes a reply's text while it comes. Each reply gets one of its own."""

    def feed(self, text: str) -> str:
        """More of the text; gives what can be shown now."""

    def flush(self) -> str:
        """End of the text; gives what was held back."""


class KeywordRemover:
    """Takes keywords out of a reply, wherever its text is cut: an `OutputTransform`.

    Where several keywords begin at the same place, the longest goes. Give a conversation the means to make one for each
    reply: ``output_transform=lambda: KeywordRemover(["User:", "Assistant:"])``.

    Args:
        keywords: texts to remove; one str is one keyword.

    Raises:
        TypeError, ValueError: a keyword is not a str, or is empty.
    """

    def __init__(self, keywords: str | Iterable[str]) -> None:
        self._keywords = sorted(as_stops(keywords), key=len, reverse=True)
        self._held = ""

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`; an end that may become a keyword is held back."""
        return self._take(self._held + text, final=False)

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        return self._take(self._held, final=True)

    def _take(self, text: str, *, final: bool) -> str:
        out: list[str] = []
        start = position = 0
        self._held = ""
        while position < len(text):
            if not final and any(
                len(word) > len(text) - position and word.startswith(text[position:]) for word in self._keywords
            ):
                self._held = text[position:]
                break
            found = next((word for word in self._keywords if text.startswith(word, position)), None)
            if found is None:
                position += 1
                continue
            out.append(text[start:position])
            position += len(found)
            start = position
        out.append(text[start:position])
        return "".join(out)
