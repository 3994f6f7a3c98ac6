"""The token ids of a reply of which only the beginning is kept, as where a stop string cut it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.chat.text_ids import text_ids
from causerie.chat.utf8 import Utf8Assembler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.llama.vocab import Vocab

__all__ = ["kept_ids"]


def kept_ids(tokens: Sequence[int], pieces: Sequence[bytes], text: str, vocab: Vocab) -> tuple[int, ...]:
    """Ids that say ``text``: as many of the generated ones as lie wholly inside, then the rest as plain text.

    Args:
        tokens: the ids that were generated.
        pieces: the bytes each of them stood for, b"" for those that show nothing.
        text: what is kept: the beginning of what the bytes decode to (as `Utf8Assembler` decodes them). If it is all of
            it, all ids are kept, also those that show nothing.
        vocab: the vocabulary, for the rest.

    Raises:
        ValueError: not as many pieces as tokens, or ``text`` is not the beginning of what they say.
    """
    if len(tokens) != len(pieces):
        raise ValueError(f"there are {len(tokens)} tokens and {len(pieces)} pieces: give one piece for each token")
    whole = b"".join(pieces).decode("utf-8", "replace")
    if text == whole:
        return tuple(int(token) for token in tokens)
    if not whole.startswith(text):
        raise ValueError("the text to keep is not the beginning of what the tokens say")
    count, length = _inside(pieces, text)
    if length == len(text):
        while count and not pieces[count - 1]:
            count -= 1
    kept = tuple(int(token) for token in tokens[:count])
    return (*kept, *text_ids(vocab, text[length:], inside=True))


def _inside(pieces: Sequence[bytes], text: str) -> tuple[int, int]:
    """How many pieces say nothing beyond ``text``, and how many of its characters they say."""
    assembler = Utf8Assembler()
    best = (0, 0)
    position = 0
    for count, piece in enumerate(pieces, 1):
        position += len(assembler.feed(piece))
        if position > len(text):
            break
        if not assembler.pending:
            best = (count, position)
        elif text[position : position + 1] == "\ufffd":  # the bytes are no character, here or with what follows
            best = (count, position + 1)
    return best
