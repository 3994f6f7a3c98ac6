"""A task done with llama-cpp-python: one context, one conversation at a time."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from chat_completions import MessagesChat
from task import Figures, Task, best, main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Chat(MessagesChat):
    """A history; the tokens that a request has in common with the one before are not evaluated again."""

    llm: Any

    @staticmethod
    def response_format(schema: Any) -> dict[str, Any]:
        return {"type": "json_object", "schema": schema}

    def save(self, path: Path) -> None:
        """The state as the library gives it, with the history."""
        path.write_bytes(pickle.dumps((self.messages, self.llm.save_state())))


class LlamaCppPython:
    """A `Llama`."""

    concurrent = False
    forks = False
    pid = "self"

    def __init__(self, task: Task, figures: Figures) -> None:
        import llama_cpp

        self.llama_cpp, self.task = llama_cpp, task
        with figures.timed("load"):
            self.llm = self.opened()

    def opened(self) -> Any:
        """Its defaults, except for what the task says."""
        task = self.task
        return self.llama_cpp.Llama(
            task.model,
            n_ctx=task.n_ctx,
            n_threads=task.threads,
            n_threads_batch=task.threads,
            verbose=False,
        )

    def ask(self, body: dict[str, Any], each: Callable[[Any], None]) -> None:
        for chunk in self.llm.create_chat_completion(**body, repeat_penalty=1.0):
            each(chunk)

    def chat(self, system: str | None) -> Chat:
        made = Chat(self.task, system, self.ask)
        made.llm = self.llm
        return made

    def again(self, _path: Path) -> Callable[[Path], Chat]:
        """Start anew; gives what reads a saved conversation."""
        self.llm.close()
        self.llm = self.opened()

        def load(path: Path) -> Chat:
            chat = self.chat(None)
            chat.messages, state = pickle.loads(path.read_bytes())
            self.llm.load_state(state)
            return chat

        return load

    def binding(self, what: dict[str, Any]) -> dict[str, float]:
        """Seconds of one call, the best of several; None where nothing corresponds."""
        import numpy as np
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        llm, text = self.llm, what["text"].encode()
        ids = llm.tokenize(text)
        messages = [{"role": ("user", "assistant")[i % 2], "content": "Tell me of the sea."} for i in range(21)]
        formatter = Jinja2ChatFormatter(llm.metadata["tokenizer.chat_template"], eos_token="", bos_token="")
        llm.reset()
        llm.eval(ids[:1])
        context = llm.ctx
        size = llm.n_vocab()

        def logits() -> object:
            pointer = self.llama_cpp.llama_get_logits_ith(context, -1)
            return np.ctypeslib.as_array(pointer, shape=(size,))

        return {
            "tokenize": best(lambda: llm.tokenize(text), 5),
            "detokenize": best(lambda: llm.detokenize(ids), 5),
            "fill_512": best(lambda: llm._batch.set_batch(batch=ids[:512], n_past=0, logits_all=False), 50),
            "logits": best(logits, 200),
            "sample": best(lambda: llm.sample(top_k=40, top_p=0.95, min_p=0.05, temp=0.8, repeat_penalty=1.0), 50),
            "template": best(lambda: formatter(messages=messages), 20),
            "call": best(self.llama_cpp.llama_time_us, 1000),
        }

    def about(self) -> dict[str, Any]:
        return {"version": self.llama_cpp.__version__}

    def close(self) -> None:
        self.llm.close()


if __name__ == "__main__":
    main(LlamaCppPython)
