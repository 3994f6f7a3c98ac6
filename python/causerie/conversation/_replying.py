"""How a conversation generates: who may use it, and how a reply begins, is waited for and joins the history."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat import validation
from causerie.chat.options import resolve
from causerie.conversation._surfacing import surfacing
from causerie.conversation.answering import Answering
from causerie.conversation.candidate import Candidate
from causerie.conversation.constraint import begun_reply
from causerie.conversation.joining import joined, unfinished_character
from causerie.conversation.overflow import fitted
from causerie.conversation.reply import Report
from causerie.conversation.transforms import started
from causerie.conversation.turn import Turn
from causerie.errors import BusyError, ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from causerie.chat.content import ContentLike
    from causerie.chat.prompt import Encoded
    from causerie.conversation.constraint import Constraint
    from causerie.conversation.engine import Engine
    from causerie.conversation.history import History
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
        self._settling = threading.RLock()
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
    def _idle(self, *, in_policy: bool = False) -> Iterator[None]:
        """Use the conversation while nothing is being generated, and nobody else does.

        Args:
            in_policy: whether the overflow policy may do this too.
        """
        self.require_open()
        if not self._lock.acquire(blocking=False):
            raise BusyError("another thread is using this conversation")
        try:
            if self._in_policy and not in_policy:
                raise BusyError("the overflow policy may look at the conversation and fork it, and not change it")
            turn = self._turn
            if turn is not None:
                if not turn.ending:
                    raise BusyError("a reply is being generated in this conversation: read it to its end, or cancel it")
                turn.wait()
                self.settle(turn)
            yield
        except (StopIteration, StopAsyncIteration) as error:  # of a transform, or the overflow policy
            raise surfacing(error)  # noqa: B904 - see there
        finally:
            self._lock.release()

    def _settle_dropped(self) -> None:
        """Let a reply whose stream was dropped, or that has ended unread, join the history."""
        self._engine.require_process()
        turn = self._turn
        if turn is not None and turn.ending:
            turn.wait()
            self.settle(turn)

    def _cancel(self) -> None:
        turn, prefilling = self._turn, self._prefilling
        if turn is not None:
            turn.cancel()
        if prefilling is not None:
            self._engine.cancel(prefilling)

    # ---- prompts ----

    def _preview(self, content: ContentLike | None) -> Encoded:
        self.require_open()
        self._settle_dropped()
        history, settings = self._history, self._settings
        if content is not None:
            history = history.append(settings.user_message(content))
        return settings.encode(history)

    def _fitted(
        self, history: History, settings: Settings, how: How, max_tokens: int | None
    ) -> tuple[History, Encoded]:
        available = self._engine.n_ctx
        quarter = max(available // 4, 1)
        policy = settings.overflow
        return fitted(
            history,
            lambda which: settings.encode(which, continue_last=how == "continue"),
            available,
            policy=self._asking(policy, how) if callable(policy) else policy,
            reserve=min(max_tokens or quarter, quarter),
        )

    def _asking(self, policy: Callable[[Any], Any], how: How) -> Callable[[History], History]:
        """The user's own overflow policy: it is shown the conversation with the message it is about."""

        def ask(history: History) -> History:
            before, self._history = self._history, history
            self._in_policy = True
            try:
                messages = policy(self)
            finally:
                self._in_policy = False
                self._history = before
            adopted = history.adopted(messages)
            if how == "new":
                validation.check_respond(adopted.messages)
            return adopted

        return ask

    @property
    def _unasking_settings(self) -> Settings:
        """The settings, with an overflow policy that does not call the user's function."""
        return replace(self._settings, overflow="trim") if callable(self._settings.overflow) else self._settings

    # ---- beginnings ----

    def _begin_send(self, content: ContentLike, options: Mapping[str, Any]) -> Turn:
        with self._idle():
            settings = self._settings.with_options(options)
            return self._start(self._history.append(settings.user_message(content)), settings)

    def _begin_respond(self, options: Mapping[str, Any]) -> Turn:
        with self._idle():
            validation.check_respond(self._history.messages)
            validation.check_answered(self._history.messages)
            return self._start(self._history, self._settings.with_options(options))

    def _begin_regenerate(self, options: Mapping[str, Any]) -> Turn:
        with self._idle():
            return self._start(self._history.unanswered(), self._settings.with_options(options))

    def _begin_resume(self, options: Mapping[str, Any]) -> Turn:
        with self._idle():
            last = self._history.messages[-1:]
            if not last or last[0].role != "assistant" or last[0].tool_calls:
                raise ValueError("there is nothing to go on with: the last message is not an assistant's text")
            asked = options.get("grammar"), options.get("response_format")
            under = self._history.constraints[-1] if asked == (None, None) else None
            return self._start(self._history, self._settings.with_options(options), how="continue", under=under)

    def _start(
        self, history: History, settings: Settings, how: How = "new", *, under: Constraint | None = None
    ) -> Turn:
        """Begin a reply to a history, which becomes the conversation's; all or nothing. Called while idle.

        Args:
            history: what it replies to.
            settings: of this call.
            how: whether it goes on with the last message.
            under: what that message has to follow as a whole.
        """
        options = resolve(settings.sampling, self._engine.sampling, model=self._engine.model)
        history, encoded = self._fitted(history, settings, how, options.max_tokens)
        goes_on = how == "continue"
        unfinished = unfinished_character(history, self._engine.model.vocab) if goes_on else b""
        begun = begun_reply(under, history.generated[-1], history.messages[-1].text, unfinished) if under else None
        answering = Answering(encoded, settings, options, self._engine.model, goes_on, unfinished, begun)
        with ExitStack() as undo:
            candidates = [self._candidate(index, answering, undo) for index in range(options.n or 1)]
            undo.pop_all()
        turn = Turn(self._engine, candidates, how)
        self._history, self._turn, self._context_full = history, turn, False
        return turn

    def _candidate(self, index: int, answering: Answering, undo: ExitStack) -> Candidate:
        engine, options, settings = self._engine, answering.options, answering.settings
        seed = None if options.seed is None else (options.seed + index) % (2**32 - 1)
        ids = answering.encoded.ids
        chooser = engine.chooser(answering.recipe(seed), ids)
        undo.callback(chooser.close)
        sequence = self._sequence
        if index:
            sequence = engine.sequence(f"{sequence.name} candidate {index}", sequence.adapters)
            undo.callback(engine.close_sequence, sequence)
        candidate = Candidate(
            engine.model.vocab, sequence, index,
            reader=answering.reader(),
            preserved=answering.preserved,
            logprobs=options.logprobs is not None,
            transform=started(settings.output_transforms),
            constraint=answering.constraint,
            text_before=answering.text_before,
            goes_on=answering.goes_on,
            before=answering.before,
            follows=answering.encoded.follows,
        )  # fmt: skip
        limit = answering.thinking_limit()
        candidate.generation = engine.generate(
            sequence, ids,
            chooser=chooser,
            max_tokens=options.max_tokens,
            sink=candidate,
            forcing=None if limit is None else engine.forcing(limit),
        )  # fmt: skip
        undo.callback(engine.cancel, candidate.generation)
        return candidate

    def _prefill(self) -> None:
        with self._idle():
            history = self._history
            if not history.messages:
                return
            pending = history.messages[-1].role in {"user", "tool"}
            if pending:
                # The last token is left to the reply, which needs what comes out of it.
                ids = self._fitted(history, self._unasking_settings, "new", None)[1].ids[:-1]
            else:
                ids = self._settings.encode(history, add_generation_prompt=False).ids
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

    # ---- ends ----

    def finish(self, turn: Turn) -> Reply:
        """Wait for the end of a reply, which joins the history.

        Raises:
            BaseException: what ended it; the history is as it was when it began.
        """
        try:
            turn.wait()
        except BaseException:
            turn.cancel()
            raise
        self.settle(turn)
        return turn.result()

    def settle(self, turn: Turn) -> None:
        """Let a reply that is done become part of the history, once; or note what ended it."""
        for candidate in turn.candidates:
            candidate.flush()
        with self._settling:
            if turn.settled:
                return
            try:
                self._history, turn.reply = joined(self._history, turn, self._engine.model.vocab)
                self._report = Report(turn.reply.finish_reason, turn.reply.usage, turn.reply.timings)
                self._context_full = turn.candidates[0].generation.context_full
            except BaseException as error:  # noqa: BLE001 - raised by whoever reads the reply
                turn.error = surfacing(error)
            finally:
                turn.settled = True
                if self._turn is turn:
                    self._turn = None
                for candidate in turn.candidates[1:]:
                    self._engine.close_sequence(candidate.sequence)
