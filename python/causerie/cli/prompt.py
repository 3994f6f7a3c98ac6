"""A conversation as the token ids of a prompt: what a person wrote can never become a control token.

The template is rendered with a mark in place of each text. Around the marks stands the template's own text, whose
control tokens count; what goes in for a mark is read as plain text, or is the very ids that the model generated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causerie.llama.template import Template
    from causerie.llama.vocab import Vocab

__all__ = ["Turn", "encode", "split_at_marks"]

# Private-use characters: no template writes them by itself.
_MARK = re.compile("\ue000([0-9]+)\ue001")


@dataclass(frozen=True)
class Turn:
    """One message of a conversation.

    Attributes:
        role: "system", "user" or "assistant".
        content: its text.
        tokens: the ids the model generated; None for what a person wrote.
        finish_reason: of an answer: "stop", "length" or "cancelled".
    """

    role: str
    content: str
    tokens: tuple[int, ...] | None = None
    finish_reason: str | None = None


def split_at_marks(text: str, count: int) -> tuple[list[str], list[int]] | None:
    """The texts around the marks 0..count-1 and the marks' order; None unless each mark stands there exactly once."""
    parts = _MARK.split(text)
    marks = [int(mark) for mark in parts[1::2]]
    return (parts[::2], marks) if sorted(marks) == list(range(count)) else None


def encode(template: Template, vocab: Vocab, turns: Sequence[Turn]) -> list[int]:
    """The ids to evaluate so that the model answers the last turn; one BOS where the model wants one.

    Raises:
        TemplateError: the template refuses the turns, or needs to see a text that holds a control token's text.
    """
    marked = _render(template, [(turn.role, f"\ue000{i}\ue001") for i, turn in enumerate(turns)])
    split = split_at_marks(marked, len(turns))
    ids = _encode_whole(template, vocab, turns, marked) if split is None else _encode_parts(vocab, turns, *split)
    if vocab.add_bos and vocab.bos is not None and ids[:1] != [vocab.bos]:
        return [vocab.bos, *ids]
    return ids


def _render(template: Template, messages: Iterable[tuple[str, str]]) -> str:
    rendered = template.render([{"role": role, "content": content} for role, content in messages])
    return str(rendered["prompt"])


def _ids(vocab: Vocab, text: str, *, trusted: bool) -> list[int]:
    return [int(i) for i in vocab.tokenize(text, add_special=False, parse_special=trusted)] if text else []


def _controls(vocab: Vocab, ids: Iterable[int]) -> list[int]:
    return [i for i in ids if vocab.is_control(i)]


def _encode_parts(vocab: Vocab, turns: Sequence[Turn], around: list[str], marks: list[int]) -> list[int]:
    ids: list[int] = []
    run: list[tuple[str, bool]] = [(around[0], True)]
    for mark, after in zip(marks, around[1:], strict=True):
        turn = turns[mark]
        if turn.tokens is None:
            run.append((turn.content, False))
        else:
            ids += _encode_run(vocab, run)
            ids += turn.tokens
            run = []
        run.append((after, True))
    return ids + _encode_run(vocab, run)


def _encode_run(vocab: Vocab, run: list[tuple[str, bool]]) -> list[int]:
    """Template text and people's text by turns, between generated ids.

    In one piece where that is safe, as the model was trained; cut at the seams, and so perhaps into other tokens there,
    where a person's text holds a control token's text or completes one together with the template's.
    """
    own: list[int] = []
    pieces: list[int] = []
    plain = True
    for text, trusted in run:
        ids = _ids(vocab, text, trusted=trusted)
        pieces += ids
        if trusted:
            own += ids
        else:
            plain = plain and ids == _ids(vocab, text, trusted=True)
    whole = _ids(vocab, "".join(text for text, _ in run), trusted=True)
    return whole if plain and _controls(vocab, whole) == _controls(vocab, own) else pieces


def _encode_whole(template: Template, vocab: Vocab, turns: Sequence[Turn], marked: str) -> list[int]:
    """For a template that drops, repeats or changes texts: what is whose cannot be told, so nothing may be special."""
    text = _render(template, [(turn.role, turn.content) for turn in turns])
    ids = _ids(vocab, text, trusted=True)
    if _controls(vocab, ids) != _controls(vocab, _ids(vocab, marked, trusted=True)):
        raise TemplateError(
            "a message holds the text of a control token, and this model's chat template does not allow to keep it "
            "apart from the template's own: write that text differently"
        )
    return ids
