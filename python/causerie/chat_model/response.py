"""What the facade gives: responses with candidates, counts and errors. Plain, immutable data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from causerie.chat.frozen_json import FrozenDict
from causerie.chat_model.data import ChatMessage
from causerie.chat_model.dump import Dumped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from causerie.conversation.reply import Chunk, FinishReason, Reply, TokenLogprob

__all__ = ["Candidate", "ChatError", "ChatModelResponse", "ChatPromptResponse", "Metadata", "TokenCountMetadata"]


@dataclass(frozen=True, slots=True)
class TokenCountMetadata(Dumped):
    """Tokens and characters, under ModelFarm's names; nothing is billed here.

    Attributes:
        billableTokens: tokens that were evaluated or generated.
        unbilledTokens: tokens of prompts that were in the cache already.
        billableCharacters: characters that are not white space.
        unbilledCharacters: white space.
    """

    billableTokens: int = 0  # noqa: N815 - ModelFarm's names, here and below
    unbilledTokens: int = 0  # noqa: N815
    billableCharacters: int = 0  # noqa: N815
    unbilledCharacters: int = 0  # noqa: N815

    @classmethod
    def of(cls, tokens: int, text: str, *, cached: int = 0) -> TokenCountMetadata:
        """The counts of a text that has so many tokens."""
        space = sum(map(str.isspace, text))
        return cls(tokens - cached, cached, len(text) - space, space)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.billableTokens + self.unbilledTokens

    @property
    def characters(self) -> int:
        """All characters."""
        return self.billableCharacters + self.unbilledCharacters

    def __add__(self, other: TokenCountMetadata) -> TokenCountMetadata:
        return TokenCountMetadata(
            self.billableTokens + other.billableTokens,
            self.unbilledTokens + other.unbilledTokens,
            self.billableCharacters + other.billableCharacters,
            self.unbilledCharacters + other.unbilledCharacters,
        )


@dataclass(frozen=True, slots=True)
class Metadata(Dumped):
    """Counts of what went in and what came out.

    Attributes:
        inputTokenCount: the prompts: their tokens with all that the chat template adds, and the characters that the
            sessions have.
        outputTokenCount: all candidates, without the tokens that end a turn.
    """

    inputTokenCount: TokenCountMetadata = TokenCountMetadata()  # noqa: N815 - ModelFarm's names
    outputTokenCount: TokenCountMetadata = TokenCountMetadata()  # noqa: N815

    def __add__(self, other: Metadata) -> Metadata:
        return Metadata(self.inputTokenCount + other.inputTokenCount, self.outputTokenCount + other.outputTokenCount)


@dataclass(frozen=True, slots=True)
class Candidate(Dumped):
    """One answer, or a piece of it.

    Attributes:
        message: what the assistant says.
        metadata: of a whole answer: "finish_reason", "tokens", "characters", and "stop", the stop string that ended it
            or None; of a piece: nothing.
        index: which one of the session's candidates it is.
        logprobs: one entry per token, None where they were not asked for.
    """

    message: ChatMessage
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] | None = None

    @classmethod
    def of_reply(cls, reply: Reply, index: int) -> Candidate:
        """A whole answer."""
        figures = {
            "finish_reason": reply.finish_reason,
            "tokens": reply.usage.completion_tokens,
            "characters": len(reply.text),
            "stop": reply.stop,
        }
        return cls(ChatMessage(reply.text, "assistant"), FrozenDict(figures), index, reply.logprobs)

    @classmethod
    def of_chunk(cls, chunk: Chunk) -> Candidate:
        """A piece of an answer."""
        logprobs = None if chunk.logprob is None else (chunk.logprob,)
        return cls(ChatMessage(chunk.text, "assistant"), index=chunk.index, logprobs=logprobs)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended: "stop", "length" or "cancelled"; None of a piece."""
        return cast("FinishReason | None", self.metadata.get("finish_reason"))


@dataclass(frozen=True, slots=True)
class ChatError(Dumped):
    """Why a session has no answer.

    Attributes:
        type: the name of the exception's class.
        message: what it says.
        exception: the exception itself; `model_dump` leaves it out.
    """

    type: str
    message: str
    exception: Exception = field(compare=False, repr=False, metadata={"dump": False})

    @classmethod
    def of(cls, exception: Exception) -> ChatError:
        """From the exception."""
        return cls(type(exception).__name__, str(exception), exception)


@dataclass(frozen=True, slots=True)
class ChatPromptResponse(Dumped):
    """What became of one session.

    Attributes:
        candidates: its answers, or what came of them; none if it failed.
        index: which of the call's sessions it is.
        metadata: its counts; None if it failed, and with the pieces of a stream.
        error: why it failed; None if it did not.
    """

    candidates: tuple[Candidate, ...]
    index: int = 0
    metadata: Metadata | None = None
    error: ChatError | None = None

    def raise_for_error(self) -> None:
        """Raise what the session failed with, if it did."""
        if self.error is not None:
            raise self.error.exception


@dataclass(frozen=True, slots=True)
class ChatModelResponse(Dumped):
    """What became of a call; or, of a stream, what is new.

    Attributes:
        metadata: counts of all sessions that did not fail, together; None with the pieces of a stream.
        responses: one per session, in order; in a stream, one.
    """

    metadata: Metadata | None
    responses: tuple[ChatPromptResponse, ...]

    @classmethod
    def of(cls, responses: Iterable[ChatPromptResponse]) -> ChatModelResponse:
        """The whole, from what became of every session."""
        given = tuple(responses)
        return cls(sum((each.metadata for each in given if each.metadata is not None), Metadata()), given)

    def raise_for_error(self) -> None:
        """Raise what the first session that failed did so with."""
        for response in self.responses:
            response.raise_for_error()
