"""The messages of a conversation, with the ids that the model generated for them. Immutable; changes give a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from causerie.chat import validation
from causerie.chat.messages import Message, as_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from causerie.chat.content import Content

__all__ = ["History", "examples_as_messages"]

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Messages, what was generated of them, and how many at the start are fixed.

    Attributes:
        messages: in order.
        generated: for each of them the exact ids the model generated for its content, or None.
        head: so many messages at the start (system text and examples) stay when turns are dropped.
    """

    messages: tuple[Message, ...] = ()
    generated: tuple[Ids | None, ...] = ()
    head: int = 0

    @classmethod
    def of(cls, messages: Iterable[Message | Mapping[str, object]], head: int = 0) -> History:
        """From messages that people wrote; ValueError or ToolError if they do not fit together."""
        given = as_messages(messages)
        validation.check_messages(given)
        return cls(given, (None,) * len(given), head)

    def append(self, message: Message, ids: Ids | None = None) -> History:
        """With one more message."""
        validation.check_append(self.messages, message)
        return replace(self, messages=(*self.messages, message), generated=(*self.generated, ids))

    def with_last(self, message: Message, ids: Ids | None) -> History:
        """With another last message."""
        return replace(self, messages=(*self.messages[:-1], message), generated=(*self.generated[:-1], ids))

    def first(self, count: int) -> History:
        """The first messages only."""
        return History(self.messages[:count], self.generated[:count], min(self.head, count))

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
        return History(kept, self.generated[:first] + self.generated[first + gone :], self.head)

    @property
    def n_turns(self) -> int:
        """How many turns there are."""
        return len(validation.split_turns(self.messages, keep=self.head).turns)

    def edited(self, index: int, content: Content) -> History:
        """With the content of one message replaced, and all that came behind it dropped.

        Raises:
            IndexError: there is no such message.
            TypeError, ValueError: the content is not one a message can have.
        """
        messages = validation.edit(self.messages, index, content)
        last = len(messages) - 1
        return History(messages, (*self.generated[:last], None), min(self.head, len(messages)))

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
            raise ValueError("there is no reply to do again: the last message is part of the examples")
        validation.check_respond(self.messages[:end])
        return self.first(end)

    def adopted(self, messages: Iterable[Message | Mapping[str, object]]) -> History:
        """Another history, in which the ids of messages that were here before are kept."""
        given = as_messages(messages)
        validation.check_messages(given)
        known = {
            (message.role, message.content): ids
            for message, ids in zip(self.messages, self.generated, strict=True)
            if ids is not None
        }
        ids = tuple(known.get((message.role, message.content)) for message in given)
        head = self.head if given[: self.head] == self.messages[: self.head] else 0
        if not head and given and given[0].role == "system":
            head = 1
        return History(given, ids, head)


def examples_as_messages(
    examples: Iterable[tuple[str, str] | Message | Mapping[str, object]],
) -> tuple[Message, ...]:
    """Examples as messages: pairs of what a user says and what the assistant answers, or messages as they are."""
    messages: list[Message | Mapping[str, object]] = []
    for example in examples:
        if isinstance(example, tuple):
            if len(example) != 2:
                raise ValueError(f"an example is a pair of texts, not {len(example)} of them")
            user, assistant = example
            messages += [Message("user", user), Message("assistant", assistant)]
        else:
            messages.append(example)
    return as_messages(messages)
