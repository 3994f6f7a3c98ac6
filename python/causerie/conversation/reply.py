"""What comes back: whole replies, chunks of running ones, and their figures. Plain, immutable data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from causerie.chat.messages import Message
    from causerie.chat.tool_call import ToolCall

__all__ = ["Chunk", "ChunkKind", "FinishReason", "Reply", "Report", "Timings", "TokenLogprob", "Usage"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "cancelled"]
ChunkKind: TypeAlias = Literal["text", "thinking", "tool_call_delta", "tool_call"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token with its probability, before any sampler.

    Attributes:
        id: the token.
        text: what it stands for; bytes that are no character by themselves are U+FFFD.
        logprob: log-softmax of the model's logits at this token.
        top: the likeliest tokens at this place, likeliest first, each with an empty `top`.
        forced: whether it was put in (the end of a thinking that became too long): the model was not asked, so its
            logprob is NaN.
    """

    id: int
    text: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply.

    Attributes:
        prompt_tokens: of the whole prompt.
        cached_tokens: those of them that were in the cache, and not evaluated again.
        completion_tokens: generated ones, without the one that ends the turn.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one reply, on the wall clock.

    Attributes:
        queue: from the call until the prompt got its place in the context.
        first_token: from the call until the first token was chosen; None if there was none.
        prompt: from getting its place until the first token.
        decode: from the first token to the end.
        total: from the call to the end.
        prompt_tokens_per_second: evaluated prompt tokens / prompt; None if there was no time to measure.
        tokens_per_second: tokens behind the first one / decode; None if there were none.
    """

    queue: float
    first_token: float | None
    prompt: float
    decode: float
    total: float
    prompt_tokens_per_second: float | None
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of the last reply of a conversation."""

    finish_reason: FinishReason
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered.

    Attributes:
        text: the answer, behind the conversation's output transform if there is one; "" if there is none.
        message: the message that joined the history; None if nothing did (cancelled before the first token).
        finish_reason: "stop": the model, or a stop string, ended it; "length": max_tokens, or the context is full;
            "tool_calls": it asks for tools; "cancelled".
        usage, timings: figures.
        thinking: what the model thought before.
        tool_calls: the calls it asks for.
        logprobs: one entry per generated token, None where they were not asked for.
        stop: the stop string, yours or the template's, that ended it, if one did.
        candidates: all candidates where several were asked for, this one first; else empty.
        parsed: the answer as an object, where a response format was asked for.
    """

    text: str
    message: Message | None
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop: str | None = None
    candidates: tuple[Reply, ...] = field(default=(), repr=False)
    parsed: Any = None

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The reply with its figures, for notebooks."""
        from causerie.conversation.notebook import reply_html

        return reply_html(self)

    def _repr_markdown_(self) -> str:
        """As `_repr_html_`, where no HTML can be shown."""
        from causerie.conversation.notebook import reply_markdown

        return reply_markdown(self)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a running reply.

    Attributes:
        kind: "text", "thinking", "tool_call_delta" (more of a call's arguments) or "tool_call" (a complete call).
        text: whole characters; all those of kind "text", joined, are `Reply.text`; those of kind "thinking" are
            `Reply.thinking`; of a call, the text of its arguments. "" for a complete call.
        tool_call: the complete call.
        index: of which candidate, where several run.
        logprob: of the token that completed the piece, where it was asked for.
        call_index: which call of the reply it belongs to, from 0, for both kinds of calls.
        name: the tool that is called, for both kinds of calls.
    """

    kind: ChunkKind
    text: str
    tool_call: ToolCall | None = None
    index: int = 0
    logprob: TokenLogprob | None = None
    call_index: int = 0
    name: str = ""

    def __str__(self) -> str:
        return self.text
