"""One reply on its way: tokens come in on the thread that leads the engine, chunks of text go out to whoever reads."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat.kept_ids import kept_ids
from causerie.chat.reply_text import ReplyText
from causerie.conversation.reply import Chunk, Reply, Timings, TokenLogprob, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.chat.messages import Message
    from causerie.chat.response_format import ResponseFormat
    from causerie.conversation.transforms import OutputTransform
    from causerie.engine import Generation
    from causerie.engine import Sequence as EngineSequence
    from causerie.llama.step import Chosen
    from causerie.llama.vocab import Vocab

__all__ = ["Candidate"]


class Candidate:
    """The tokens of one generation, their text, and the reply that they become.

    Args:
        vocab: the model's.
        sequence: where it is generated.
        index: which candidate it is.
        stops: stop strings.
        logprobs: whether log-probabilities come with the tokens.
        transform: changes the text on its way out.
        response_format: reads a reply that was not cut off; None: there is nothing to read.
        before: for a reply that goes on: bytes of a character that its last token left unfinished; None: a new reply.
    """

    def __init__(
        self,
        vocab: Vocab,
        sequence: EngineSequence,
        index: int,
        *,
        stops: Sequence[str],
        logprobs: bool,
        transform: OutputTransform | None,
        response_format: ResponseFormat | None,
        before: bytes | None = None,
    ) -> None:
        self.sequence = sequence
        self.generation: Generation
        self.chunks: deque[Chunk] = deque()
        self._vocab = vocab
        self._index = index
        self._text = ReplyText(stops)
        self._transform = transform
        self._format = response_format
        self._pieces: list[bytes] = []
        self._before = before
        self._raw: list[str] = [self._text.feed(before)] if before else []
        self._shown: list[str] = []
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None
        self._flushing = threading.RLock()
        self._flushed = False
        self._flush_error: BaseException | None = None

    def token(self, chosen: Chosen) -> bool:
        """One more token, from the engine; True: a stop string has ended the reply."""
        # Sentencepiece models begin an answer with a space.
        first = not self._pieces and self._before is None
        piece = self._vocab.piece(chosen.token, special=False, lstrip=int(first))
        self._pieces.append(piece)
        logprob = None
        if self._logprobs is not None:
            logprob = self._logprob(chosen)
            self._logprobs.append(logprob)
        self._show(self._text.feed(piece), logprob)
        return self._text.matched is not None

    def _show(self, text: str, logprob: TokenLogprob | None) -> None:
        if text:
            self._raw.append(text)
            self._emit(text if self._transform is None else self._transform.feed(text), logprob)

    def _emit(self, text: str, logprob: TokenLogprob | None) -> None:
        if not isinstance(text, str):
            raise TypeError(f"an output transform must give a str, not {type(text).__name__}")
        if text:
            self._shown.append(text)
            self.chunks.append(Chunk("text", text, None, self._index, logprob))

    def _logprob(self, chosen: Chosen) -> TokenLogprob:
        def entry(token: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
            return TokenLogprob(token, self._vocab.piece(token).decode("utf-8", "replace"), logprob, top)

        top = tuple(entry(token, p) for token, p in chosen.top)
        return entry(chosen.token, chosen.logprob if chosen.logprob is not None else float("nan"), top)

    def flush(self) -> None:
        """The generation has ended: let out what was held back. Idempotent."""
        with self._flushing:
            if self._flushed:
                return
            self._flushed = True
            try:
                self._show(self._text.flush(), None)
                if self._transform is not None:
                    self._emit(self._transform.flush(), None)
            except BaseException as error:  # noqa: BLE001 - of the user's transform: it ends the reply, wherever it ran
                self._flush_error = error

    @property
    def error(self) -> BaseException | None:
        """What went wrong, if something did."""
        return self.generation.error or self._flush_error

    @property
    def raw_text(self) -> str:
        """What the model wrote, up to a stop string."""
        return "".join(self._raw)

    def ids(self) -> tuple[int, ...]:
        """The ids that say `raw_text`."""
        tokens, pieces = self.generation.tokens, self._pieces
        if self._text.matched is None:
            return tuple(tokens)
        if self._before and pieces:
            pieces = [self._before + pieces[0], *pieces[1:]]
        return kept_ids(tokens, pieces, self.raw_text, self._vocab)

    def reply(self, message: Message | None, candidates: tuple[Reply, ...] = ()) -> Reply:
        """The finished reply."""
        generation = self.generation
        reason = generation.finish_reason
        if reason is None or reason == "error":
            raise AssertionError(f"there is no reply of a generation that ended with {reason}")
        return Reply(
            text="".join(self._shown),
            message=message,
            finish_reason=_reason(reason),
            usage=Usage(generation.n_prompt, generation.cached, generation.n_generated),
            timings=_timings(generation),
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            stop=self._text.matched,
            candidates=candidates,
            parsed=self._parsed(),
        )

    def _parsed(self) -> Any:
        """The object that was asked for; None where the reply was cut off, also by a stop string."""
        if self._format is None or self.generation.finish_reason != "stop" or self._text.matched is not None:
            return None
        return self._format.parse(self.raw_text)


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
