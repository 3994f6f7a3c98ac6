"""What the facade is given: messages, examples and sessions. Immutable, and checked where they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from causerie.chat.frozen_json import checked_text
from causerie.chat.messages import Message
from causerie.chat.tool_call import set_field
from causerie.chat_model.dump import Dumped

if TYPE_CHECKING:
    from causerie.chat.messages import Role

__all__ = ["ChatExample", "ChatMessage", "ChatSession", "as_sessions"]

# Names that are in use for the two who talk, in lower case; "0" and "1" are PaLM's.
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "human", "0"), "user"),
    **dict.fromkeys(("assistant", "bot", "ai", "model", "1"), "assistant"),
    "system": "system",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ChatMessage(Dumped):
    """One message of a session.

    Args:
        content: what is said.
        author: "user" or "assistant" (also "human" and "0"; "bot", "ai", "model" and "1"), or "system", in any case.
            "": the last message is the user's, and any other one is by whoever does not speak next.

    Raises:
        TypeError: an argument is not a str.
        ValueError: an author that is not known.
    """

    content: str
    author: str = ""

    def __post_init__(self) -> None:
        set_field(self, "content", checked_text(self.content, "content"))
        set_field(self, "author", checked_text(self.author, "author"))
        if self.author and self.author.lower() not in _ROLES:
            raise ValueError(f"unknown author {self.author!r}: there are {', '.join(_ROLES)}, or none for alternating")


@dataclass(frozen=True, slots=True, init=False)
class ChatExample(Dumped):
    """What a user says, and how the assistant is to answer. Who their authors are does not matter.

    Args:
        input, output: messages; also taken are texts, and dicts with the arguments of a message.

    Raises:
        TypeError, ValueError: as `ChatMessage`.
    """

    input: ChatMessage
    output: ChatMessage

    def __init__(
        self,
        input: ChatMessage | Mapping[str, Any] | str,  # noqa: A002 - ModelFarm's name
        output: ChatMessage | Mapping[str, Any] | str,
    ) -> None:
        set_field(self, "input", _message(input, "input"))
        set_field(self, "output", _message(output, "output"))


@dataclass(frozen=True, slots=True, init=False)
class ChatSession(Dumped):
    """A conversation to be answered: one prompt of a call.

    Args:
        context: what the model is told first; "" or None: nothing.
        examples: pairs that show it how to answer; also taken are pairs of texts, and dicts.
        messages: what was said so far; also taken are texts, and dicts.

    Raises:
        TypeError, ValueError: an argument of the wrong type, or as `ChatMessage`; naming the item.
    """

    context: str
    examples: tuple[ChatExample, ...]
    messages: tuple[ChatMessage, ...]

    def __init__(
        self,
        context: str | None = "",
        examples: Iterable[ChatExample | Mapping[str, Any] | tuple[str, str]] = (),
        messages: Iterable[ChatMessage | Mapping[str, Any] | str] = (),
    ) -> None:
        set_field(self, "context", "" if context is None else checked_text(context, "context"))
        set_field(self, "examples", tuple(_example(v, f"example {i}") for i, v in _numbered(examples, "examples")))
        set_field(self, "messages", tuple(_message(v, f"message {i}") for i, v in _numbered(messages, "messages")))

    @property
    def text(self) -> str:
        """All that is said in it, one after the other."""
        pairs = [side.content for example in self.examples for side in (example.input, example.output)]
        return "".join([self.context, *pairs, *(message.content for message in self.messages)])

    def to_messages(self) -> list[Message]:
        """The messages as a conversation has them, each with the role that its author plays."""
        found: list[Message] = []
        follows: Role = "assistant"  # whom the reply that is asked for is by
        for message in reversed(self.messages):
            other: Role = "assistant" if follows == "user" else "user"
            follows = _ROLES[message.author.lower()] if message.author else other
            found.append(Message(follows, message.content))
        return found[::-1]


def as_sessions(prompts: object) -> list[ChatSession]:
    """The prompts of a call; a dict has the arguments of a session.

    Raises:
        TypeError, ValueError: they are no list of sessions; naming the item.
    """
    if isinstance(prompts, ChatSession):
        raise TypeError("prompts must be a list of sessions: put brackets around the one ChatSession")
    return [_built(ChatSession, value, f"prompt {i}") for i, value in _numbered(prompts, "prompts")]


def _numbered(values: object, what: str) -> Iterable[tuple[int, Any]]:
    if isinstance(values, (str, bytes, Mapping, Dumped)) or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a list, not {type(values).__name__}")
    return enumerate(values)


def _message(value: object, what: str) -> ChatMessage:
    return _built(ChatMessage, {"content": value} if isinstance(value, str) else value, what)


def _example(value: object, what: str) -> ChatExample:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        value = {"input": value[0], "output": value[1]}
    return _built(ChatExample, value, what)


def _built(kind: type[_T], value: object, what: str) -> _T:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a {kind.__name__} or a dict, not {type(value).__name__}")
    try:
        return kind(**value)
    except (TypeError, ValueError) as error:
        same = TypeError if isinstance(error, TypeError) else ValueError
        raise same(f"{what}: {error}") from error
