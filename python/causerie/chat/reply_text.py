"""From a reply's bytes to the text a reader gets, piece by piece: the one path of streams and whole replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.chat.characters import CharacterBuffer
from causerie.chat.stops import StopMatcher
from causerie.chat.utf8 import Utf8Assembler

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ReplyText"]


class ReplyText:
    """Decodes, looks for stop strings and keeps characters whole.

    Stop strings are looked for before characters are held back, so that a stop is noticed with the token that completes
    it. The chunks, joined, do not depend on how the bytes were cut.

    Args:
        stops: stop strings, as for `StopMatcher`.
    """

    def __init__(self, stops: str | Iterable[str] | None = ()) -> None:
        self._bytes = Utf8Assembler()
        self._stops = StopMatcher(stops)
        self._characters = CharacterBuffer()

    @property
    def matched(self) -> str | None:
        """The stop string that ended the reply; None as long as none has. Once there is one, decoding may stop."""
        return self._stops.matched

    def feed(self, piece: bytes) -> str:
        """The text that can be shown after the bytes of one more token; often "" or that of earlier ones too."""
        text = self._characters.feed(self._stops.feed(self._bytes.feed(piece)))
        return text if self.matched is None else text + self._characters.flush()

    def flush(self) -> str:
        """End of the reply: whatever was held back and is not part of a stop string."""
        text = self._stops.feed(self._bytes.flush()) + self._stops.flush()
        return self._characters.feed(text) + self._characters.flush()
