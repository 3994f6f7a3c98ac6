"""The messages of a conversation, with the ids that the model generated for them. Immutable; changes give a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from causerie.chat import validation
from causerie.chat.messages import Message, as_messages
from causerie.chat.whole_replies import Written
from causerie.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from causerie.chat.content import ContentLike
    from causerie.conversation.constraint import Constraint

__all__ = ["History", "examples_as_messages"]

Ids: TypeAlias = tuple[int, ...]
Said: TypeAlias = Written | Ids


@dataclass(frozen=True, slots=True)
class History:
    """Messages, what was generated of them, and how many at the start are fixed.

    Attributes:
        messages: in order.
        generated: for each of them how the model wrote it, or the exact ids it generated for its content, or None.
        head: so many messages at the start (system text and examples) stay when turns are dropped.
        constraints: for each of them what it was generated under; where there are fewer, the others have none.
    """

    messages: tuple[Message, ...] = ()
    generated: tuple[Said | None, ...] = ()
    head: int = 0
    constraints: tuple[Constraint | None, ...] = ()

    def __post_init__(self) -> None:
        missing = len(self.messages) - len(self.constraints)
        object.__setattr__(self, "constraints", (*self.constraints, *(None,) * missing))

    @classmethod
    def of(cls, messages: Iterable[Message | Mapping[str, object]], head: int = 0) -> History:
        """From messages that people wrote; ValueError, ToolError or UnsupportedError if they cannot be."""
        given = _checked(messages)
        return cls(given, (None,) * len(given), head)

    def append(self, message: Message, ids: Said | None = None, constraint: Constraint | None = None) -> History:
        """With one more message; a system text belongs to the head.

        Raises:
            ValueError, ToolError, UnsupportedError: it may not stand there.
        """
        validation.check_append(self.messages, message)
        _require_text((message,))
        head = 1 if message.role == "system" else self.head
        return History((*self.messages, message), (*self.generated, ids), head, (*self.constraints, constraint))

    def with_last(self, message: Message, ids: Said | None, constraint: Constraint | None) -> History:
        """With another last message."""
        return replace(
            self,
            messages=(*self.messages[:-1], message),
            generated=(*self.generated[:-1], ids),
            constraints=(*self.constraints[:-1], constraint),
        )

    def first(self, count: int) -> History:
        """The first messages only."""
        return History(self.messages[:count], self.generated[:count], min(self.head, count), self.constraints[:count])

    def rewound(self, turns: int) -> History:
        """Without the last turns: user messages with all that answers them.

        Raises:
            ValueError: there are not so many.
        """
        return self.first(len(validation.drop_turns(self.messages, turns, keep=self.head)))

    def trimmed(self, turns: int) -> History:
        """Without the oldest turns; the head stays."""
        kept = validation.drop_turns(self.messages, turns, oldest=True, keep=self.head)
        first = len(validation.split_turns(self.messages, keep=self.head).head)
        gone = len(self.messages) - len(kept)
        generated = self.generated[:first] + self.generated[first + gone :]
        return History(kept, generated, self.head, self.constraints[:first] + self.constraints[first + gone :])

    @property
    def n_turns(self) -> int:
        """How many turns there are."""
        return len(validation.split_turns(self.messages, keep=self.head).turns)

    def edited(self, index: int, content: ContentLike) -> History:
        """With the content of one message replaced, and all that came behind it dropped.

        Raises:
            IndexError: there is no such message.
            TypeError, ValueError, UnsupportedError: the content is not one a message can have.
        """
        messages = validation.edit(self.messages, index, content)
        _require_text(messages[-1:])
        last = len(messages) - 1
        head = min(self.head, len(messages))
        return History(messages, (*self.generated[:last], None), head, self.constraints[:last])

    def unanswered(self) -> History:
        """Without what answers the last user or tool message.

        Raises:
            ValueError: the last message is no answer, or there is nothing it answers.
        """
        if not self.messages or self.messages[-1].role != "assistant":
            raise ValueError("there is no reply to do again: the last message is not an assistant's")
        end = len(self.messages)
        while end and self.messages[end - 1].role == "assistant":
            end -= 1
        if end < max(self.head, 1):
            raise ValueError("there is no reply to do again: the last message is an example, or opens the conversation")
        validation.check_respond(self.messages[:end])
        return self.first(end)

    def adopted(self, messages: Iterable[Message | Mapping[str, object]]) -> History:
        """Another history, in which the ids of messages that were here before are kept."""
        given = _checked(messages)
        known = tuple(zip(self.messages, self.generated, self.constraints, strict=True))
        same = {id(message): (ids, constraint) for message, ids, constraint in known}
        alike = {_key(message): (ids, constraint) for message, ids, constraint in known if ids is not None}
        found = [same.get(id(message)) or alike.get(_key(message)) or (None, None) for message in given]
        head = self.head if given[: self.head] == self.messages[: self.head] else 0
        if not head and given and given[0].role == "system":
            head = 1
        return History(given, tuple(ids for ids, _ in found), head, tuple(constraint for _, constraint in found))


def _key(message: Message) -> object:
    return message.role, message.content, message.thinking, message.tool_calls


def _checked(messages: Iterable[Message | Mapping[str, object]]) -> tuple[Message, ...]:
    given = as_messages(messages)
    validation.check_messages(given)
    _require_text(given)
    return given


def _require_text(messages: Iterable[Message]) -> None:
    """UnsupportedError for images and sounds."""
    for message in messages:
        if not isinstance(message.content, str):
            kinds = sorted({part["type"] for part in message.content} - {"text"})
            if kinds:
                raise UnsupportedError(f"conversations take text only so far, not {', '.join(kinds)}")


def examples_as_messages(
    examples: Iterable[tuple[str, str] | Message | Mapping[str, object]],
) -> tuple[Message, ...]:
    """Examples as messages: pairs of what a user says and what the assistant answers, or messages as they are."""
    messages: list[Message | Mapping[str, object]] = []
    for example in examples:
        if isinstance(example, (tuple, list)):
            if len(example) != 2:
                raise ValueError(f"an example is a pair of texts, not {len(example)} of them")
            user, assistant = example
            messages += [Message("user", user), Message("assistant", assistant)]
        else:
            messages.append(example)
    return as_messages(messages)
