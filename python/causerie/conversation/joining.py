"""How a reply that has ended becomes part of the history. Pure: a new history out, the old one unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from causerie.chat.messages import Message
from causerie.chat.reply_reading import PlainReader
from causerie.chat.text_ids import text_ids
from causerie.chat.utf8 import Utf8Assembler
from causerie.chat.whole_replies import content_of

if TYPE_CHECKING:
    from causerie.conversation.candidate import Candidate
    from causerie.conversation.constraint import Constraint
    from causerie.conversation.history import History
    from causerie.conversation.reply import Reply
    from causerie.conversation.turn import Turn
    from causerie.llama.vocab import Vocab

__all__ = ["joined", "unfinished_character"]


def joined(history: History, turn: Turn, vocab: Vocab) -> tuple[History, Reply]:
    """The history with the first candidate of a turn that has ended, and the reply with all candidates.

    Raises:
        BaseException: what ended one of the candidates.
    """
    for candidate in turn.candidates:
        if candidate.error is not None:
            raise candidate.error
    first, *others = turn.candidates
    said = first.message
    message: Message | None = None
    if turn.how == "continue":
        plain = isinstance(first.reader, PlainReader)
        history = _continued(history, first, vocab) if plain else _gone_on(history, first)
        message = history.messages[-1]
    elif first.generation.tokens or said != Message("assistant") or first.generation.finish_reason == "stop":
        message = said
        history = history.append(message, first.written(), first.constraint)
    reply = first.reply(message)
    if others:
        alternatives = [candidate.reply(candidate.message) for candidate in others]
        reply = replace(reply, candidates=(reply, *alternatives))
    return history, reply


def _gone_on(history: History, candidate: Candidate) -> History:
    """With the last message gone on, and read as a whole."""
    if not candidate.generation.tokens:
        return history
    constraint = _placed(history, candidate, len(candidate.before_ids), len(history.messages[-1].text))
    return history.with_last(candidate.message, candidate.written(), constraint)


def _continued(history: History, candidate: Candidate, vocab: Vocab) -> History:
    """With the last message gone on."""
    last, known = history.messages[-1], content_of(history.generated[-1])
    content = last.text
    if known is None:
        known = tuple(text_ids(vocab, content))
    elif unfinished_character(history, vocab):
        content = content[:-1]  # it stood for the bytes that the new text begins with
    constraint = _placed(history, candidate, len(known), len(content))
    message = replace(last, content=content + candidate.message.text)
    return history.with_last(message, (*known, *candidate.ids()), constraint)


def _placed(history: History, candidate: Candidate, ids: int, text: int) -> Constraint | None:
    """What a message that went on has to follow: what it followed before, or what was asked of the rest."""
    found = candidate.constraint
    if found is None or found is history.constraints[-1]:
        return found
    return replace(found, ids=ids, text=text)


def unfinished_character(history: History, vocab: Vocab) -> bytes:
    """The bytes at the end of the last message that are the beginning of a character only."""
    ids = content_of(history.generated[-1])
    if ids is None or not history.messages[-1].text.endswith("\ufffd"):
        return b""
    assembler = Utf8Assembler()
    for token in ids:
        assembler.feed(vocab.piece(token, special=False))
    return assembler.pending
