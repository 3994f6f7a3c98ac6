"""The sessions of one call on their way: begun, brought forward together, and ended one by one."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

from causerie.chat_model.any_of import AnyOf
from causerie.chat_model.data import ChatMessage
from causerie.chat_model.response import (
    Candidate,
    ChatError,
    ChatModelResponse,
    ChatPromptResponse,
    Metadata,
    TokenCountMetadata,
)
from causerie.errors import GrammarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.chat_model.call_options import CallOptions
    from causerie.chat_model.data import ChatSession
    from causerie.conversation.conversation import Conversation
    from causerie.conversation.engine import Engine
    from causerie.conversation.reply import Reply
    from causerie.conversation.stream import Stream

__all__ = ["Running"]


class Running:
    """All sessions of one call. Whoever uses it drives it: wait for `news`, then `advance`, until it has `ended`.

    What is wrong with one session ends that session: it gets a response with an error. What is wrong with the call, or
    with the engine, is raised, and ends all.

    Args:
        engine: where they are answered.
        sessions: the prompts.
        options: the same for all of them.
        chunks: whether pieces of answers are wanted while they come.

    Attributes:
        events: what is new, oldest first, in the form that streams give it.
        failure: what ended all; None if nothing did.
    """

    def __init__(self, engine: Engine, sessions: Sequence[ChatSession], options: CallOptions, *, chunks: bool) -> None:
        self._engine = engine
        self._sessions = sessions
        self._options = options
        self._chunks = chunks
        self._open: dict[int, tuple[Conversation, Stream]] = {}
        self._ended: dict[int, ChatPromptResponse] = {}
        self._given_up = False
        self.events: deque[ChatModelResponse] = deque()
        self.failure: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return not self._open

    def begin(self) -> None:
        """Ask the engine for all answers. Once."""
        self._engine.encoder(None)  # without a template all would fail
        for index, session in enumerate(self._sessions):
            if self._given_up:
                break
            try:
                self._begin(index, session)
            except GrammarError:
                raise  # of the options: all would fail
            except ValueError as error:
                self._end(index, ChatPromptResponse((), index, error=ChatError.of(error)))
        if self._given_up:
            self._close()

    def _begin(self, index: int, session: ChatSession) -> None:
        if not session.messages:
            raise ValueError("the session has no messages: it needs at least one, by the user")
        conversation = self._engine.conversation(
            session.context or None,
            examples=[(example.input.content, example.output.content) for example in session.examples],
            messages=session.to_messages(),
            overflow=self._options.overflow,
            name=f"session {index}",
        )
        try:
            stream = conversation.stream_respond(**self._options.reply)
            if not self._chunks:
                stream.turn.unwatch()
            self._open[index] = conversation, stream
        except BaseException:
            conversation.close()
            raise

    def news(self) -> AnyOf:
        """What to wait for before the next `advance`."""
        candidates = (each for _, stream in self._open.values() for each in stream.turn.candidates)
        return AnyOf(self._engine, candidates, chunks=self._chunks)

    def advance(self) -> None:
        """Take one thing that is new from every session.

        Raises:
            ClosedError, NativeError: the engine cannot go on.
        """
        for index in tuple(self._open):
            self._advance(index, *self._open[index])

    def _advance(self, index: int, conversation: Conversation, stream: Stream) -> None:
        turn = stream.turn
        done = turn.done  # asked first: what comes with the end is read before
        if self._chunks and (chunk := turn.next_chunk()) is not None:
            self._tell(ChatPromptResponse((Candidate.of_chunk(chunk),), index))
        elif done:
            response = self._response(index, stream)
            del self._open[index]
            conversation.close()
            self._end(index, response)
        elif any(generation.error is not None for generation in turn.generations):
            turn.cancel()  # the other candidates go on in vain

    def _response(self, index: int, stream: Stream) -> ChatPromptResponse:
        try:
            reply = stream.reply
        except Exception as error:  # noqa: BLE001 - it is the session's own, unless the engine has ended
            self._engine.require_open()
            return ChatPromptResponse((), index, error=ChatError.of(error))
        replies = reply.candidates or (reply,)
        candidates = tuple(Candidate.of_reply(each, number) for number, each in enumerate(replies))
        return ChatPromptResponse(candidates, index, self._counts(index, reply, replies))

    def _counts(self, index: int, reply: Reply, replies: Sequence[Reply]) -> Metadata:
        usage = reply.usage
        return Metadata(
            TokenCountMetadata.of(usage.prompt_tokens, self._sessions[index].text, cached=usage.cached_tokens),
            TokenCountMetadata.of(
                sum(each.usage.completion_tokens for each in replies), "".join(each.text for each in replies)
            ),
        )

    def _end(self, index: int, response: ChatPromptResponse) -> None:
        self._ended[index] = response
        said = tuple(_without_text(candidate) for candidate in response.candidates)
        self._tell(ChatPromptResponse(said, index, response.metadata, response.error))

    def _tell(self, response: ChatPromptResponse) -> None:
        if self._chunks:
            self.events.append(ChatModelResponse(response.metadata, (response,)))

    def response(self) -> ChatModelResponse:
        """Once all have ended: the whole.

        Raises:
            BaseException: what ended all.
        """
        if self.failure is not None:
            raise self.failure
        return ChatModelResponse.of(self._ended[index] for index in range(len(self._sessions)))

    def cancel(self) -> None:
        """Let all end, within a step."""
        for _, stream in self._open.values():
            stream.turn.cancel()

    def give_up(self, failure: BaseException) -> None:
        """End all at once, without waiting; nobody wants what there is. Any thread, also while they begin."""
        self.failure = self.failure or failure
        self._given_up = True
        self.events.clear()
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(KeyError):  # somebody else took the last one
            while self._open:
                self._open.popitem()[1][0].close()


def _without_text(candidate: Candidate) -> Candidate:
    """The end of an answer whose text was given in pieces."""
    return Candidate(ChatMessage("", "assistant"), candidate.metadata, candidate.index)
