"""The chat in a terminal: line editing, history, commands, and answers that Ctrl-C stops."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from causerie.cli.commands import Commands, parse
from causerie.cli.printing import AnswerPrinter
from causerie.cli.replies import Replies, overflow_text
from causerie.cli.text import one_line
from causerie.errors import CauserieError, ContextOverflowError, NativeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit import PromptSession

    from causerie.cli.branches import Branches

__all__ = ["require", "talk"]


def require() -> None:
    """Say now, not after a model has been loaded, that the terminal's libraries are missing.

    Raises:
        UnsupportedError: they are.
    """
    try:
        import prompt_toolkit  # noqa: F401
    except ImportError:
        raise UnsupportedError(
            'the interactive chat needs prompt_toolkit: pip install "causerie[cli]" (or give a PROMPT)'
        ) from None


def data_dir() -> Path:
    """The user's folder for what is not a cache: the history of lines."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "causerie"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "causerie"
    xdg = Path(os.environ.get("XDG_DATA_HOME", ""))  # a relative one is to be ignored, says its specification
    return (xdg if xdg.is_absolute() else Path.home() / ".local" / "share") / "causerie"


def talk(branches: Branches, *, model: str, seed: int | None = None) -> int:
    """Read lines and answer them until the user leaves; returns the exit code.

    Args:
        branches: the conversation, and what may branch off it.
        model: the model's name.
        seed: of the first answer.
    """
    from causerie.cli.line_editor import build

    editor = build(_history_file())
    replies = Replies(branches, write=AnswerPrinter(sys.stdout, sys.stdout), say=_say, seed=seed)
    commands = Commands(branches, replies, model=model, say=_say)
    n_ctx = branches.engine.n_ctx
    _say(f"{model}, {n_ctx} tokens of context. Enter sends, Alt+Enter starts a new line; /help for more.")
    for line in _lines(editor, branches):
        command = parse(line)
        try:
            if command is None:
                replies.ask(line)
            elif not commands.run(*command):
                break
        except NativeError:
            raise  # the context may be unusable, and so would be every further turn
        except ContextOverflowError as error:
            more = " (/reset starts over)" if branches.current.n_turns else ""
            _say(overflow_text(error) + more)
        except CauserieError as error:
            _say(f"Error: {one_line(error)}")
        except KeyboardInterrupt:  # between two answers
            _say("")
    return 0


def _lines(editor: PromptSession[str], branches: Branches) -> Iterator[str]:
    """What the user enters, without what is blank. The prompt says which branch it is for, where there are several."""
    while True:
        try:
            line = editor.prompt(f"{branches.current.number}> " if len(branches.all) > 1 else "> ")
        except KeyboardInterrupt:
            _say("Ctrl-D or /quit leaves.")
            continue
        except EOFError:
            return
        if line.strip():
            yield line


def _say(text: str) -> None:
    print(text, flush=True)


def _history_file() -> Path | None:
    """The history file, readable by its owner alone; None where there can be none."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: no home folder
        folder = data_dir()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "history"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        return path
    return None
