"""A task done with causerie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from task import Figures, Task, best, main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Chat:
    """A conversation."""

    def __init__(self, task: Task, chat: Any) -> None:
        self.task, self.chat = task, chat

    def say(self, text: str, piece: Callable[[], None], max_tokens: int, schema: Any) -> tuple[int, str]:
        """One turn; `piece` is called for each piece."""
        options = dict(self.task.sampling) if schema is None else {**self.task.sampling, "response_format": schema}
        with self.chat.stream(text, max_tokens=max_tokens, **options) as stream:
            for _ in stream:
                piece()
            reply = stream.reply
        return reply.usage.completion_tokens, reply.finish_reason

    def branches(self, n: int) -> list[Chat]:
        """Independent conversations that go on from here."""
        return [Chat(self.task, chat) for chat in self.chat.fork(n)]

    def save(self, path: Path) -> None:
        """To a file."""
        self.chat.save(path)


class Causerie:
    """An engine."""

    concurrent = True
    forks = True
    pid = "self"

    def __init__(self, task: Task, figures: Figures) -> None:
        import causerie

        self.causerie, self.task, self.engine_type = causerie, task, causerie.Engine  # imported when it is named
        with figures.timed("load"):
            self.engine = self.opened()

    def opened(self) -> Any:
        """A new engine. The model's path, so that it belongs to the engine."""
        task = self.task
        return self.engine_type(
            task.model, n_ctx=task.n_ctx, n_threads=task.threads, max_resident=task.parallel, **task.options
        )

    def chat(self, system: str | None) -> Chat:
        return Chat(self.task, self.engine.conversation(system))

    def again(self, _path: Path) -> Callable[[Path], Chat]:
        """Start anew; gives what reads a saved conversation."""
        self.engine.close()
        self.engine = self.opened()
        return lambda path: Chat(self.task, self.engine.load_conversation(path, cache="require"))

    def binding(self, what: dict[str, Any]) -> dict[str, float]:
        """Seconds of one call of the primitives, the best of several."""
        from causerie import ChatTemplate, llama

        model, text = self.engine.model, what["text"].encode()
        ids = model.vocab.tokenize(text)
        template = ChatTemplate.from_model(model)
        messages = [{"role": ("user", "assistant")[i % 2], "content": "Tell me of the sea."} for i in range(21)]
        batch = llama.Batch(512)
        with llama.Context(model, n_ctx=512, n_batch=64, n_threads=self.task.threads) as context:
            one = llama.Batch(1)
            one.add(int(ids[0]), 0, output=True)
            context.decode(one)
            chain = llama.Sampler.chain(
                [
                    llama.Sampler.top_k(40),
                    llama.Sampler.top_p(0.95),
                    llama.Sampler.min_p(0.05),
                    llama.Sampler.temperature(0.8),
                    llama.Sampler.dist(seed=1),
                ]
            )

            def fill() -> None:
                batch.clear()
                batch.add_sequence(ids[:512], 0, 0)

            prompt = template.apply(messages)
            return {
                "tokenize": best(lambda: model.vocab.tokenize(text), 5),
                "detokenize": best(lambda: model.vocab.detokenize(ids), 5),
                "fill_512": best(fill, 50),
                "logits": best(context.logits, 200),
                "sample": best(lambda: chain.sample(context), 50),
                "template": best(lambda: template.apply(messages), 20),
                "parse": best(lambda: prompt.parse("The sea is wide. " * 20), 20),
                "call": best(llama.lib.llama_time_us, 1000),
            }

    def about(self) -> dict[str, Any]:
        info = self.causerie.build_info()
        return {"version": info.version, "llama_commit": info.llama_commit, "compiler": info.compiler}

    def close(self) -> None:
        self.engine.close()


if __name__ == "__main__":
    main(Causerie)
