"""The line editor of the interactive chat. The only file that needs prompt_toolkit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from causerie.cli.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

__all__ = ["build"]


class _History(FileHistory):
    """A history file that may become unwritable: the chat goes on without it."""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


class _CommandCompleter(Completer):
    """Completes the names of commands, at the start of the input only."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        typed = document.text_before_cursor
        if typed.startswith("/"):
            for name, command in COMMANDS.items():
                if name.startswith(typed):
                    yield Completion(name, -len(typed), display_meta=command.description)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        state = event.current_buffer.complete_state
        if state is not None and state.current_completion is not None:
            event.current_buffer.complete_state = None  # the completion is taken, and can be seen before it is sent
        else:
            event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


def build(history: Path | None, *, source: Input | None = None, screen: Output | None = None) -> PromptSession[str]:
    """A line editor; `prompt()` returns one input, perhaps of several lines.

    Args:
        history: the file to keep inputs in; None: they are forgotten at the end.
        source: where keys come from; None: the terminal.
        screen: where it draws; None: the terminal.
    """
    store: History = InMemoryHistory() if history is None else _History(str(history))
    return PromptSession(
        "> ",
        multiline=True,
        prompt_continuation="  ",
        history=store,
        completer=_CommandCompleter(),
        complete_while_typing=False,
        key_bindings=_keys(),
        input=source,
        output=screen,
    )
