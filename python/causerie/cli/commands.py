"""The commands of the interactive chat: lines that begin with a slash."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.cli import transcript
from causerie.cli.figures import figures
from causerie.cli.text import count, one_line, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.cli.branches import Branches
    from causerie.cli.replies import Replies

__all__ = ["COMMANDS", "Commands", "parse"]


@dataclass(frozen=True)
class Command:
    """How a command is written, and what it does."""

    usage: str
    description: str


COMMANDS = {
    "/help": Command("/help", "this list"),
    "/messages": Command("/messages", "what was said, numbered"),
    "/rewind": Command("/rewind [N]", "take back the last question, or the last N, with what answered them"),
    "/regen": Command("/regen", "answer the last question anew"),
    "/resume": Command("/resume", "go on with an answer that was cut or stopped"),
    "/edit": Command("/edit [N] TEXT", "ask the last question, or replace message N, in other words; answer it anew"),
    "/fork": Command("/fork", "branch off: a copy of the conversation, to go on in another way"),
    "/branch": Command("/branch [N]", "go to branch N; without N list the branches"),
    "/reset": Command("/reset", "forget the conversation; the system text stays"),
    "/system": Command("/system [TEXT]", "replace the system text; without TEXT show it"),
    "/save": Command("/save PATH", "write the conversation to a file: Markdown, or JSON if it ends in .json"),
    "/stats": Command("/stats", "figures of the last answer, and of the cache"),
    "/cache": Command("/cache", "which parts of the cache the branches hold, and which of them they share"),
    "/quit": Command("/quit", "leave (so does Ctrl-D)"),
}
_KEYS = "Enter sends; Alt+Enter starts a new line; Ctrl-C stops an answer; begin with a space to send a text with a /"


def parse(line: str) -> tuple[str, str] | None:
    """("/name", "the rest") of a command, None for a message to the model."""
    if not line.startswith("/"):
        return None
    name = line[: min(end for end in (line.find(" "), line.find("\n"), len(line)) if end >= 0)]
    return name, line[len(name) :].strip()


def _number(text: str) -> int | None:
    """A whole number as people write it, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


class Commands:
    """Runs commands on the branches of a chat.

    Args:
        branches: the chat's.
        replies: gets answers.
        model: the model's name, for transcripts.
        say: prints one line.
    """

    def __init__(self, branches: Branches, replies: Replies, *, model: str, say: Callable[[str], object]) -> None:
        self._branches = branches
        self._replies = replies
        self._model = model
        self._say = say
        self._actions: dict[str, Callable[[str], object]] = {
            "/help": self._help,
            "/messages": self._messages,
            "/rewind": self._rewind,
            "/regen": lambda _: replies.regenerate(),
            "/resume": lambda _: replies.resume(),
            "/edit": self._edit,
            "/fork": self._fork,
            "/branch": self._branch,
            "/reset": self._reset,
            "/system": self._system,
            "/save": self._save,
            "/stats": self._stats,
            "/cache": self._cache,
        }

    def run(self, name: str, rest: str) -> bool:
        """Run one command; False: leave the chat.

        Raises:
            CauserieError: no answer could be had; nothing has changed.
        """
        if name in {"/quit", "/exit"}:
            return False
        action = self._actions.get(name)
        if action is None:
            self._say(f"Unknown command {name}: /help lists the commands.")
        else:
            action(rest)
        return True

    def _usage(self, name: str) -> None:
        self._say(f"Usage: {COMMANDS[name].usage}")

    def _help(self, _rest: str) -> None:
        width = max(len(command.usage) for command in COMMANDS.values())
        for command in COMMANDS.values():
            self._say(f"{command.usage:<{width}}  {command.description}")
        self._say(_KEYS + ".")

    # ---- what was said ----

    def _messages(self, _rest: str) -> None:
        branch = self._branches.current
        width = shutil.get_terminal_size().columns
        if branch.forgotten:
            self._say(f"({count(len(branch.forgotten), 'older message')} had to make room: /save still has them)")
        for number, entry in enumerate(self._branches.said(), 1):
            self._say(shorten(f"{number:>3} {entry.role + ':':<10} {entry.content}", width))
        if not branch.said:
            self._say("Nothing was said yet.")

    def _rewind(self, rest: str) -> None:
        n = _number(rest or "1")
        if not n:
            self._usage("/rewind")
            return
        branch = self._branches.current
        if n > branch.n_turns:
            self._say(f"Cannot take back {count(n, 'question')} of {branch.n_turns}.")
            return
        branch.conversation.rewind(n)
        last = f"the last one is now: {branch.last_question}" if branch.n_turns else "none is left."
        self._say(shorten(f"Took back {count(n, 'question')}; {last}", shutil.get_terminal_size().columns))

    def _edit(self, rest: str) -> None:
        first, *more = rest.split(maxsplit=1)[:2] or [""]
        branch = self._branches.current
        offset = len(branch.conversation.messages) - len(branch.said)
        number = _number(first)
        if number is not None:
            text = more[0] if more else ""
            index = offset + number - 1
            if not 1 <= number <= len(branch.said):
                self._say(f"There is no message {number}: /messages lists them.")
                return
        else:
            text = rest
            roles = [message.role for message in branch.conversation.messages]
            index = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else -1
        if not text:
            self._usage("/edit")
        elif index < 0:
            self._say("There is no question yet that could be edited.")
        else:
            self._replies.edit(index, text)

    def _reset(self, _rest: str) -> None:
        self._branches.reset()
        self._say("The conversation is forgotten.")

    def _system(self, text: str) -> None:
        if text:
            self._branches.set_system(text)
            self._say("The system text is replaced.")
        else:
            self._say(self._branches.current.system or "There is no system text: /system TEXT sets one.")

    def _save(self, path: str) -> None:
        if not path:
            self._usage("/save")
            return
        try:
            written = transcript.save(path, self._branches.transcript(), model=self._model)
        except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL; RuntimeError: ~nobody
            self._say(f"Not saved: {one_line(error)}")
        else:
            self._say(f"Saved to {written}")

    # ---- branches ----

    def _fork(self, _rest: str) -> None:
        before = self._branches.current.number
        branch = self._branches.fork()
        self._say(f"This is branch {branch.number}, a copy of branch {before}; /branch {before} goes back.")

    def _branch(self, rest: str) -> None:
        if not rest:
            self._list_branches()
            return
        number = _number(rest)
        if number is None:
            self._usage("/branch")
        elif number not in self._branches.all:
            self._say(f"There is no branch {number}: /branch lists them, /fork makes one.")
        else:
            branch = self._branches.go(number)
            last = branch.last_question or "nothing was asked yet"
            self._say(shorten(f"This is branch {number}: {last}", shutil.get_terminal_size().columns))

    def _list_branches(self) -> None:
        width = shutil.get_terminal_size().columns
        for branch in self._branches.all.values():
            here = "*" if branch is self._branches.current else " "
            turns = count(branch.n_turns, "question")
            self._say(shorten(f"{here} {branch.number:>2}  {turns:<12}  {branch.last_question}", width))

    # ---- figures ----

    def _stats(self, _rest: str) -> None:
        for line in figures(self._branches):
            self._say(line)

    def _cache(self, _rest: str) -> None:
        from causerie.engine import cache_picture

        self._say(cache_picture.text(self._branches.engine.cache_map(), shutil.get_terminal_size().columns))
