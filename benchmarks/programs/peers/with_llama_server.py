"""A task done with llama-server: as many slots as the task has parallel conversations, streaming over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chat_completions import MessagesChat
from task import Figures, Task, main

if TYPE_CHECKING:
    from collections.abc import Callable


class Chat(MessagesChat):
    """A history; the server finds the slot that begins alike."""

    server: LlamaServer

    def save(self, path: Path) -> None:
        """The only slot's cache, by the server; the history stays here."""
        self.server.slot("save", path)
        self.server.saved = self.messages


class LlamaServer:
    """A server of one's own, on a free port."""

    concurrent = True
    forks = False

    def __init__(self, task: Task, figures: Figures) -> None:
        self.task, self.folder = task, None
        self.saved: list[dict[str, Any]] = []
        with figures.timed("load"):
            self.start()

    def start(self, folder: Path | None = None) -> None:
        """Start it, and wait until it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        task = self.task
        command: list[object] = [
            Path(task.tools or "", "llama-server"), "-m", task.model, "--host", "127.0.0.1", "--port", self.port,
            "-np", task.parallel, "-c", task.n_ctx, "-t", task.threads, "-tb", task.threads, "--no-ui",
        ]  # fmt: skip
        if task.resume is not None:
            command += ["--slot-save-path", folder or self.saving_folder()]
        self.process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.pid = self.process.pid
        while not self.answers():
            if self.process.poll() is not None:
                raise SystemExit(f"llama-server ended with {self.process.returncode}")
            time.sleep(0.005)

    def answers(self) -> bool:
        """Whether the model is loaded."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as answer:
                return bool(json.load(answer)["status"] == "ok")
        except (OSError, urllib.error.URLError):
            return False

    def saving_folder(self) -> Path:
        """Where slots are saved to."""
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        return Path(self.folder.name)

    def ask(self, body: dict[str, Any], each: Callable[[Any], None]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            body = {**body, "stream_options": {"include_usage": True}}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise SystemExit(f"llama-server: {answer.status} {answer.read()[:500]!r}")
            for line in answer:
                if line.startswith(b"data: {"):
                    each(json.loads(line[6:]))
        finally:
            connection.close()

    def chat(self, system: str | None) -> Chat:
        made = Chat(self.task, system, self.ask)
        made.server = self
        return made

    def slot(self, action: str, path: Path) -> None:
        """Save or restore slot 0."""
        assert self.folder is not None
        kept = Path(self.folder.name, "slot.bin")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/slots/0?action={action}",
            json.dumps({"filename": kept.name}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            answer.read()
        if action == "save":
            path.symlink_to(kept)

    def again(self, _path: Path) -> Callable[[Path], Chat]:
        """Start anew; gives what reads a saved conversation."""
        self.stop()
        assert self.folder is not None
        self.start(Path(self.folder.name))

        def load(path: Path) -> Chat:
            self.slot("restore", path)
            chat = self.chat(None)
            chat.messages = self.saved
            return chat

        return load

    def about(self) -> dict[str, Any]:
        return {}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def close(self) -> None:
        self.stop()
        if self.folder is not None:
            self.folder.cleanup()


if __name__ == "__main__":
    main(LlamaServer)
