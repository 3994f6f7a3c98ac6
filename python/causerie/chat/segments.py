"""A prompt's parts as token ids: the template's text, people's text that never becomes a control token, generated ids.

Tokens never reach across a control token of the template. So the text is cut there into segments; each is tokenised by
itself, gives the same ids in every later prompt, and need be tokenised once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from causerie.chat.memo import Memo
from causerie.chat.text_ids import text_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causerie.llama.vocab import Vocab

__all__ = ["Generated", "Part", "SegmentEncoder", "Text"]

_ROOM = 4 * 2**20  # characters and ids whose results are kept, of each kind


class Text(NamedTuple):
    """A text, and whether it is the template's, so that control tokens in it count."""

    text: str
    trusted: bool


class Generated(NamedTuple):
    """Ids that the model generated."""

    ids: tuple[int, ...]


Part: TypeAlias = Text | Generated


class SegmentEncoder:
    """Turns the parts of prompts into ids. Thread-safe.

    Args:
        vocab: the vocabulary.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._is_control: dict[int, bool] = {}
        self._cuts: Memo[tuple[str, ...]] = Memo(_ROOM)
        self._ids: Memo[tuple[int, ...]] = Memo(_ROOM)
        self._texts: Memo[str] = Memo(_ROOM)

    def encode(self, parts: Iterable[Part]) -> list[int]:
        """The ids of parts in a row; generated ones stand there as they are."""
        ids: list[int] = []
        segment: list[Text] = []
        for part in parts:
            if isinstance(part, Generated):
                self._flush(segment, ids)
                ids += part.ids
            elif not part.trusted:
                segment.append(part)
            else:
                for number, piece in enumerate(self._cut(part.text)):
                    if number:
                        self._flush(segment, ids)
                    if piece:
                        segment.append(Text(piece, trusted=True))
        self._flush(segment, ids)
        return ids

    def text(self, parts: Iterable[Part]) -> str:
        """What the parts say, control tokens in generated ids included; bytes that are not UTF-8 become U+FFFD."""
        return "".join(part.text if isinstance(part, Text) else self._said(part.ids) for part in parts)

    def _said(self, ids: tuple[int, ...]) -> str:
        def join() -> str:
            return b"".join(self._vocab.piece(token) for token in ids).decode("utf-8", "replace")

        return self._texts.get(ids, len(ids), join)

    def controls_in(self, text: str) -> list[int]:
        """The control tokens that ``text`` holds if it is trusted."""
        return self._controls(text_ids(self._vocab, text, trusted=True))

    def holds_control(self, text: str) -> bool:
        """Whether the text of a control token is in ``text``."""
        return bool(self.controls_in(text))

    def _controls(self, ids: Iterable[int]) -> list[int]:
        return [token for token in ids if self._control(token)]

    def _control(self, token: int) -> bool:
        found = self._is_control.get(token)
        if found is None:
            found = self._is_control[token] = self._vocab.is_control(token)
        return found

    def _cut(self, text: str) -> tuple[str, ...]:
        """A template's text cut before each control token; the first piece, perhaps "", begins with none."""
        return self._cuts.get(text, len(text), lambda: self._cut_anew(text))

    def _cut_anew(self, text: str) -> tuple[str, ...]:
        ids = text_ids(self._vocab, text, trusted=True)
        pieces, start, position = [], 0, 0
        for token in self._controls(ids):
            own = self._vocab.piece(token).decode("utf-8", "replace")
            place = text.find(own, position)
            if not own or place < 0:
                return (text,)
            pieces.append(text[start:place])
            start, position = place, place + len(own)
        pieces.append(text[start:])
        again = [i for piece in pieces for i in text_ids(self._vocab, piece, trusted=True)]
        return tuple(pieces) if again == ids else (text,)

    def _flush(self, segment: list[Text], ids: list[int]) -> None:
        if not segment:
            return
        inside = bool(ids) and not self._control(ids[-1])
        key = (tuple(segment), inside)
        cost = sum(len(text) for text, _ in segment)
        ids += self._ids.get(key, cost, lambda: tuple(self._encode(*key)))
        segment.clear()

    def _encode(self, segment: Sequence[Text], inside: bool) -> list[int]:
        """One segment.

        In one piece where that is safe, as the model was trained; cut at the seams, and so perhaps into other tokens
        there, where a person's text holds a control token's text or completes one together with the template's.
        """
        own: list[int] = []
        pieces: list[int] = []
        plain = True
        for text, trusted in segment:
            after = not self._control(pieces[-1]) if pieces else inside
            ids = text_ids(self._vocab, text, trusted=trusted, inside=after)
            pieces += ids
            if trusted:
                own += ids
            else:
                plain = plain and ids == text_ids(self._vocab, text, trusted=True, inside=after)
        if not plain or len(segment) == 1:
            return pieces
        whole = text_ids(self._vocab, "".join(text for text, _ in segment), trusted=True, inside=inside)
        return whole if self._controls(whole) == self._controls(own) else pieces
