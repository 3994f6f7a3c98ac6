"""The facade: a list of sessions in, one response per session out, all of them evaluated together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.chat_model.call_options import CallOptions
from causerie.chat_model.data import as_sessions
from causerie.chat_model.running import Running
from causerie.chat_model.stream import AsyncChatStream, ChatStream
from causerie.conversation.engine import Engine
from causerie.errors import ClosedError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from causerie.chat_model.data import ChatSession
    from causerie.chat_model.response import ChatModelResponse
    from causerie.llama.model import Model

__all__ = ["ChatModel"]


class ChatModel:
    """Answers lists of chat sessions. Every method may be called from any thread, and while others run.

    The four calls take the same arguments:

    - ``prompts``: sessions, or dicts with their arguments; none of them are changed, and nothing is kept of them.
    - ``max_output_tokens``: most tokens of an answer; -1: no limit. Where neither this nor the engine's options set it:
      1024.
    - ``temperature``: 0: the likeliest token, always. Where neither this nor the engine's options set it: 0.2.
    - ``**options``: all of `SamplingOptions`; candidateCount, topP, topK, stopSequences, maxOutputTokens,
      presencePenalty, frequencyPenalty and logitBias are other names of n, top_p, top_k, stop, max_tokens,
      presence_penalty, frequency_penalty and logit_bias. Also thinking and template_kwargs as for `Conversation.send`,
      and overflow as for `Engine.conversation`. None: not set.

    They raise TypeError or ValueError for an argument that is wrong, before anything runs, and ClosedError or
    NativeError where the engine cannot go on. A session that fails by itself (it is too long, has no messages, the last
    one is not the user's, the template refuses it ...) disturbs no other: its response has no candidates, and an error.

    Args:
        model: an alias ("smollm2"), a path, or "hf:owner/repo:file"; or a loaded `llama.Model` or `Engine`, which stays
            the caller's.
        **options: as for `Engine`: n_ctx, max_resident, n_threads, sampling, template ...

    Raises:
        TypeError: options, and an engine that is there already.
        ModelLoadError, OutOfMemoryError, UnsupportedError, ValueError: as `Engine`.
    """

    def __init__(self, model: Engine | Model | str | os.PathLike[str], **options: Any) -> None:
        if isinstance(model, Engine) and options:
            raise TypeError(f"this engine is made already: it cannot take {', '.join(options)}")
        self._owns_engine = not isinstance(model, Engine)
        self._engine = model if isinstance(model, Engine) else Engine(model, **options)
        self._closed = False

    @property
    def engine(self) -> Engine:
        """The engine behind it, for conversations and figures."""
        return self._engine

    def _running(
        self,
        prompts: Iterable[ChatSession | Mapping[str, Any]],
        max_output_tokens: int | None,
        temperature: float | None,
        options: Mapping[str, Any],
        *,
        chunks: bool,
    ) -> Running:
        if self._closed:
            raise ClosedError("this chat model is closed")
        self._engine.require_open()
        given = {**options, "max_output_tokens": max_output_tokens, "temperature": temperature}
        return Running(self._engine, as_sessions(prompts), CallOptions.of(given, self._engine.sampling), chunks=chunks)

    def chat(
        self,
        prompts: Iterable[ChatSession | Mapping[str, Any]],
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> ChatModelResponse:
        """Answer all sessions; returns when all have ended. One response per session, in order."""
        running = self._running(prompts, max_output_tokens, temperature, options, chunks=False)
        return ChatStream(running).response

    async def async_chat(
        self,
        prompts: Iterable[ChatSession | Mapping[str, Any]],
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> ChatModelResponse:
        """As `chat`, for asyncio. Cancelling it stops all sessions."""
        running = self._running(prompts, max_output_tokens, temperature, options, chunks=False)
        return await AsyncChatStream(running, self._engine.pump).response()

    def stream_chat(
        self,
        prompts: Iterable[ChatSession | Mapping[str, Any]],
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> ChatStream:
        """As `chat`, giving the answers in pieces while they come, those of all sessions as they go."""
        return ChatStream(self._running(prompts, max_output_tokens, temperature, options, chunks=True))

    def async_stream_chat(
        self,
        prompts: Iterable[ChatSession | Mapping[str, Any]],
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> AsyncChatStream:
        """As `stream_chat`, for asyncio: ``async for item in model.async_stream_chat(...)``."""
        running = self._running(prompts, max_output_tokens, temperature, options, chunks=True)
        return AsyncChatStream(running, self._engine.pump)

    @property
    def closed(self) -> bool:
        """Whether it, or its engine, was closed."""
        return self._closed or self._engine.closed

    def close(self) -> None:
        """Take no more calls, and close the engine if it is its own. Idempotent."""
        self._closed = True
        if self._owns_engine:
            self._engine.close()

    def __enter__(self) -> Self:
        if self._closed:
            raise ClosedError("this chat model is closed")
        self._engine.require_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
