"""The commands of the interactive chat: lines that begin with a slash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.cli import transcript
from causerie.cli.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.cli.session import Session

__all__ = ["COMMANDS", "Commands", "parse"]


@dataclass(frozen=True)
class Command:
    """How a command is written, and what it does."""

    usage: str
    description: str


COMMANDS = {
    "/help": Command("/help", "this list"),
    "/reset": Command("/reset", "forget the conversation; the system text stays"),
    "/system": Command("/system [TEXT]", "replace the system text; without TEXT show it"),
    "/save": Command("/save PATH", "write the conversation to a file: Markdown, or JSON if it ends in .json"),
    "/quit": Command("/quit", "leave (so does Ctrl-D)"),
}
_KEYS = "Enter sends; Alt+Enter starts a new line; Ctrl-C stops an answer; begin with a space to send a text with a /"


def parse(line: str) -> tuple[str, str] | None:
    """("/name", "the rest") of a command, None for a message to the model."""
    if not line.startswith("/"):
        return None
    name, _, rest = line.replace("\n", " \n", 1).partition(" ")
    return name, rest.strip()


class Commands:
    """Runs commands on a session.

    Args:
        session: the conversation.
        model: the model's name, for transcripts.
        say: prints one line.
    """

    def __init__(self, session: Session, *, model: str, say: Callable[[str], object]) -> None:
        self._session = session
        self._model = model
        self._say = say
        self._actions: dict[str, Callable[[str], bool]] = {
            "/help": self._help,
            "/reset": self._reset,
            "/system": self._system,
            "/save": self._save,
            "/quit": lambda _: False,
            "/exit": lambda _: False,
        }

    def run(self, name: str, rest: str) -> bool:
        """Run one command; False: leave the chat."""
        action = self._actions.get(name)
        if action is None:
            self._say(f"Unknown command {name}: /help lists the commands.")
            return True
        return action(rest)

    def _help(self, _rest: str) -> bool:
        width = max(len(command.usage) for command in COMMANDS.values())
        for command in COMMANDS.values():
            self._say(f"{command.usage:<{width}}  {command.description}")
        self._say(_KEYS + ".")
        return True

    def _reset(self, _rest: str) -> bool:
        self._session.reset()
        self._say("The conversation is forgotten.")
        return True

    def _system(self, text: str) -> bool:
        if text:
            self._session.system = text
            self._say("The system text is replaced.")
        else:
            self._say(self._session.system or "There is no system text: /system TEXT sets one.")
        return True

    def _save(self, path: str) -> bool:
        if not path:
            self._say(f"Usage: {COMMANDS['/save'].usage}")
            return True
        try:
            written = transcript.save(path, self._session.messages, model=self._model)
        except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL; RuntimeError: ~nobody
            self._say(f"Not saved: {one_line(error)}")
        else:
            self._say(f"Saved to {written}")
        return True
