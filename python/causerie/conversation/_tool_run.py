"""One run of the loop that calls tools: what it may do, how far it has come, and what its calls came to."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from causerie.chat.messages import Message
from causerie.conversation._call_runner import CANCELLED, CallRunner
from causerie.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from causerie.chat.tool_call import ToolCall
    from causerie.chat.tools import ToolBox
    from causerie.conversation._call_runner import Planned
    from causerie.conversation.reply import Reply

__all__ = ["ToolRun"]

_stepping: ContextVar[ToolRun | None] = ContextVar("stepping", default=None)


class ToolRun:
    """A run of the loop. It knows nothing of the conversation that it is in.

    Args:
        tools: what may be called.
        max_rounds: how many replies may have their calls run.
        parallel: most calls that run at the same time.
        timeout: seconds for each call; None: no limit.
        on_error: "result" tells the model what went wrong, "raise" raises it once all calls have a result.
        approve: is asked about each call before it runs.
        options: those of each reply.

    Raises:
        TypeError, ValueError: an argument is wrong.
        ToolError: a tool has no function.
    """

    def __init__(
        self,
        tools: ToolBox,
        *,
        max_rounds: int,
        parallel: int,
        timeout: float | None,
        on_error: str,
        approve: Callable[[ToolCall], Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        for name, value in (("max_rounds", max_rounds), ("parallel", parallel)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
            raise TypeError(f"timeout must be seconds or None, not {type(timeout).__name__}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be more than 0 seconds, not {timeout}")
        if on_error not in {"result", "raise"}:
            raise ValueError(f'on_error must be "result" or "raise", not {on_error!r}')
        if approve is not None and not callable(approve):
            raise TypeError(f"approve needs something to call, not {type(approve).__name__}")
        if options.get("n") not in {None, 1}:
            raise ValueError("a run has one reply after the other: n must be 1")
        if without := [tool.name for tool in tools if tool.function is None]:
            raise ToolError(
                f"tool {without[0]} has no function that could be called: give it one, or answer its calls yourself "
                "(send, add_tool_result, respond)",
                tool=without[0],
            )
        self.approve = approve
        self.runner = CallRunner(tools, parallel=parallel, timeout=timeout, fail_fast=on_error == "raise")
        self.plans: list[Planned] = []
        self._raises = on_error == "raise"
        self._max_rounds = max_rounds
        self._rounds = 0
        self._options = dict(options)
        # Calls that do not match their tool are told to the model, like everything else that goes wrong.
        self._options.setdefault("validate_calls", False)
        self._options.setdefault("n", 1)

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled it."""
        return self.runner.stopped

    def options(self) -> dict[str, Any]:
        """Those of the next reply: only the first one has to call tools."""
        if self._rounds and self._options.get("tool_choice", "auto") not in ("auto", "none"):
            return {**self._options, "tool_choice": "auto"}
        return self._options

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Inside, this thread does what the run itself does."""
        token = _stepping.set(self)
        try:
            yield
        finally:
            _stepping.reset(token)

    def is_stepping(self) -> bool:
        """Whether this thread does what the run itself does."""
        return _stepping.get() is self

    def begin_round(self, reply: Reply) -> list[Planned]:
        """The calls of a reply that are to be run, those that cannot be with the reason.

        Raises:
            ToolError: there have been so many rounds already; none of the calls was run.
        """
        self.plans = self.runner.plan(reply.tool_calls)
        if self.cancelled or reply.finish_reason == "cancelled":
            self.runner.stopped = True
            return []
        if self._rounds == self._max_rounds:
            for plan in self.plans:
                plan.refuse(f"this call was not run: there have been {self._max_rounds} rounds of calls already")
            raise ToolError(
                f"the model still asks for tools after max_rounds={self._max_rounds} rounds of calls: go on with "
                'respond(tool_choice="none"), or with run()',
                rounds=self._rounds,
                reply=reply,
            )
        self._rounds += 1
        return [plan for plan in self.plans if plan.outcome is None]

    def results(self, calls: tuple[ToolCall, ...]) -> list[Message]:
        """An answer to each of these calls: what it came to, or that it was cancelled."""
        known = {plan.call.id: plan.outcome.text for plan in self.plans if plan.outcome is not None}
        return [Message("tool", known.get(c.id, CANCELLED), tool_call_id=c.id, name=c.name) for c in calls]

    def end_round(self, reply: Reply) -> Reply | None:
        """Once all is answered: the reply with which the run ends, because it was cancelled; None: it goes on.

        Raises:
            BaseException: what a call raised: with ``on_error="raise"``, or where it is no `Exception`.
        """
        for plan in self.plans:
            error = None if plan.outcome is None else plan.outcome.error
            if error is not None and (self._raises or not isinstance(error, Exception)):
                raise error
        return replace(reply, finish_reason="cancelled") if self.cancelled else None
