"""The command in processes of its own, with the real model, and its parts in this one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from cli_command import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

    from causerie.cli.branches import Branches
    from causerie.cli.commands import Commands
    from causerie.cli.replies import Replies
    from causerie.llama.model import Model


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No file of the user but the model cache is read or written."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CAUSERIE_") or k == "CAUSERIE_CACHE_DIR"}
    return {
        **kept,
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONUTF8": "1",
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        # Threads that wait for each other by spinning make a busy machine slower by far more than the load.
        "OMP_THREAD_LIMIT": "1",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run `causerie ARGUMENTS` to its end; stdin is empty unless `input` is given."""

    def execute(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        options.setdefault("input", "")
        env = {**environment, **options.pop("env", {})}
        return subprocess.run(
            [*COMMAND, *arguments], capture_output=True, encoding="utf-8", env=env, cwd=tmp_path, timeout=300, **options
        )

    return execute


@pytest.fixture(scope="session")
def model(smollm2_path: Path) -> Iterator[Model]:
    """SmolLM2-135M-Instruct, Q4_1."""
    from causerie.llama.model import Model

    with Model(smollm2_path) as loaded:
        yield loaded


@dataclass
class Chat:
    """The interactive chat without its line editor.

    Attributes:
        branches, replies, commands: its parts.
        written: the pieces of answers.
        said: the lines that were printed besides them.
        on_piece: called with each piece of an answer as it comes.
    """

    branches: Branches
    replies: Replies = field(init=False)
    commands: Commands = field(init=False)
    written: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    on_piece: Callable[[str], object] = lambda _: None

    def write(self, piece: str, _kind: str) -> None:
        self.written.append(piece)
        self.on_piece(piece)

    def run(self, line: str) -> list[str]:
        """Enter a line; returns the lines that were printed besides the answer."""
        from causerie.cli.commands import parse

        self.written.clear()
        self.said.clear()
        command = parse(line)
        if command is None:
            self.replies.ask(line)
        else:
            self.commands.run(*command)
        return [line for text in self.said if text for line in text.split("\n")]

    @property
    def answer(self) -> str:
        """The answer that was printed last."""
        return "".join(self.written)

    @property
    def contents(self) -> list[str]:
        """What is in the current branch."""
        return [str(message.content) for message in self.branches.current.conversation.messages]


Open = Callable[..., Chat]


@pytest.fixture
def open_chat(model: Model) -> Iterator[Open]:
    """Start chats that always take the likeliest token, with answers of 12 tokens at most."""
    from causerie.cli.branches import Branches
    from causerie.cli.commands import Commands
    from causerie.cli.replies import Replies
    from causerie.conversation import Engine

    engines: list[Engine] = []

    def make(
        *,
        n_ctx: int = 1024,
        system: str | None = None,
        overflow: str = "error",
        seed: int | None = None,
        **sampling: object,
    ) -> Chat:
        options = {"temperature": 0, "max_tokens": 12, **sampling}
        engine = Engine(model, n_ctx=n_ctx, n_threads=1, sampling=options)
        engines.append(engine)
        chat = Chat(Branches(engine, system=system, overflow=overflow))
        chat.replies = Replies(chat.branches, write=chat.write, say=chat.said.append, seed=seed)
        chat.commands = Commands(chat.branches, chat.replies, model="tiny", say=chat.said.append)
        return chat

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def chat(open_chat: Open) -> Chat:
    """One such chat."""
    return open_chat()
