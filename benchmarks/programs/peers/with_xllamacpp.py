"""A task done with xllamacpp: llama-server's engine inside the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chat_completions import MessagesChat
from task import Figures, Task, UnsupportedTaskError, main

if TYPE_CHECKING:
    from collections.abc import Callable


class XLlamaCpp:
    """A `Server`."""

    concurrent = True
    forks = False
    pid = "self"

    def __init__(self, task: Task, figures: Figures) -> None:
        import xllamacpp

        if task.resume is not None:
            raise UnsupportedTaskError("its Python API has no call that saves a conversation")
        self.xllamacpp, self.task = xllamacpp, task
        with figures.timed("load"):
            params = xllamacpp.CommonParams()
            params.model.path = task.model
            params.n_ctx = task.n_ctx
            params.n_parallel = task.parallel
            params.cpuparams.n_threads = task.threads
            params.cpuparams_batch.n_threads = task.threads
            params.verbosity = 0
            self.server = xllamacpp.Server(params)

    def ask(self, body: dict[str, Any], each: Callable[[Any], None]) -> None:
        self.server.handle_chat_completions({**body, "stream_options": {"include_usage": True}}, each)

    def chat(self, system: str | None) -> MessagesChat:
        return MessagesChat(self.task, system, self.ask)

    def about(self) -> dict[str, Any]:
        return {"version": self.xllamacpp.__version__, "compiler": self.xllamacpp.BUILD_INFO["compiler"]}

    def close(self) -> None:
        del self.server


if __name__ == "__main__":
    main(XLlamaCpp)
