"""What the tests of the facade share: sessions, and what they are to be answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.chat_model import ChatSession

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie import Engine
    from causerie.chat_model import ChatModelResponse

WORDS = ["pelican", "anvil", "saffron", "glacier", "trombone", "lantern", "walnut"]
GREEDY = {"temperature": 0, "max_output_tokens": 6}


def about(word: str) -> ChatSession:
    return ChatSession(context="You are terse.", messages=[f"Tell me about the {word}."])


def texts(response: ChatModelResponse) -> list[list[str]]:
    """The texts of all candidates of all sessions."""
    return [[candidate.message.content for candidate in each.candidates] for each in response.responses]


def alone(engine: Engine, session: ChatSession, n: int = 6) -> str:
    """What a conversation of its own answers, greedily."""
    with engine.conversation(session.context or None, messages=session.to_messages()) as chat:
        return chat.respond(temperature=0, max_tokens=n).text


def joined(items: Iterable[ChatModelResponse], n: int) -> list[str]:
    """The texts of n sessions, from the pieces of a stream."""
    found = ["" for _ in range(n)]
    for item in items:
        (new,) = item.responses
        found[new.index] += new.candidates[0].message.content
    return found
