"""Conversations that run the tools a model asks for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat import validation
from causerie.conversation._talking import Talking
from causerie.conversation._tool_run import ToolRun
from causerie.conversation.run_stream import AsyncRunStream, RunStream, Steps
from causerie.conversation.tool_offer import as_toolbox
from causerie.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from causerie.chat.content import ContentLike
    from causerie.chat.tool_call import ToolCall
    from causerie.chat.tools import ToolLike
    from causerie.conversation.reply import Reply
    from causerie.conversation.turn import Turn

__all__ = ["ToolLoop"]


class ToolLoop(Talking):
    """The loop around replies that ask for tools: it calls them, answers, and asks for the next reply."""

    _run: ToolRun | None = None

    def run(
        self,
        content: ContentLike | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        max_rounds: int = 8,
        parallel: int = 8,
        timeout: float | None = None,
        on_error: Literal["result", "raise"] = "result",
        approve: Callable[[ToolCall], bool | str | Awaitable[bool | str]] | None = None,
        **options: Any,
    ) -> Reply:
        """Send a message, run the tools that the model asks for, and reply with their results, until it asks for none.

        Functions run in threads, coroutines on an event loop that lives as long as the run. Results join the history in
        the order of the calls, once all of a reply's calls have one. While the run goes on, the conversation is busy
        for everybody else, the tools included; `cancel` ends it after the functions that run (coroutines are
        cancelled), and calls that did not run are answered with "cancelled".

        Args:
            content: as for `send`; None: reply to the messages as they stand, as `respond` does.
            tools: what may be called, each with a function; None: the conversation's tools.
            max_rounds: how many replies may have their calls run.
            parallel: most calls that run at the same time.
            timeout: seconds for each call, from its start; None: no limit. A function that takes longer is left to
                itself.
            on_error: what goes wrong in a call (an exception, an unknown tool, arguments that do not match, no result
                in time) is told to the model in a line, "result"; or raised, "raise", once each call has a result.
            approve: is given each call before any of the reply's calls runs: True runs it, False or a text with the
                reason does not, which the model is told. May be a coroutine function.
            **options: for each of the replies, as for `send`. A ``tool_choice`` that asks for calls is for the first.

        Returns:
            The last reply. If the run was cancelled its finish_reason is "cancelled".

        Raises:
            ToolError: a tool has no function; nothing has changed. Or: the model asks for tools once more after the
                last round; those calls were not run, and are answered so that `respond` or another run can go on.
            BaseException: as `send`; what a call raised, with ``on_error="raise"``; what ``approve`` raised. All calls
                have a result in the history then.
        """
        run = self._new_run(tools, max_rounds, parallel, timeout, on_error, approve, options)
        return RunStream(self, run, self._steps(run, content)).reply

    def stream_run(
        self,
        content: ContentLike | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        max_rounds: int = 8,
        parallel: int = 8,
        timeout: float | None = None,
        on_error: Literal["result", "raise"] = "result",
        approve: Callable[[ToolCall], bool | str | Awaitable[bool | str]] | None = None,
        **options: Any,
    ) -> RunStream:
        """As `run`, giving the chunks of all replies while they come."""
        run = self._new_run(tools, max_rounds, parallel, timeout, on_error, approve, options)
        return RunStream(self, run, self._steps(run, content))

    async def arun(
        self,
        content: ContentLike | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        max_rounds: int = 8,
        parallel: int = 8,
        timeout: float | None = None,
        on_error: Literal["result", "raise"] = "result",
        approve: Callable[[ToolCall], bool | str | Awaitable[bool | str]] | None = None,
        **options: Any,
    ) -> Reply:
        """As `run`, for asyncio: coroutines run on the loop of this task; ``approve``, if a function, in a thread."""
        run = self._new_run(tools, max_rounds, parallel, timeout, on_error, approve, options)
        return await AsyncRunStream(self, run, self._steps(run, content), self._engine.pump).reply()

    def astream_run(
        self,
        content: ContentLike | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        max_rounds: int = 8,
        parallel: int = 8,
        timeout: float | None = None,
        on_error: Literal["result", "raise"] = "result",
        approve: Callable[[ToolCall], bool | str | Awaitable[bool | str]] | None = None,
        **options: Any,
    ) -> AsyncRunStream:
        """As `stream_run`, for asyncio; it begins with the first chunk that is awaited."""
        run = self._new_run(tools, max_rounds, parallel, timeout, on_error, approve, options)
        return AsyncRunStream(self, run, self._steps(run, content), self._engine.pump)

    def _new_run(
        self,
        tools: Iterable[ToolLike] | None,
        max_rounds: int,
        parallel: int,
        timeout: float | None,
        on_error: str,
        approve: Callable[[ToolCall], Any] | None,
        options: dict[str, Any],
    ) -> ToolRun:
        box = self._settings.offer.tools if tools is None else as_toolbox(tools)
        return ToolRun(
            box,
            max_rounds=max_rounds,
            parallel=parallel,
            timeout=timeout,
            on_error=on_error,
            approve=approve,
            options={**options, "tools": box},
        )

    def _steps(self, run: ToolRun, content: ContentLike | None) -> Steps:
        return Steps(
            lambda: self._begin_run(run, content),
            lambda: self._go_on(run),
            lambda: self._answer_calls(run),
            lambda: self._end_run(run),
        )

    def _begin_run(self, run: ToolRun, content: ContentLike | None) -> Turn:
        with run.stepping(), self._idle():
            self._run = run
            try:
                return self._go_on(run, content)
            except BaseException:
                self._run = None
                raise

    def _go_on(self, run: ToolRun, content: ContentLike | None = None) -> Turn:
        with run.stepping():
            options = run.options()
            turn = self._begin_respond(options) if content is None else self._begin_send(content, options)
        if run.cancelled:  # before there was a turn that could be
            turn.cancel()
        return turn

    def _answer_calls(self, run: ToolRun) -> None:
        """Give each open call of a run its result; all at once."""
        if self._run is not run:
            return
        with run.stepping(), self._idle():
            history = self._history
            for message in run.results(validation.open_calls(history.messages)):
                history = history.append(message)
            self._history = history

    def _end_run(self, run: ToolRun) -> None:
        if self._run is run:
            self._run = None

    @contextmanager
    def _idle(self, *, in_policy: bool = False) -> Iterator[None]:
        self._require_no_run()
        with super()._idle(in_policy=in_policy):
            self._require_no_run()  # one may have begun meanwhile
            yield

    def _require_no_run(self) -> None:
        run = self._run
        if run is not None and not run.is_stepping():
            raise BusyError("tools are being run in this conversation: wait until the run has ended, or cancel it")

    def _cancel(self) -> None:
        run = self._run
        if run is not None:
            run.runner.stop()
        super()._cancel()
