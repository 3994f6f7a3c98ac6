"""Which message may follow which, and histories cut at turns. Pure: a new tuple out, or an exception and no change.

The rules:

- A system message comes first or not at all. User may follow user, assistant may follow assistant, and an assistant may
  open the conversation.
- A tool's message answers a call of its own turn that nobody has answered yet. The next user message abandons what is
  still open, so a turn never depends on another one and whole turns can be dropped. An id may be used again once it has
  been answered: it then means the latest call.

A turn is a user message with all that answers it, up to the next user message.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from operator import index as as_index
from typing import TYPE_CHECKING, NamedTuple

from causerie.chat.content import as_content, check_parts
from causerie.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causerie.chat.content import ContentLike, PartsPolicy
    from causerie.chat.messages import Message
    from causerie.chat.tool_call import ToolCall

__all__ = [
    "Turns",
    "append",
    "check_answered",
    "check_append",
    "check_messages",
    "check_respond",
    "drop_turns",
    "edit",
    "open_calls",
    "split_turns",
    "without_old_thinking",
]


class _Calls:
    """The calls of one turn: those that wait for a result, and the ids of those that have one."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.open: dict[str, ToolCall] = {}
        self.answered: set[str] = set()
        for message in messages:
            self.step(message)

    def step(self, message: Message) -> None:
        """Take the next message; ToolError or ValueError if it does not fit."""
        if message.role == "user":
            self.open.clear()
            self.answered.clear()
        elif message.role == "tool":
            self._answer(message.tool_call_id or "", message.name)
        for call in message.tool_calls:
            if call.id in self.open:
                raise ValueError(f"tool call id {call.id!r} is in use by a call that still waits for its result")
            self.open[call.id] = call

    def _answer(self, call_id: str, name: str | None) -> None:
        call = self.open.get(call_id)
        if call is not None:
            if name is not None and name != call.name:
                raise ToolError(
                    f"tool call id {call_id!r} is a call of {call.name!r}, not of {name!r}",
                    call_id=call_id,
                    open_ids=tuple(self.open),
                )
            del self.open[call_id]
            self.answered.add(call_id)
            return
        waiting = ", ".join(map(repr, self.open)) or "none"
        found = "has been answered already" if call_id in self.answered else "is not of this turn"
        raise ToolError(
            f"tool call id {call_id!r} {found} (calls that wait for a result: {waiting})",
            call_id=call_id,
            open_ids=tuple(self.open),
        )


def _last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    start = len(messages)
    while start and messages[start - 1].role != "user":
        start -= 1
    return messages[start:]


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The tool calls that still wait for a result, in the order they were asked for."""
    return tuple(_Calls(_last_turn(messages)).open.values())


def check_append(messages: Sequence[Message], message: Message) -> None:
    """Whether ``message`` may follow ``messages`` (which are taken to be right among themselves).

    Looks at the last turn only, however long the conversation.

    Raises:
        ValueError: a system message that is not first, or a call whose id is that of an open one.
        ToolError: a result for a call that is unknown, already answered or of another tool; ``call_id``, ``open_ids``
            tell.
    """
    if message.role == "system" and messages:
        raise ValueError(f"a system message must be the first, and there are {len(messages)} messages before this one")
    if message.role == "tool" or message.tool_calls:
        _Calls(_last_turn(messages)).step(message)


def check_messages(messages: Iterable[Message]) -> None:
    """Whether a whole history keeps the rules; in time linear in its length.

    Raises:
        ValueError, ToolError: as `check_append`, naming the message by its index.
    """
    calls = _Calls()
    for index, message in enumerate(messages):
        if message.role == "system" and index:
            raise ValueError(f"message {index}: a system message must be the first")
        try:
            calls.step(message)
        except ToolError as error:
            raise ToolError(
                f"message {index}: {error}", call_id=message.tool_call_id, open_ids=tuple(calls.open)
            ) from None
        except ValueError as error:
            raise ValueError(f"message {index}: {error}") from None


def append(messages: Sequence[Message], *new: Message) -> tuple[Message, ...]:
    """``messages`` and the new ones behind; all of them or, with an exception, none.

    Raises:
        ValueError, ToolError: as `check_append`.
    """
    history = tuple(messages)
    for message in new:
        check_append(history, message)
        history = (*history, message)
    return history


def check_respond(messages: Sequence[Message]) -> None:
    """Whether there is something to reply to.

    Raises:
        ValueError: no message, or the last one is neither by the user nor by a tool.
    """
    if not messages:
        raise ValueError("there is nothing to respond to: add a user message first")
    if messages[-1].role not in {"user", "tool"}:
        raise ValueError(
            f"the last message is by {messages[-1].role!r}, and a reply needs one by the user or a tool: add one first"
        )


def check_answered(messages: Sequence[Message]) -> None:
    """Whether all calls of the last turn have their results, so that the model can go on.

    Raises:
        ToolError: some have not; ``open_ids`` tells which.
    """
    waiting = open_calls(messages)
    if waiting:
        names = ", ".join(f"{call.id!r} ({call.name})" for call in waiting)
        raise ToolError(
            f"these tool calls wait for a result: {names}; give it with add_tool_result",
            open_ids=tuple(call.id for call in waiting),
        )


class Turns(NamedTuple):
    """A history in turns: ``head`` (system, examples, what precedes the first user message) and the turns behind it."""

    head: tuple[Message, ...]
    turns: tuple[tuple[Message, ...], ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history again."""
        return (*self.head, *(message for turn in self.turns for message in turn))


