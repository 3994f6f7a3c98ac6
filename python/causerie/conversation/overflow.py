"""What to do when a prompt does not fit into the context: refuse, drop the oldest turns, or ask the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from causerie.errors import ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal

    from causerie.chat.messages import Message
    from causerie.chat.prompt import Encoded
    from causerie.conversation.conversation import Conversation
    from causerie.conversation.history import History

__all__ = ["Overflow", "as_overflow", "overflow_error", "trimmed"]

Overflow: TypeAlias = "Literal['error', 'trim'] | Callable[[Conversation], Iterable[Message | Mapping[str, Any]]]"
"""A policy by name, or a function that is given the conversation and returns the messages to go on with."""


def as_overflow(value: object) -> Overflow:
    """The policy; ValueError if it is none."""
    if value == "error":
        return "error"
    if value == "trim":
        return "trim"
    if callable(value):
        return value
    raise ValueError(f'overflow must be "error", "trim" or a function, not {value!r}')


def overflow_error(needed: int, alone: int, available: int) -> ContextOverflowError:
    """The exception for a prompt that needs too many tokens.

    Args:
        needed: tokens of the whole prompt, with room for one more.
        alone: the same for the head and the last turn only.
        available: tokens the context has for one conversation.
    """
    if alone > available:
        kind, way_out = "too_long", "shorten the message, or use a larger n_ctx"
    else:
        kind, way_out = "full", 'drop turns, use overflow="trim", or use a larger n_ctx'
    return ContextOverflowError(
        f"the prompt needs {needed} tokens of context, there are {available}: {way_out}",
        needed=needed,
        available=available,
        kind=kind,
    )


def trimmed(
    history: History, encode: Callable[[History], Encoded], available: int, reserve: int
) -> tuple[History, Encoded]:
    """The history without as many of its oldest turns as must go, and its prompt.

    Args:
        history: does not fit.
        encode: makes a prompt.
        available: tokens the context has.
        reserve: tokens to leave for the answer, if dropping turns can give them.

    Raises:
        ContextOverflowError: the last turn does not fit even alone.
    """
    turns = history.n_turns
    low, high = 1, turns - 1  # the fewest that must go; it is monotone, so halve
    found: tuple[History, Encoded] | None = None
    while low <= high:
        middle = (low + high) // 2
        candidate = history.trimmed(middle)
        encoded = encode(candidate)
        if len(encoded.ids) + reserve <= available:
            found, high = (candidate, encoded), middle - 1
        else:
            low = middle + 1
    if found is not None:
        return found
    last = history.trimmed(max(turns - 1, 0))
    encoded = encode(last)
    if len(encoded.ids) + 1 > available:
        raise overflow_error(len(encoded.ids) + 1, len(encoded.ids) + 1, available)
    return last, encoded
