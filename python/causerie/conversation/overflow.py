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

__all__ = ["Overflow", "as_overflow", "fitted"]

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


def fitted(
    history: History,
    encode: Callable[[History], Encoded],
    available: int,
    *,
    policy: Literal["error", "trim"] | Callable[[History], History],
    reserve: int,
) -> tuple[History, Encoded]:
    """The history and its prompt, changed as the policy says if it leaves no room for a token.

    Args:
        history: the messages to reply to.
        encode: makes a prompt.
        available: tokens the context has.
        policy: "error", "trim", or what another history is made by; that one has to fit.
        reserve: tokens that dropping turns is to leave for the answer, if it can.

    Raises:
        ContextOverflowError: it does not fit.
    """
    encoded = encode(history)
    if _fits(encoded, available):
        return history, encoded
    if policy == "trim":
        history, encoded = _trimmed(history, encode, available, reserve)
    elif policy != "error":
        history = policy(history)
        encoded = encode(history)
    if _fits(encoded, available):
        return history, encoded
    alone = encode(history.trimmed(max(history.n_turns - 1, 0)))
    raise _error(len(encoded.ids) + 1, available, "full" if _fits(alone, available) else "too_long")


def _fits(encoded: Encoded, available: int, room: int = 1) -> bool:
    return len(encoded.ids) + room <= available


def _error(needed: int, available: int, kind: Literal["full", "too_long"]) -> ContextOverflowError:
    ways_out = {
        "full": 'drop turns, use overflow="trim", or use a larger n_ctx',
        "too_long": "the last message does not fit even alone: shorten it, or use a larger n_ctx",
    }
    return ContextOverflowError(
        f"the prompt needs {needed} tokens of context, there are {available}: {ways_out[kind]}",
        needed=needed,
        available=available,
        kind=kind,
    )


def _trimmed(
    history: History, encode: Callable[[History], Encoded], available: int, reserve: int
) -> tuple[History, Encoded]:
    """The history without as many of its oldest turns as must go, and its prompt; at least the last turn stays."""
    low, high = 1, history.n_turns - 1  # the fewest that must go; it is monotone, so halve
    found: tuple[History, Encoded] | None = None
    while low <= high:
        middle = (low + high) // 2
        shorter = history.trimmed(middle)
        encoded = encode(shorter)
        if _fits(encoded, available, reserve):
            found, high = (shorter, encoded), middle - 1
        else:
            low = middle + 1
    if found is None:
        last = history.trimmed(max(history.n_turns - 1, 0))
        found = last, encode(last)
    return found
