"""Text to token ids wherever in a prompt it stands: nothing added that the text does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.llama.vocab import Vocab

__all__ = ["text_ids", "token_ids"]

# Characters that tokens seldom join with what follows, to stand in for the text before.
_GUARDS = ("\n", "\x01", "|")


def text_ids(vocab: Vocab, text: str, *, trusted: bool = False, inside: bool = False) -> list[int]:
    """The ids of a text, without BOS or EOS.

    Args:
        vocab: the vocabulary.
        text: the text.
        trusted: let the text of control tokens become those tokens. Never for text of people, tools or models.
        inside: the text goes on from other text. (SentencePiece vocabularies put a space before a text that stands at
            the start or behind a control token; here they must not.)
    """
    if not text:
        return []
    if not inside or vocab.type != "spm" or not vocab.piece(_ids(vocab, "x", trusted=False)[0]).startswith(b" "):
        return _ids(vocab, text, trusted=trusted)
    for guard in _GUARDS:
        before = _ids(vocab, guard, trusted=trusted)
        ids = _ids(vocab, guard + text, trusted=trusted)
        if ids[: len(before)] == before:
            return ids[len(before) :]
    return _ids(vocab, text, trusted=trusted)


def _ids(vocab: Vocab, text: str, *, trusted: bool) -> list[int]:
    ids: list[int] = vocab.tokenize(text, add_special=False, parse_special=trusted).tolist()
    return ids


def token_ids(texts: Iterable[str], vocab: Vocab) -> frozenset[int]:
    """The ids of those texts that are one token of the vocabulary."""
    found = (_ids(vocab, text, trusted=True) for text in texts if text)
    return frozenset(ids[0] for ids in found if len(ids) == 1)