def split_turns(messages: Sequence[Message], *, keep: int = 0) -> Turns:
    """Split a history into turns, each a user message with all that answers it.

    Args:
        messages: the history.
        keep: so many messages at the start (system and examples) belong to the head, whatever their role.

    Raises:
        ValueError: ``keep`` is negative or more than there are.
    """
    if not 0 <= keep <= len(messages):
        raise ValueError(f"keep must be between 0 and the number of messages, {len(messages)}, not {keep}")
    starts = [i for i in range(keep, len(messages)) if messages[i].role == "user"]
    bounds = [*starts, len(messages)]
    return Turns(tuple(messages[: bounds[0]]), tuple(tuple(messages[i:j]) for i, j in pairwise(bounds)))


def drop_turns(messages: Sequence[Message], n: int = 1, *, oldest: bool = False, keep: int = 0) -> tuple[Message, ...]:
    """The history without its last (or oldest) ``n`` turns; the head stays.

    Args:
        messages: the history.
        n: how many turns; 0 drops none.
        oldest: drop from the start, as a context that is full wants, and not from the end, as a rewind wants.
        keep: as for `split_turns`.

    Raises:
        ValueError: ``n`` is negative or more than there are, or ``keep`` is out of range.
    """
    head, turns = split_turns(messages, keep=keep)
    if not 0 <= n <= len(turns):
        raise ValueError(f"cannot drop {n} turns: the conversation has {len(turns)}")
    return Turns(head, turns[n:] if oldest else turns[: len(turns) - n]).messages


def edit(
    messages: Sequence[Message], index: int, content: ContentLike, *, unknown_parts: PartsPolicy = "refuse"
) -> tuple[Message, ...]:
    """The history up to ``index``, with the content of that message replaced; what came behind it is dropped.

    Role, name and tool_call_id stay. Thinking and tool calls go: an edited assistant says what it is given and no more.

    Args:
        messages: the history.
        index: which message; negative ones count from the end.
        content: text or content parts.
        unknown_parts: as for `Message.from_dict`.

    Raises:
        IndexError: there is no such message.
        TypeError, ValueError: the content is not one a message can have.
    """
    place = as_index(index)
    if not -len(messages) <= place < len(messages):
        raise IndexError(f"there is no message {place}: the conversation has {len(messages)}")
    place %= len(messages)
    frozen = as_content(content)
    check_parts(frozen, unknown_parts)
    return (*messages[:place], replace(messages[place], content=frozen, thinking="", tool_calls=()))


def without_old_thinking(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without what was thought before the last turn. Within a turn, between calls of tools, it stays."""
    start = len(messages) - len(_last_turn(messages))
    return tuple(
        replace(message, thinking="") if message.thinking and index < start else message
        for index, message in enumerate(messages)
    )
