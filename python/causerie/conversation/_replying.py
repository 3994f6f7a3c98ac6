"""How a conversation generates: who may use it, how a prompt is made to fit, and how replies join the history."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat import validation
from causerie.chat.messages import Message, as_message
from causerie.chat.options import resolve
from causerie.chat.sampling_chain import sampling_chain
from causerie.chat.text_ids import text_ids
from causerie.chat.utf8 import Utf8Assembler
from causerie.conversation.candidate import Candidate
from causerie.conversation.overflow import overflow_error, trimmed
from causerie.conversation.reply import Report
from causerie.conversation.turn import Turn
from causerie.errors import BusyError, ClosedError, UnsupportedError
from causerie.llama.step import Chooser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.chat.content import Content
    from causerie.chat.options import SamplingOptions
    from causerie.chat.prompt import Encoded
    from causerie.conversation.engine import Engine
    from causerie.conversation.history import History, Ids
    from causerie.conversation.reply import Reply
    from causerie.conversation.settings import Settings
    from causerie.engine import Generation, Sequence

__all__ = ["Replying"]

How = Literal["new", "continue"]


class Replying:
    """The state of a conversation, and what `Conversation` is made of.

    `_lock` is held by the thread that changes something; `_turn` is a reply that is being generated. The history
    changes under the lock only, or when a turn joins it, which happens once and before the turn is given up.
    """

    def __init__(self, engine: Engine, sequence: Sequence, settings: Settings, history: History) -> None:
        self._engine = engine
        self._sequence = sequence
        self._settings = settings
        self._history = history
        self._lock = threading.RLock()
        self._joining = threading.RLock()
        self._turn: Turn | None = None
        self._prefilling: Generation | None = None
        self._report: Report | None = None
        self._context_full = False
        self._closed = False
        self._in_policy = False

    # ---- who may use it ----

    def require_open(self) -> None:
        if self._closed:
            raise ClosedError("this conversation is closed")
        self._engine.require_open()

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """Use the conversation while nothing is being generated, and nobody else does."""
        self.require_open()
        if not self._lock.acquire(blocking=False):
            raise BusyError("another thread is using this conversation")
        try:
            turn = self._turn
            if turn is not None:
                if not (turn.done or turn.cancelled):
                    raise BusyError("a reply is being generated in this conversation: read it to its end, or cancel it")
                turn.wait()
                turn.settle()
            yield
        finally:
            self._lock.release()

    def _settle_dropped(self) -> None:
        """Let a reply whose stream was dropped, or that has ended unread, join the history."""
        self._engine.require_process()
        turn = self._turn
        if turn is not None and (turn.done or turn.cancelled) and not self._engine.closed:
            turn.wait()
            turn.settle()

    def _cancel(self) -> None:
        turn, prefilling = self._turn, self._prefilling
        if turn is not None:
            turn.cancel()
        if prefilling is not None:
            self._engine.cancel(prefilling)

    # ---- prompts ----

    def _user_message(self, content: Content, settings: Settings) -> Message:
        message = as_message({"role": "user", "content": content})
        if not isinstance(message.content, str):
            kinds = {part["type"] for part in message.content} - {"text"}
            if kinds:
                raise UnsupportedError(f"this model takes text only, not {', '.join(sorted(kinds))}")
        elif settings.input_transforms:
            text = message.content
            for transform in settings.input_transforms:
                text = transform(text)
            message = Message("user", text)
        return message

    def _encode(self, history: History, settings: Settings, **how: Any) -> Encoded:
        if settings.history_transform is not None:
            history = history.adopted(settings.history_transform(history.messages))
        return settings.encoder.encode(
            history.messages,
            history.generated,
            template_kwargs=settings.template_kwargs,
            thinking=settings.thinking,
            **how,
        )

    def _preview(self, content: Content | None) -> Encoded:
        self.require_open()
        self._settle_dropped()
        history, settings = self._history, self._settings
        if content is not None:
            history = history.append(self._user_message(content, settings))
        return self._encode(history, settings)

    def _fitted(
        self, history: History, settings: Settings, how: How, max_tokens: int | None
    ) -> tuple[History, Encoded]:
        """The history and its prompt, changed by the overflow policy if it does not fit."""
        available = self._engine.n_ctx

        def encode(which: History) -> Encoded:
            return self._encode(which, settings, **({"continue_last": True} if how == "continue" else {}))

        encoded = encode(history)
        needed = len(encoded.ids) + 1
        if needed <= available:
            return history, encoded
        policy = settings.overflow
        if policy == "trim":
            quarter = max(available // 4, 1)
            return trimmed(history, encode, available, min(max_tokens or quarter, quarter))
        if policy != "error" and not self._in_policy:
            history = self._asked(history, settings)
            encoded = encode(history)
            needed = len(encoded.ids) + 1
            if needed <= available:
                return history, encoded
        alone = len(encode(history.trimmed(max(history.n_turns - 1, 0))).ids) + 1
        raise overflow_error(needed, alone, available)

    def _asked(self, history: History, settings: Settings) -> History:
        """What the user's own overflow policy makes of the history."""
        before, self._history = self._history, history
        self._in_policy = True
        try:
            messages = settings.overflow(self)  # type: ignore[operator,arg-type]  # the caller has seen to it
        finally:
            self._in_policy = False
            self._history = before
        adopted = history.adopted(messages)
        validation.check_respond(adopted.messages)
        return adopted

    @property
    def _fork_settings(self) -> Settings:
        """Those of a branch; one made by an overflow policy must not ask that policy again."""
        return replace(self._settings, overflow="trim") if self._in_policy else self._settings

    # ---- generating ----

    def _start(self, history: History, settings: Settings, how: How = "new") -> Turn:
        """Begin a reply to a history, which becomes the conversation's; all or nothing. Called while idle."""
        options = resolve(settings.sampling, self._engine.sampling, model=self._engine.model)
        history, encoded = self._fitted(history, settings, how, options.max_tokens)
        before = _unfinished_character(history, self._engine) if how == "continue" else None
        with ExitStack() as undo:
            candidates = [
                self._candidate(index, encoded, settings, options, before, undo) for index in range(options.n or 1)
            ]
            undo.pop_all()
        turn = Turn(self._engine, candidates, how, self._join)
        self._history, self._turn, self._context_full = history, turn, False
        return turn

    def _candidate(
        self,
        index: int,
        encoded: Encoded,
        settings: Settings,
        options: SamplingOptions,
        before: bytes | None,
        undo: ExitStack,
    ) -> Candidate:
        engine = self._engine
        seed = None if options.seed is None else (options.seed + index) % (2**32 - 1)
        choice = sampling_chain(options, engine.model, seed=seed)
        undo.callback(choice.close)
        choice.prime(encoded.ids)
        sequence = self._sequence
        if index:
            sequence = engine.sequence(f"{sequence.name} candidate {index}")
            undo.callback(engine.close_sequence, sequence)
        candidate = Candidate(
            engine.model.vocab, sequence, index,
            stops=tuple(options.stop or ()),
            logprobs=options.logprobs is not None,
            transform=None if settings.output_transform is None else settings.output_transform(),
            before=before,
        )  # fmt: skip
        chooser = Chooser(choice.chain, grammar=choice.grammar, preselect=choice.preselect, n_top=options.logprobs)
        candidate.generation = engine.generate(
            sequence, encoded.ids, chooser=chooser, max_tokens=options.max_tokens, sink=candidate
        )
        undo.callback(engine.cancel, candidate.generation)
        return candidate

    @staticmethod
    def _wait(turn: Turn) -> Reply:
        try:
            turn.wait()
        except BaseException:
            turn.cancel()
            raise
        return turn.finish()

    def _prefill(self) -> None:
        with self._idle():
            messages = self._history.messages
            if not messages:
                return
            pending = messages[-1].role in {"user", "tool"}
            # The last token is left to the reply, which needs what comes out of it.
            ids = self._encode(self._history, self._settings, add_generation_prompt=pending).ids[
                : -1 if pending else None
            ]
            if not ids:
                return
            self._prefilling = generation = self._engine.generate(self._sequence, ids, chooser=None)
            try:
                self._engine.wait(generation)
            except BaseException:
                self._engine.cancel(generation)
                raise
            finally:
                self._prefilling = None
            if generation.error is not None:
                raise generation.error

    # ---- joining ----

    def _join(self, turn: Turn) -> None:
        """Let a reply that has ended become part of the history, once; or note what ended it."""
        with self._joining:
            if turn.committed:
                return
            try:
                errors = [generation.error for generation in turn.generations if generation.error is not None]
                for candidate in turn.candidates:
                    candidate.flush()
                if errors:
                    turn.error = errors[0]
                else:
                    turn.reply = self._joined(turn)
            except BaseException as error:  # noqa: BLE001 - raised by whoever reads the reply
                turn.error = error
            finally:
                turn.committed = True
                if self._turn is turn:
                    self._turn = None
                for candidate in turn.candidates[1:]:
                    self._engine.close_sequence(candidate.sequence)

    def _joined(self, turn: Turn) -> Reply:
        first, *others = turn.candidates
        text, ids = first.raw_text, first.ids()
        generation = first.generation
        message: Message | None = None
        if turn.how == "continue":
            message = self._continued(text, ids)
        elif text or ids or generation.finish_reason == "stop":
            message = Message("assistant", text)
            self._history = self._history.append(message, ids or None)
        replies = [candidate.reply(Message("assistant", candidate.raw_text)) for candidate in others]
        reply = first.reply(message)
        if replies:
            reply = replace(reply, candidates=(reply, *replies))
        self._report = Report(reply.finish_reason, reply.usage, reply.timings)
        self._context_full = generation.context_full
        return reply

    def _continued(self, text: str, ids: Ids) -> Message:
        """The last message with what was added to it."""
        last, known = self._history.messages[-1], self._history.generated[-1]
        content = last.content if isinstance(last.content, str) else "".join(p["text"] for p in last.content)
        if known is None:
            known = tuple(text_ids(self._engine.model.vocab, content))
        elif _unfinished_character(self._history, self._engine):
            content = content[:-1]  # it stood for the bytes that the new text begins with
        message = replace(last, content=content + text)
        self._history = self._history.with_last(message, (*known, *ids))
        return message


def _unfinished_character(history: History, engine: Engine) -> bytes:
    """The bytes at the end of the last message that are the beginning of a character only."""
    ids, content = history.generated[-1], history.messages[-1].content
    if ids is None or not isinstance(content, str) or not content.endswith("\ufffd"):
        return b""
    assembler = Utf8Assembler()
    for token in ids:
        assembler.feed(engine.model.vocab.piece(token, special=False))
    return assembler.pending
