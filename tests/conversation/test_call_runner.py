"""Calls of one reply: several at once, each within its time, and an answer for each, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from causerie import ToolCall, ToolError, tool
from causerie.chat.tools import ToolBox
from causerie.conversation import _call_runner
from causerie.conversation._call_runner import CANCELLED, CallRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.chat.tools import Tool
    from causerie.conversation._call_runner import Planned

NEVER = threading.Event()  # functions that wait for it are left to themselves


@tool
def double(x: int) -> int:
    """Doubles."""
    return 2 * x


@tool
def fail(x: int) -> int:
    """Fails."""
    raise LookupError(f"no {x}")


def outcomes(
    *tools: Tool,
    calls: list[tuple[str, dict[str, Any]]],
    before: Callable[[CallRunner], None] | None = None,
    **options: Any,
) -> list[Planned]:
    runner = CallRunner(ToolBox(tools), **{"parallel": 8, "timeout": None, "fail_fast": False, **options})
    plans = runner.plan([ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls)])
    if before is not None:
        before(runner)
    asyncio.run(runner.run(plans))
    return plans


def texts(plans: list[Planned]) -> list[str]:
    return [plan.outcome.text for plan in plans if plan.outcome is not None]


class TestResults:
    def test_stand_in_the_order_of_the_calls(self) -> None:
        first_done = threading.Event()

        @tool
        def slow() -> str:
            """Waits for the other."""
            assert first_done.wait(30)
            return "slow"

        @tool
        def quick() -> str:
            """Does not wait."""
            first_done.set()
            return "quick"

        assert texts(outcomes(slow, quick, calls=[("slow", {}), ("quick", {})])) == ["slow", "quick"]

    def test_of_coroutines_functions_and_what_functions_leave_to_be_awaited(self) -> None:
        @tool
        async def coroutine(x: int) -> int:
            """Adds one."""
            await asyncio.sleep(0)
            return x + 1

        @tool
        def both(x: int) -> Any:
            """Leaves it to a coroutine."""
            return coroutine(x)

        calls = [("double", {"x": 2}), ("coroutine", {"x": 2}), ("both", {"x": 2})]
        assert texts(outcomes(double, coroutine, both, calls=calls)) == ["4", "3", "3"]

    def test_are_errors_where_there_is_none(self) -> None:
        @tool
        def no_json() -> object:
            """Gives what JSON cannot express."""
            return object()

        @tool
        def stop() -> None:
            """Ends an iteration that nobody began."""
            raise StopIteration

        @tool
        def gone() -> None:
            """Acts as if it had been cancelled."""
            raise asyncio.CancelledError

        calls: list[tuple[str, dict[str, Any]]] = [
            ("fail", {"x": 1}), ("other", {}), ("fail", {"x": "y"}), ("no_json", {}), ("stop", {}), ("gone", {}),
        ]  # fmt: skip
        plans = outcomes(fail, no_json, stop, gone, calls=calls)
        lookup, unknown, invalid, not_json, stopped, cancelled = texts(plans)
        assert lookup == "Error: LookupError: no 1"
        assert unknown.startswith("Error: there is no tool 'other' (known: fail,")
        assert "invalid arguments" in invalid
        assert not_json == "Error: TypeError: JSON has no form for a value of type object"
        assert "StopIteration" in stopped
        assert cancelled == "Error: gone was cancelled"
        assert all(plan.outcome is not None and isinstance(plan.outcome.error, Exception) for plan in plans)
        assert "Traceback" not in "".join(texts(plans))

    def test_keep_what_ends_a_program(self) -> None:
        @tool
        async def leave() -> None:
            """Leaves."""
            raise SystemExit(3)

        (plan,) = outcomes(leave, calls=[("leave", {})])
        assert plan.outcome is not None
        assert isinstance(plan.outcome.error, SystemExit)

    def test_tools_see_the_context_variables_of_whoever_runs_them(self) -> None:
        variable = contextvars.ContextVar("variable", default="")

        @tool
        def look() -> str:
            """Looks."""
            return variable.get()

        @tool
        async def look_too() -> str:
            """Looks too."""
            return variable.get()

        variable.set("seen")
        assert texts(outcomes(look, look_too, calls=[("look", {}), ("look_too", {})])) == ["seen", "seen"]


class TestLimits:
    @pytest.mark.parametrize("limit", [1, 3])
    def test_no_more_calls_at_once_than_wanted(self, limit: int) -> None:
        lock, running, most = threading.Lock(), 0, 0
        together = threading.Barrier(limit)

        @tool
        def work() -> None:
            """Waits until as many run as may."""
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            together.wait(30)
            with lock:
                running -= 1

        assert texts(outcomes(work, calls=[("work", {})] * 6, parallel=limit)) == ["null"] * 6
        assert most == limit

    def test_time_is_counted_from_the_start_of_a_call_and_frees_its_place(self) -> None:
        ended = []

        @tool
        def hang() -> None:
            """Never ends."""
            NEVER.wait()

        @tool
        async def hang_too() -> None:
            """Never ends."""
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        plans = outcomes(
            hang,
            hang_too,
            double,
            calls=[("hang", {}), ("hang_too", {}), ("double", {"x": 1})],
            parallel=1,
            timeout=0.05,
        )
        assert texts(plans) == [
            "Error: hang gave no result within 0.05 s",
            "Error: hang_too gave no result within 0.05 s",
            "2",
        ]
        assert ended == ["cancelled"]

    def test_a_coroutine_that_does_not_let_itself_be_cancelled_is_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_call_runner, "_GRACE", 0.01)
        let_go = False

        @tool
        async def stubborn() -> None:
            """Does not end."""
            while not let_go:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

        async def main() -> list[str]:
            nonlocal let_go
            runner = CallRunner(ToolBox([stubborn]), parallel=1, timeout=0.01, fail_fast=False)
            plans = runner.plan([ToolCall("a", "stubborn")])
            await runner.run(plans)
            let_go = True
            return texts(plans)

        assert asyncio.run(main()) == ["Error: stubborn gave no result within 0.01 s"]

    def test_no_call_is_started_once_one_has_failed_if_that_is_wanted(self) -> None:
        calls: list[tuple[str, dict[str, Any]]] = [("double", {"x": 1}), ("fail", {"x": 1}), ("double", {"x": 2})]
        for fail_fast in (False, True):
            *_, last = texts(outcomes(double, fail, calls=calls, parallel=1, fail_fast=fail_fast))
            assert last == ("Error: this call was not run, because another one failed" if fail_fast else "4")
        plans = outcomes(double, calls=[("other", {}), ("double", {"x": 2})], fail_fast=True)
        assert texts(plans)[1].startswith("Error: this call was not run")


class TestStopping:
    def test_functions_end_coroutines_are_cancelled_and_the_rest_does_not_begin(self) -> None:
        begun, stopped = threading.Barrier(3), threading.Event()
        seen = []

        @tool
        def function() -> str:
            """Goes on to its end."""
            begun.wait(30)
            assert stopped.wait(30)
            time.sleep(0.01)
            return "done"

        @tool
        async def coroutine() -> None:
            """Is cancelled."""
            await asyncio.to_thread(begun.wait, 30)
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cancelled")

        def stop_later(runner: CallRunner) -> None:
            def stop() -> None:
                begun.wait(30)
                time.sleep(0.05)
                runner.stop()
                stopped.set()

            threading.Thread(target=stop).start()

        calls = [("function", {}), ("coroutine", {}), ("function", {})]
        plans = outcomes(function, coroutine, calls=calls, parallel=2, before=stop_later)
        assert texts(plans) == ["done", CANCELLED, CANCELLED]
        assert seen == ["cancelled"]

    def test_before_the_start_nothing_runs(self) -> None:
        assert texts(outcomes(double, calls=[("double", {"x": 1})], before=CallRunner.stop)) == [CANCELLED]


class TestVerdicts:
    def test_refusals_are_told(self) -> None:
        runner = CallRunner(ToolBox([double]), parallel=1, timeout=None, fail_fast=False)
        plans = runner.plan([ToolCall(i, "double", {"x": 1}) for i in "abc"])
        for plan, verdict in zip(plans, (True, False, "too early"), strict=True):
            runner.decide(plan, verdict)
        assert plans[0].outcome is None
        assert texts(plans) == ["Error: this call was refused", "Error: this call was refused: too early"]
        with pytest.raises(TypeError, match="True, False or the reason"):
            runner.decide(plans[0], None)

    def test_invalid_calls_have_an_outcome_before_anybody_is_asked(self) -> None:
        runner = CallRunner(ToolBox([double]), parallel=1, timeout=None, fail_fast=False)
        (plan,) = runner.plan([ToolCall("a", "double", {})])
        assert plan.outcome is not None
        assert isinstance(plan.outcome.error, ToolError)
