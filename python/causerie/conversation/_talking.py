"""What people call to get a reply: at once or in chunks, waiting or as a coroutine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.conversation._replying import Replying
from causerie.conversation.stream import AsyncStream, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.chat.content import ContentLike
    from causerie.conversation.reply import Reply
    from causerie.conversation.turn import Turn

__all__ = ["Talking"]


class Talking(Replying):
    """The four calls, blocking, streaming and both for asyncio, of each way to get a reply."""

    def send(self, content: ContentLike, **options: Any) -> Reply:
        """Add a user's message and reply to it.

        Args:
            content: text, or a list of content parts.
            **options: for this reply only.

        Raises:
            ContextOverflowError: it does not fit; `.kind` "too_long": not even alone; nothing has changed.
            BusyError: a reply is being generated.
            TypeError, ValueError: an option or the content is wrong; nothing has changed.
            GrammarError, SchemaError, TemplateError: before anything changed; or GrammarError while generating, and
                SchemaError where a finished reply is against what only validation enforces.
            UnsupportedError: the template takes no tools, or a constraint and tools that may be called; nothing has
                changed.
            ToolError: a call that the model asks for does not fit its tool (`.call`); no reply joins the history.
        """
        return self.finish(self._begin_send(content, options))

    def stream(self, content: ContentLike, **options: Any) -> Stream:
        """As `send`, giving the reply in chunks while it comes. What is wrong raises here, not at the first chunk."""
        return Stream(self, self._begin_send(content, options))

    async def asend(self, content: ContentLike, **options: Any) -> Reply:
        """As `send`, for asyncio."""
        return await self.astream(content, **options).reply()

    def astream(self, content: ContentLike, **options: Any) -> AsyncStream:
        """As `stream`, for asyncio; it begins with the first chunk that is awaited."""
        return self._async(lambda: self._begin_send(content, options))

    def respond(self, **options: Any) -> Reply:
        """Reply to the messages as they stand.

        Raises:
            ValueError: the last one is neither by the user nor by a tool; nothing has changed.
            ToolError: calls of tools wait for their results; nothing has changed.
        """
        return self.finish(self._begin_respond(options))

    def stream_respond(self, **options: Any) -> Stream:
        """As `respond`, in chunks."""
        return Stream(self, self._begin_respond(options))

    async def arespond(self, **options: Any) -> Reply:
        """As `respond`, for asyncio."""
        return await self.astream_respond(**options).reply()

    def astream_respond(self, **options: Any) -> AsyncStream:
        """As `stream_respond`, for asyncio."""
        return self._async(lambda: self._begin_respond(options))

    def regenerate(self, **options: Any) -> Reply:
        """Reply once more to the last user or tool message, in place of the reply there is.

        Raises:
            ValueError: the last message is no reply; nothing has changed.
        """
        return self.finish(self._begin_regenerate(options))

    def stream_regenerate(self, **options: Any) -> Stream:
        """As `regenerate`, in chunks."""
        return Stream(self, self._begin_regenerate(options))

    async def aregenerate(self, **options: Any) -> Reply:
        """As `regenerate`, for asyncio."""
        return await self.astream_regenerate(**options).reply()

    def astream_regenerate(self, **options: Any) -> AsyncStream:
        """As `stream_regenerate`, for asyncio."""
        return self._async(lambda: self._begin_regenerate(options))

    def resume(self, **options: Any) -> Reply:
        """Go on with the last message, an assistant's: one that was cut short, or a beginning that was given it.

        The reply's text is what was added; the message in the history is the whole. One that was generated under a
        response format or grammar follows that to its end, and `parsed` is of the whole; what this call is given holds
        for the rest instead.

        Raises:
            ValueError: the last message is not an assistant's, or asks for tools; nothing has changed.
            UnsupportedError: it has a constraint, and tools are offered too, or it is not known how the model wrote it.
        """
        return self.finish(self._begin_resume(options))

    def stream_resume(self, **options: Any) -> Stream:
        """As `resume`, in chunks."""
        return Stream(self, self._begin_resume(options))

    async def aresume(self, **options: Any) -> Reply:
        """As `resume`, for asyncio."""
        return await self.astream_resume(**options).reply()

    def astream_resume(self, **options: Any) -> AsyncStream:
        """As `stream_resume`, for asyncio."""
        return self._async(lambda: self._begin_resume(options))

    def _async(self, begin: Callable[[], Turn]) -> AsyncStream:
        return AsyncStream(self, begin, self._engine.pump)

    def cancel(self) -> None:
        """Stop the reply, or the prefill, that is being worked on; from any thread. Idle: no-op.

        What was generated so far is kept as the reply, with finish_reason "cancelled"; the next call may follow at
        once.
        """
        self._cancel()

    def prefill(self) -> None:
        """Evaluate what the next reply needs and is known already, so that its first token comes quickly."""
        self._prefill()
