"""Gets and prints answers in the current branch: a new one, another one, the rest of one, one to an edited question.

Whatever fails, or is stopped before the answer begins, leaves the branch as it was.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from causerie.cli.answer import answer
from causerie.errors import CauserieError, ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causerie.chat.messages import Message
    from causerie.cli.branches import Branches
    from causerie.conversation import Conversation, Reply, Stream

__all__ = ["Replies", "cut_note", "overflow_text"]

_N_SEEDS = 2**32 - 1  # the last one means "choose one" to llama.cpp


def cut_note(reply: Reply, conversation: Conversation, n_ctx: int) -> str | None:
    """Why an answer is not whole; None if it is, or if the user stopped it."""
    if reply.finish_reason != "length":
        return None
    if conversation.is_context_full:
        return f"the answer was cut: the context of {n_ctx} tokens is full (--n-ctx)"
    return f"the answer was cut after {reply.usage.completion_tokens} tokens (--max-tokens)"


def overflow_text(error: ContextOverflowError) -> str:
    """What a person can do about a question that does not fit."""
    found = f"needs {error.needed} of {error.available} tokens"
    if error.kind == "too_long":
        return f"the question {found}: shorten it, or use a larger --n-ctx"
    return f"the conversation {found} with this question: use --overflow trim, or a larger --n-ctx"


class Replies:
    """Answers in the current branch.

    Args:
        branches: the chat's.
        write: prints a piece of an answer, given its kind ("text", "thinking").
        say: prints a line.
        seed: of the first answer; each further one adds one to it. None: all are random.
    """

    def __init__(
        self,
        branches: Branches,
        *,
        write: Callable[[str, str], object],
        say: Callable[[str], object],
        seed: int | None = None,
    ) -> None:
        self._branches = branches
        self._write = write
        self._say = say
        self._seed = seed

    def ask(self, question: str) -> None:
        """Ask, and print the answer; without one, the question is withdrawn."""
        chat = self._branches.current.conversation
        before = chat.messages
        try:
            reply = self._answer(chat, lambda options: chat.stream(question.strip(), **options))
        except BaseException:
            with contextlib.suppress(CauserieError):
                _withdraw(chat)
            raise
        if reply.message is None:
            _withdraw(chat)
        self._tell(reply, "the question is withdrawn")
        self._note(reply, before)

    def regenerate(self) -> None:
        """Print another answer to the last question, in place of the one there is."""
        before = self._branches.current.conversation.messages
        if before[-1:] == () or before[-1].role != "assistant":
            self._say("There is no answer yet that could be given anew.")
            return
        old, attempt = before[-1], self._branches.attempt()
        reply = self._attempted(attempt, lambda options: attempt.stream_regenerate(**options))
        self._tell(reply, "the answer stays as it was")
        if reply.message is not None:
            if reply.message == old:
                self._say("[the same answer again: a higher --temperature gives others]")
            self._note(reply, before[:-1])

    def resume(self) -> None:
        """Print how the last answer goes on; both parts become one."""
        chat = self._branches.current.conversation
        before = chat.messages
        if before[-1:] == () or before[-1].role != "assistant":
            self._say("There is no answer yet that could go on.")
            return
        self._write("...", "text")
        reply = self._answer(chat, lambda options: chat.stream_resume(**options))
        self._tell(reply, "nothing was added")
        if not reply.usage.completion_tokens and reply.finish_reason == "stop":
            self._say("[the model has nothing to add]")
        self._note(reply, before[:-1])

    def edit(self, index: int, content: str) -> None:
        """Replace a message, drop what came behind it, and, if it was a question, print the answer to the new one.

        Args:
            index: its index in the conversation's messages, which exists.
            content: what takes the place of its text.
        """
        chat = self._branches.current.conversation
        before = chat.messages
        if before[index].role != "user":
            chat.edit(index, content)
            self._say("The answer is replaced, and what came behind it dropped; /resume lets the model go on with it.")
            return
        attempt = self._branches.attempt()

        def begin(options: dict[str, int]) -> Stream:
            attempt.edit(index, content)
            return attempt.stream_respond(**options)

        reply = self._attempted(attempt, begin)
        self._tell(reply, "nothing is changed")
        if reply.message is not None:
            self._note(reply, before[:index])

    # ---- what they have in common ----

    def _answer(self, chat: Conversation, begin: Callable[[dict[str, int]], Stream]) -> Reply:
        options: dict[str, int] = {}
        if self._seed is not None:
            options["seed"] = self._seed
            self._seed = (self._seed + 1) % _N_SEEDS
        return answer(chat, lambda: begin(options), self._write)

    def _attempted(self, attempt: Conversation, begin: Callable[[dict[str, int]], Stream]) -> Reply:
        """An answer in a copy of the current conversation, which takes its place if the answer begins."""
        try:
            reply = self._answer(attempt, begin)
        except BaseException:
            attempt.close()
            raise
        if reply.message is None:
            attempt.close()
        else:
            self._branches.adopt(attempt)
        return reply

    def _tell(self, reply: Reply, otherwise: str) -> None:
        """End the answer's line, and say if it was stopped."""
        if reply.finish_reason != "cancelled":
            self._say("")
        elif reply.usage.completion_tokens:
            self._say(" [stopped]")
        else:
            self._say(f"[stopped before the answer began: {otherwise}]")

    def _note(self, reply: Reply, expected: Sequence[Message]) -> None:
        """Say what else became of it: it was cut, or messages made room for it."""
        self._branches.note_end(reply)
        chat = self._branches.current.conversation
        if note := cut_note(reply, chat, self._branches.engine.n_ctx):
            self._say(f"[{note}]")
        if dropped := self._branches.note_forgotten(expected):
            turns = "question was" if dropped == 1 else f"{dropped} questions were"
            self._say(
                f"[the context is full: the oldest {turns} dropped, with what answered them; /save still has all]"
            )


def _withdraw(chat: Conversation) -> None:
    """Take back a question that has no answer."""
    if chat.messages[-1:] and chat.messages[-1].role == "user":
        chat.rewind()
