"""One reply on its way: tokens come in on the thread that leads the engine, chunks of text go out to whoever reads."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat.kept_ids import kept_ids
from causerie.chat.messages import Message
from causerie.chat.reply_reading import PlainReader
from causerie.chat.whole_replies import Written, content_ids
from causerie.conversation.reply import Chunk, Reply, Timings, TokenLogprob, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.chat.parsing import ReplyDelta
    from causerie.chat.reply_reading import BytesReader
    from causerie.conversation.constraint import Constraint
    from causerie.conversation.history import Said
    from causerie.conversation.transforms import OutputTransform
    from causerie.engine import Generation
    from causerie.engine import Sequence as EngineSequence
    from causerie.llama.step import Chosen
    from causerie.llama.vocab import Vocab

__all__ = ["Candidate"]


class Candidate:
    """The tokens of one generation, what they say, and the reply that they become.

    Args:
        vocab: the model's.
        sequence: where it is generated.
        index: which candidate it is.
        reader: tells text, thinking and calls apart.
        preserved: tokens whose text the reader has to see, although they show none.
        logprobs: whether log-probabilities come with the tokens.
        transform: changes the text on its way out.
        constraint: what the text follows, and what reads it if it was not cut off; None: it is free.
        text_before: of a text that goes on under its constraint, what there is.
        goes_on: whether the message was begun before.
        before: ids and bytes of its beginning, where a format is read; of a text, only the bytes of a character that it
            left unfinished.
        follows: what the template wrote before the reply.
    """

    def __init__(
        self,
        vocab: Vocab,
        sequence: EngineSequence,
        index: int,
        *,
        reader: BytesReader,
        preserved: frozenset[int] = frozenset(),
        logprobs: bool,
        transform: OutputTransform | None,
        constraint: Constraint | None = None,
        text_before: str = "",
        goes_on: bool = False,
        before: tuple[tuple[int, ...], bytes] = ((), b""),
        follows: str = "",
    ) -> None:
        self.sequence = sequence
        self.generation: Generation
        self.chunks: deque[Chunk] = deque()
        self.reader = reader
        self._vocab = vocab
        self._index = index
        self._preserved = preserved
        self._transform = transform
        self.constraint = constraint
        self._text_before = text_before
        self._pieces: list[bytes] = []
        self._goes_on = goes_on
        self.before_ids, self._before = before
        self._follows = follows
        self._shown: list[str] = []
        self._thought: list[str] = []
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None
        self._flushing = threading.RLock()
        self._flushed = False
        self._flush_error: BaseException | None = None

    def token(self, chosen: Chosen) -> bool:
        """One more token, from the engine; True: it was the last that is wanted."""
        # Sentencepiece models begin an answer with a space.
        first = not self._pieces and not self._goes_on
        piece = self._vocab.piece(chosen.token, special=chosen.token in self._preserved, lstrip=int(first))
        self._pieces.append(piece)
        logprob = None
        if self._logprobs is not None:
            logprob = self._logprob(chosen)
            self._logprobs.append(logprob)
        self._tell(self.reader.feed(piece), logprob)
        return self.reader.ended

    def _tell(self, deltas: Iterable[ReplyDelta], logprob: TokenLogprob | None) -> None:
        for delta in deltas:
            if delta.kind == "text":
                self._emit(delta.text if self._transform is None else self._transform.feed(delta.text), logprob)
            else:
                if delta.kind == "thinking":
                    self._thought.append(delta.text)
                self.chunks.append(
                    Chunk(delta.kind, delta.text, delta.tool_call, self._index, logprob, delta.index, delta.name)
                )

    def _emit(self, text: str, logprob: TokenLogprob | None) -> None:
        if not isinstance(text, str):
            raise TypeError(f"an output transform must give a str, not {type(text).__name__}")
        if text:
            self._shown.append(text)
            self.chunks.append(Chunk("text", text, None, self._index, logprob))

    def _logprob(self, chosen: Chosen) -> TokenLogprob:
        def entry(token: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
            return TokenLogprob(token, self._vocab.piece(token).decode("utf-8", "replace"), logprob, top)

        if chosen.forced:
            return replace(entry(chosen.token, float("nan")), forced=True)
        top = tuple(entry(token, p) for token, p in chosen.top)
        return entry(chosen.token, chosen.logprob if chosen.logprob is not None else float("nan"), top)

    def flush(self) -> None:
        """The generation has ended: let out what was held back. Idempotent."""
        with self._flushing:
            if self._flushed:
                return
            self._flushed = True
            cut = self.generation.finish_reason != "stop" or self.reader.ended
            try:
                self._tell(self.reader.flush(cut=cut), None)
                if self._transform is not None:
                    self._emit(self._transform.flush(), None)
            except BaseException as error:  # noqa: BLE001 - of the user's transform: it ends the reply, wherever it ran
                self._flush_error = error

    @property
    def error(self) -> BaseException | None:
        """What went wrong, if something did."""
        return self.generation.error or self._flush_error

    @property
    def message(self) -> Message:
        """What the model wrote, up to a stop string."""
        reader = self.reader
        return Message("assistant", reader.content, thinking=reader.thinking, tool_calls=reader.calls)

    def ids(self) -> tuple[int, ...]:
        """The ids that say what `reader.raw` tells."""
        tokens, pieces = self.generation.tokens, self._pieces
        if self.reader.stop is None or not pieces:
            return tuple(tokens)
        if self._before:
            pieces = [self._before + pieces[0], *pieces[1:]]
        return kept_ids(tokens, pieces, self.reader.raw, self._vocab)

    def written(self) -> Said | None:
        """How the model wrote the message."""
        reader = self.reader
        if isinstance(reader, PlainReader):
            return self.ids() or None
        known = (
            None
            if self._goes_on
            else content_ids(self.generation.tokens, self._pieces, reader.content, reader.thinking)
        )
        if reader.cut_short or (self._goes_on and not self.before_ids):
            return Written(known) if known else None
        return Written(known, (*self.before_ids, *self.ids()), reader.raw, self._follows)

    def reply(self, message: Message | None, candidates: tuple[Reply, ...] = ()) -> Reply:
        """The finished reply."""
        generation = self.generation
        reason = generation.finish_reason
        if reason is None or reason == "error":
            raise AssertionError(f"there is no reply of a generation that ended with {reason}")
        calls = self.reader.calls
        return Reply(
            text="".join(self._shown),
            message=message,
            finish_reason="tool_calls" if calls and reason == "stop" else _reason(reason),
            usage=Usage(generation.n_prompt, generation.cached, generation.n_generated),
            timings=_timings(generation),
            thinking="".join(self._thought),
            tool_calls=calls,
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            stop=self.reader.stop,
            candidates=candidates,
            parsed=self._parsed(),
        )

    def _parsed(self) -> Any:
        """The object that was asked for; None where the reply was cut off, also by a stop string."""
        form = None if self.constraint is None else self.constraint.form
        if form is None or self.generation.finish_reason != "stop" or self.reader.stopped:
            return None
        return form.parse(self._text_before + self.reader.content)


def _reason(reason: str) -> Literal["stop", "length", "cancelled"]:
    if reason == "stop":
        return "stop"
    return "length" if reason == "length" else "cancelled"


def _timings(generation: Generation) -> Timings:
    begun = generation.started or generation.ended
    first = generation.first_token
    prompt = (first or generation.ended) - begun
    decode = generation.ended - first if first else 0.0
    evaluated = generation.n_prompt - generation.cached
    behind = generation.n_generated - 1
    return Timings(
        queue=begun - generation.submitted,
        first_token=first - generation.submitted if first else None,
        prompt=prompt,
        decode=decode,
        total=generation.ended - generation.submitted,
        prompt_tokens_per_second=evaluated / prompt if first and prompt > 0 else None,
        tokens_per_second=behind / decode if behind > 0 and decode > 0 else None,
    )
