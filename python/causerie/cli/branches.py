"""The branches of one chat: conversations that began as one, numbered, one of which is talked to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.cli.transcript import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causerie.chat.messages import Message
    from causerie.conversation import Conversation, Engine, Reply
    from causerie.conversation.overflow import Overflow

__all__ = ["Branch", "Branches"]


@dataclass
class Branch:
    """One of them.

    Attributes:
        number: what people call it.
        conversation: what is said in it; it is replaced as a whole where a change may yet fail.
        forgotten: messages that had to make room for later ones, oldest first; transcripts still have them.
    """

    number: int
    conversation: Conversation
    forgotten: tuple[Message, ...] = ()

    @property
    def system(self) -> str | None:
        """The system text."""
        first = self.conversation.messages[:1]
        return _text(first[0]) if first and first[0].role == "system" else None

    @property
    def said(self) -> tuple[Message, ...]:
        """The messages without the system text. People count them from 1."""
        messages = self.conversation.messages
        return messages if self.system is None else messages[1:]

    @property
    def n_turns(self) -> int:
        """How many questions there are."""
        return sum(message.role == "user" for message in self.conversation.messages)

    @property
    def last_question(self) -> str:
        """What was asked last; "" if nothing was."""
        return next((_text(m) for m in reversed(self.conversation.messages) if m.role == "user"), "")


class Branches:
    """All branches of a chat. Nothing here generates; a branch is changed while nothing is generated in it.

    Args:
        engine: serves them.
        system: what the model is told before the conversation.
        overflow: as for `Engine.conversation`.
    """

    def __init__(self, engine: Engine, *, system: str | None = None, overflow: Overflow = "error") -> None:
        self.engine = engine
        self._overflow = overflow
        self._reasons: dict[int, tuple[Message, str]] = {}  # by identity: equal messages may have ended differently
        self.all: dict[int, Branch] = {}
        self.current = self.all[1] = Branch(1, self._conversation(1, (system or "").strip()))

    def _conversation(self, number: int, system: str, said: Iterable[Message] = ()) -> Conversation:
        return self.engine.conversation(system or None, messages=said, overflow=self._overflow, name=_name(number))

    def fork(self) -> Branch:
        """A new branch off the current one, which becomes the current one."""
        number = max(self.all) + 1
        branch = Branch(number, self._forked(number), self.current.forgotten)
        self.all[number] = self.current = branch
        return branch

    def attempt(self) -> Conversation:
        """A copy of the current conversation, to be changed, and then adopted or closed."""
        return self._forked(self.current.number)

    def _forked(self, number: int) -> Conversation:
        conversation = self.current.conversation.fork()
        conversation.name = _name(number)
        return conversation

    def adopt(self, conversation: Conversation) -> None:
        """Let a conversation take the place of the current branch's, which is closed."""
        before, self.current.conversation = self.current.conversation, conversation
        before.close()

    def go(self, number: int) -> Branch:
        """Make another branch the current one.

        Raises:
            LookupError: there is none of that number.
        """
        self.current = self.all[number]
        return self.current

    def set_system(self, text: str) -> None:
        """Replace the system text of the current branch; what was said stays.

        Raises:
            TemplateError: the chat template refuses it; nothing has changed.
        """
        self.adopt(self._conversation(self.current.number, text.strip(), self.current.said))

    def reset(self) -> None:
        """Forget what was said in the current branch, not its system text."""
        self.current.conversation.reset()
        self.current.forgotten = ()

    def note_end(self, reply: Reply) -> None:
        """Remember how an answer ended, for transcripts."""
        if reply.message is not None:
            self._reasons[id(reply.message)] = reply.message, reply.finish_reason

    def note_forgotten(self, expected: Sequence[Message]) -> int:
        """Note which of the messages that were to stay had to make room; returns how many of them are questions."""
        here = {id(message) for message in self.current.conversation.messages}
        gone = tuple(message for message in expected if id(message) not in here)
        self.current.forgotten += gone
        return sum(message.role == "user" for message in gone)

    def transcript(self) -> list[Entry]:
        """The current branch for people: from its beginning, with what the model has forgotten."""
        branch = self.current
        system = [] if branch.system is None else [Entry("system", branch.system)]
        return [*system, *map(self._entry, branch.forgotten), *self.said()]

    def said(self) -> list[Entry]:
        """What the model remembers of the current branch, without the system text."""
        return list(map(self._entry, self.current.said))

    def _entry(self, message: Message) -> Entry:
        if message.role != "assistant":
            return Entry(message.role, _text(message))
        _, reason = self._reasons.get(id(message), (message, None))
        return Entry(message.role, _text(message).strip(), reason)


def _name(number: int) -> str:
    return f"branch {number}"


def _text(message: Message) -> str:
    return message.content if isinstance(message.content, str) else ""
