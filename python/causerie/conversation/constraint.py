"""The constraint that a message was generated under, so that it can go on under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.chat.reply_grammar import ReplyGrammar
from causerie.chat.response_format import Grammar, as_response_format
from causerie.chat.whole_replies import Written
from causerie.errors import UnsupportedError

if TYPE_CHECKING:
    from causerie.chat.response_format import ResponseFormat
    from causerie.conversation.history import Said

__all__ = ["Begun", "Constraint", "begun_reply", "constraint_from_json", "constraint_to_json"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a message follows.

    Attributes:
        grammar: what it follows.
        form: what reads the text; None: nothing does.
        ids, text: how many ids and characters of the message came before, where it is on the rest only.
    """

    grammar: ReplyGrammar
    form: ResponseFormat | None = None
    ids: int = 0
    text: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """A message that goes on under its constraint.

    Attributes:
        constraint: what it follows.
        ids: what the model wrote under it so far.
        text: the text of that, without a character that is not complete.
    """

    constraint: Constraint
    ids: tuple[int, ...]
    text: str


def begun_reply(constraint: Constraint, said: Said | None, text: str, unfinished: bytes) -> Begun:
    """What a message that goes on has to follow.

    Args:
        constraint: the message's.
        said: how the model wrote it.
        text: its text.
        unfinished: the bytes of a character at its end which are only its beginning; the text has U+FFFD for them.

    Raises:
        UnsupportedError: it is not known how the model wrote it, so that the place in the grammar is not.
    """
    whole = (said.whole or said.ids) if isinstance(said, Written) else said
    marked = bool(constraint.grammar.begun) and isinstance(said, Written) and not said.whole
    if marked or (whole is None and text):
        raise UnsupportedError(
            "it is not known how the model wrote the message that is to go on, so that its constraint cannot: give "
            "response_format or grammar for the rest"
        )
    end = len(text) - (1 if unfinished else 0)
    return Begun(constraint, (whole or ())[constraint.ids :], text[constraint.text : end])


def constraint_to_json(constraint: Constraint | None) -> Any:
    """What can be saved of it: of a type only its schema."""
    if constraint is None:
        return None
    grammar, form = constraint.grammar, constraint.form
    return {
        "grammar": grammar.text,
        "begun": grammar.begun,
        "shown": list(grammar.shown),
        "form": None if form is None else {"grammar": form.grammar, "schema": form.schema},
        "ids": constraint.ids,
        "text": constraint.text,
    }


def constraint_from_json(data: Any) -> Constraint | None:
    """What was saved. TypeError, ValueError or LookupError if it was not."""
    if data is None:
        return None
    if set(data) != {"grammar", "begun", "shown", "form", "ids", "text"}:
        raise ValueError("a constraint is described in another way")
    texts, numbers = [data["grammar"], data["begun"], *data["shown"]], [data["ids"], data["text"]]
    if not all(isinstance(text, str) for text in texts) or not all(type(n) is int and n >= 0 for n in numbers):
        raise TypeError("a constraint has texts and numbers")
    form = data["form"]
    if form is not None:
        form = as_response_format(Grammar(form["grammar"]) if form["schema"] is None else form["schema"])
    grammar = ReplyGrammar(data["grammar"], begun=data["begun"], shown=tuple(data["shown"]))
    return Constraint(grammar, form, data["ids"], data["text"])
