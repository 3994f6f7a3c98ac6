"""One conversation on one context: its turns, their prompt, and evaluating only what the cache does not hold yet."""

from __future__ import annotations

import codecs
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.cli.prompt import Turn, encode
from causerie.errors import CauserieError, ContextOverflowError, UnsupportedError
from causerie.llama.batch import Batch
from causerie.llama.context import Context
from causerie.llama.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from causerie.llama.model import Model
    from causerie.llama.sampler import Sampler

__all__ = ["Reply", "Session", "common_prefix"]

_N_CTX_DEFAULT = 4096
_N_BATCH = 512

logger = logging.getLogger("causerie.cli")


@dataclass(frozen=True)
class Reply:
    """What became of one question.

    Attributes:
        text: the answer.
        finish_reason: "stop", "length" (max_tokens, or the context is full) or "cancelled".
        prompt_tokens, cached_tokens, completion_tokens: counts; prompt tokens include the cached ones.
        context_full: whether the context, not max_tokens, ended it.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    context_full: bool


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids the two have in common at their start."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


class Session:
    """A conversation with a model. One question at a time; `cancel` may be called from anywhere.

    Args:
        model: the model; the session does not close it.
        sampler: chooses the tokens.
        system: what the model is told first.
        n_ctx: tokens the context holds; None: what the model was trained with, at most 4096.
        n_threads: threads to compute with; None: the processors there are.
        max_tokens: longest answer; None: until the context is full.

    Attributes:
        turns: the conversation without the system text.
        system: the system text; may be changed between questions.
        last: what became of the last question.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        *,
        system: str | None = None,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._vocab = model.vocab
        self._sampler = sampler
        self._template = Template.from_model(model)
        n_ctx = n_ctx or min(model.n_ctx_train or _N_CTX_DEFAULT, _N_CTX_DEFAULT)
        try:
            self._context = Context(model, n_ctx=n_ctx, n_batch=min(n_ctx, _N_BATCH), n_threads=n_threads)
        except ValueError as error:  # llama.cpp's own refusal, for example of a model that only embeds
            raise CauserieError(str(error)) from error
        self._batch = Batch(self._context.n_batch)
        self._cached: list[int] = []  # exactly what the context's memory holds
        self._cancelled = threading.Event()
        self.max_tokens = max_tokens
        self.system = system
        self.turns: list[Turn] = []
        self.last: Reply | None = None

    @property
    def n_ctx(self) -> int:
        """Tokens that one conversation may have."""
        return self._context.n_ctx_seq

    @property
    def messages(self) -> list[Turn]:
        """The whole conversation, system text first."""
        system = (self.system or "").strip()
        return [Turn("system", system), *self.turns] if system else list(self.turns)

    def ask(self, text: str) -> Iterator[str]:
        """Put a question; the answer comes in pieces of whole characters.

        Question and answer join the conversation when the answer ends, also where it was cancelled or the iterator was
        closed. They do not if it fails, or was cancelled before its first token.

        Raises:
            ContextOverflowError: it does not fit, `.needed` and `.available` in tokens; nothing was evaluated.
            TemplateError: the chat template refuses the conversation.
        """
        question = Turn("user", text.strip())
        prompt = encode(self._template, self._vocab, [*self.messages, question])
        self._check_room(prompt, question)
        self._cancelled.clear()
        return self._answer(question, prompt)

    def _check_room(self, prompt: list[int], question: Turn) -> None:
        if len(prompt) < self.n_ctx:
            return
        system = [turn for turn in self.messages if turn.role == "system"]
        alone = len(encode(self._template, self._vocab, [*system, question]))
        found = f"needs {len(prompt)} of {self.n_ctx} tokens"
        if alone < self.n_ctx:
            kind, what = "full", f"the conversation {found} with this question: start over, or use a larger --n-ctx"
        else:
            kind, what = "too_long", f"the question {found}: shorten it, or use a larger --n-ctx"
        raise ContextOverflowError(what, needed=len(prompt), available=self.n_ctx, kind=kind)

    def _answer(self, question: Turn, prompt: list[int]) -> Iterator[str]:
        started = time.monotonic()
        cached = self._rewind_to(prompt)
        tokens: list[int] = []
        parts: list[str] = []
        finish: str | None = "cancelled"  # what it is if the iterator is closed
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            going = self._evaluate(prompt[cached:])
            while going:
                token = self._sampler.sample(self._context)
                if self._vocab.is_eog(token):
                    finish = "stop"
                    break
                tokens.append(token)
                # Sentencepiece models begin an answer with a space.
                piece = self._vocab.piece(token, special=False, lstrip=int(len(tokens) == 1))
                if text := decoder.decode(piece):
                    parts.append(text)
                    yield text
                if len(tokens) == self.max_tokens or len(prompt) + len(tokens) >= self.n_ctx:
                    finish = "length"
                    break
                going = self._evaluate([token])
        except Exception:
            finish = None
            raise
        finally:
            if finish is not None:
                full = finish == "length" and len(prompt) + len(tokens) >= self.n_ctx
                self.last = Reply("".join(parts), finish, len(prompt), cached, len(tokens), full)
                if tokens or finish == "stop":
                    self.turns += [question, Turn("assistant", self.last.text.strip(), tuple(tokens), finish)]
                logger.info("%s in %.2f s", self.last, time.monotonic() - started)

    def _rewind_to(self, prompt: list[int]) -> int:
        """Let the memory hold only a prefix of the prompt; returns its length, less than the prompt's."""
        keep = min(common_prefix(self._cached, prompt), len(prompt) - 1)
        if keep < len(self._cached):
            try:
                self._context.memory.seq_rm(0, keep, -1)
            except UnsupportedError:  # recurrent state, for example, goes only as a whole
                self._context.memory.clear()
                keep = 0
            del self._cached[keep:]
        return keep

    def _evaluate(self, ids: list[int]) -> bool:
        """Append ids to the memory; False if it was cancelled."""
        for start in range(0, len(ids), self._batch.capacity):
            if self._cancelled.is_set():
                return False
            chunk = ids[start : start + self._batch.capacity]
            self._batch.clear()
            self._batch.add_sequence(chunk, len(self._cached), 0, output_last=True)
            self._cached += chunk
            try:
                self._context.decode(self._batch)
            except BaseException:
                # Parts of the chunk may have been evaluated: the memory itself knows.
                del self._cached[self._context.memory.seq_pos_max(0) + 1 :]
                if self._cancelled.is_set():
                    return False
                raise
        return not self._cancelled.is_set()

    def cancel(self) -> None:
        """Stop the answer that is being generated. Idle: no-op."""
        self._cancelled.set()
        self._context.cancel()

    def reset(self) -> None:
        """Forget the conversation, not the system text."""
        self.turns.clear()
        self.last = None

    def close(self) -> None:
        """Free the context. Idempotent."""
        self._template.close()
        self._context.close()
