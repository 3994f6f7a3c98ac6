"""What the Python programs of all systems have in common: a task comes in as JSON, its timings go out as JSON.

A task (see benchmarks/README.md) names conversations, and a system's program gives an object with `chat(system)`, whose
chats have `say`. Everything is timed here, so that every system is timed in the same way.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class UnsupportedTaskError(Exception):
    """The system has nothing that does what the task asks for."""


@dataclass
class Task:
    """A task as it was read; fields as in benchmarks/README.md."""

    model: str
    threads: int
    n_ctx: int
    parallel: int
    conversations: list[dict[str, Any]]
    order: str = "together"
    max_tokens: int = 128
    sampling: dict[str, float] = field(default_factory=lambda: {"temperature": 0})
    schema: dict[str, Any] | None = None
    branches: list[str] = field(default_factory=list)
    resume: str | None = None
    binding: dict[str, Any] | None = None
    tools: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def schema_of(self, turn: int) -> dict[str, Any] | None:
        """The schema that a turn's reply follows: the first turn of each conversation is free."""
        return self.schema if turn else None


class Clock:
    """Seconds since the start of what is measured; negative before."""

    def __init__(self) -> None:
        self.zero = float("inf")

    def start(self) -> None:
        """Now is zero."""
        self.zero = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.zero


class Figures(dict[str, Any]):
    """What is printed in the end."""

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Keep the seconds of a block."""
        begun = time.perf_counter()
        yield
        self[name] = time.perf_counter() - begun


def resident_bytes(pid: int | str = "self") -> int | None:
    """Resident memory of a process; None where the system does not tell (elsewhere than on Linux)."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
    return 1024 * int(found[1]) if found else None


class Run:
    """Has a system do a task."""

    def __init__(self, task: Task, system: Any) -> None:
        self.task, self.system, self.clock = task, system, Clock()
        self.replies: list[dict[str, Any]] = []

    def say(self, chat: Any, text: str, i: int, turn: int, max_tokens: int | None = None, signal: Any = None) -> None:
        """One turn, with the time of each piece; `signal`: (pieces, event to set when there are as many)."""
        times: list[float] = []

        def piece() -> None:
            times.append(self.clock())
            if signal is not None and len(times) == signal[0]:
                signal[1].set()

        asked = self.clock()
        tokens, finish = chat.say(text, piece, max_tokens or self.task.max_tokens, self.task.schema_of(turn))
        self.replies.append(
            {"conversation": i, "turn": turn, "asked": asked, "times": times, "tokens": tokens, "finish": finish}
        )

    def conversation(self, i: int, spec: dict[str, Any], chat: Any, signal: Any = None) -> None:
        """All turns of one conversation."""
        for turn, text in enumerate(spec["turns"]):
            self.say(chat, text, i, turn, spec.get("max_tokens"), signal)

    def in_turn(self, chats: list[Any]) -> None:
        """Each conversation's first turn, then each one's second turn, and so on."""
        self.clock.start()
        specs = self.task.conversations
        for turn in range(max(len(spec["turns"]) for spec in specs)):
            for i, spec in enumerate(specs):
                if turn < len(spec["turns"]):
                    self.say(chats[i], spec["turns"][turn], i, turn)

    def one_after_another(self, chats: list[Any]) -> None:
        """For systems that do one thing at a time."""
        if any(spec.get("after_tokens") for spec in self.task.conversations):
            raise UnsupportedTaskError("it answers one conversation at a time")
        self.clock.start()
        for i, spec in enumerate(self.task.conversations):
            self.conversation(i, spec, chats[i])

    def together(self, chats: list[Any]) -> None:
        """All at the same moment; those with "after_tokens" when the first one has got as many."""
        gate = threading.Barrier(len(chats) + 1)
        specs = self.task.conversations
        late = [spec.get("after_tokens", 0) for spec in specs]
        begin = threading.Event()

        def run(i: int) -> None:
            gate.wait()
            if late[i]:
                begin.wait()
            self.conversation(i, specs[i], chats[i], (max(late), begin) if i == 0 and max(late) else None)

        with ThreadPoolExecutor(len(chats)) as pool:
            futures = [pool.submit(run, i) for i in range(len(chats))]
            self.clock.start()
            gate.wait()
            for future in futures:
                future.result()

    def branched(self, chats: list[Any], figures: Figures) -> None:
        """Branches of the first conversation, each with a question of its own."""
        self.one_after_another(chats)
        self.replies.clear()
        self.clock.start()
        branches = chats[0].branches(len(self.task.branches))
        if self.system.forks:  # others copy a list of messages
            figures["branch"] = self.clock()
        questions = list(enumerate(self.task.branches))
        if not self.system.concurrent:
            for i, text in questions:
                self.say(branches[i], text, i, 0)
            return
        with ThreadPoolExecutor(len(branches)) as pool:
            for future in [pool.submit(self.say, branches[i], text, i, 0) for i, text in questions]:
                future.result()

    def all(self, figures: Figures) -> None:
        """What the task asks for."""
        task = self.task
        chats = [self.system.chat(spec.get("system")) for spec in task.conversations]
        if task.branches:
            self.branched(chats, figures)
        elif task.order == "in turn":
            self.in_turn(chats)
        elif self.system.concurrent:
            self.together(chats)
        else:
            self.one_after_another(chats)
        figures["replies"] = sorted(self.replies, key=lambda r: (r["conversation"], r["turn"]))
        figures["resident"] = resident_bytes(self.system.pid)
        if task.resume is not None:
            self.resumed(chats[0], figures)

    def resumed(self, chat: Any, figures: Figures) -> None:
        """Save the first conversation, and go on with it in a system that knows nothing."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "saved.bin")
            with figures.timed("save"):
                chat.save(path)
            figures["saved_bytes"] = path.stat().st_size
            fresh = self.system.again(path)
            self.system.chat(None).say("Hello", lambda: None, 4, None)
            self.replies.clear()
            self.clock.start()
            with figures.timed("restore"):
                chat = fresh(path)
            self.say(chat, self.task.resume, 0, 0, 1)
            figures["resumed_first_token"] = self.replies[0]["times"][0]


def best(call: Callable[[], object], times: int) -> float:
    """Seconds of the quickest of so many calls."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return min(found)


def main(system_type: Callable[[Task, Figures], Any]) -> None:
    """Read a task from stdin, do it, print what was measured as the last line."""
    task = Task(**json.load(sys.stdin))
    figures = Figures()
    try:
        system = system_type(task, figures)
        try:
            if task.binding is not None:
                figures["binding"] = system.binding(task.binding)
            else:
                system.chat(None).say("Hello", lambda: None, 8, None)  # warms up
                Run(task, system).all(figures)
            figures["about"] = system.about()
        finally:
            system.close()
    except UnsupportedTaskError as reason:
        figures = Figures(unsupported=str(reason))
    print(json.dumps(figures), flush=True)
