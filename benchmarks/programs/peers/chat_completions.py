"""Chats over an API in the shape of OpenAI's chat completions, whose callers keep the history themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from task import Task


class MessagesChat:
    """A history of messages. `ask(body, each)` calls `each` with every chunk of one streamed completion."""

    def __init__(
        self, task: Task, system: str | None, ask: Callable[[dict[str, Any], Callable[[Any], None]], None]
    ) -> None:
        self.task, self.ask = task, ask
        self.messages = [{"role": "system", "content": system}] if system else []

    def say(self, text: str, piece: Callable[[], None], max_tokens: int, schema: Any) -> tuple[int, str]:
        """One turn; `piece` is called for each piece."""
        body = {
            "messages": [*self.messages, {"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "stream": True,
            **self.task.sampling,
        }
        if schema is not None:
            body["response_format"] = self.response_format(schema)
        answer: list[str] = []
        tokens, finish = None, ""

        def each(chunk: Any) -> None:
            nonlocal tokens, finish
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
            for choice in chunk["choices"]:
                finish = choice.get("finish_reason") or finish
                if content := choice["delta"].get("content"):
                    piece()
                    answer.append(content)

        self.ask(body, each)
        self.messages = [*body["messages"], {"role": "assistant", "content": "".join(answer)}]
        return len(answer) if tokens is None else tokens, finish

    @staticmethod
    def response_format(schema: Any) -> dict[str, Any]:
        """OpenAI's way to ask for JSON that follows a schema."""
        return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}

    def branches(self, n: int) -> list[MessagesChat]:
        """Independent conversations that go on from here."""
        made = [type(self)(self.task, None, self.ask) for _ in range(n)]
        for chat in made:
            chat.messages = list(self.messages)
        return made
