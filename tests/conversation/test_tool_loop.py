"""`run` and its kin: calls are run, answered in order, and replied to; whatever happens, the history can go on."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripted import Script, calls, told, tools
from talking import FailingAt

from causerie import BusyError, Message, ToolError
from causerie.chat.tools import Tool
from causerie.chat.validation import open_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie import Conversation, Engine, Reply, ToolCall

QWEN = Path(__file__).resolve().parents[2] / "vendor/llama.cpp/models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
CANCELLED = "Error: this call was cancelled"


def one() -> dict[str, int]:
    return {"degrees": 3}


async def two() -> str:
    await asyncio.sleep(0)
    return "12:00"


def fail() -> None:
    raise LookupError("nothing there")


DEGREES = '{"degrees": 3}'
NEVER = threading.Event()  # functions that wait for it are left to themselves
Talk = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def warm(engine: Engine) -> Iterator[None]:
    """Keeps what all tests tell of the tools evaluated."""
    with engine.conversation(tools=tools(one, two), tool_format="generic") as chat:
        chat.add_user("Go.")
        chat.prefill()
        yield


@pytest.fixture
def talk(engine: Engine) -> Talk:
    """Makes a conversation with two tools, and the options that let the model say these texts."""

    def make(*texts: str, one: Callable[[], Any] = one, two: Callable[[], Any] = two) -> Any:
        chat = engine.conversation(tools=tools(one, two), tool_format="generic")
        return chat, {"samplers": Script(engine, *texts)}

    return make


def can_go_on(chat: Conversation, engine: Engine) -> bool:
    """Whether no call is open, and the next reply comes."""
    assert not open_calls(chat.messages)
    if chat.messages and chat.messages[-1].role == "tool":
        return bool(chat.respond(samplers=Script(engine, "Fine.")).text == "Fine.")
    return bool(chat.send("Well?", samplers=Script(engine, "Fine.")).text == "Fine.")


WHOLE = [
    ("user", "Go."),
    ("assistant", "one two"),
    ("tool", DEGREES),
    ("tool", "12:00"),
    ("assistant", "one"),
    ("tool", DEGREES),
    ("assistant", "Cold."),
]


class TestTheLoop:
    def test_runs_calls_until_a_reply_has_none(self, talk: Talk) -> None:
        texts = (calls("one", "two"), calls("one"), "Cold.")
        chat, options = talk(*texts)
        assert chat.run("Go.", **options).text == "Cold."
        assert told(chat.messages) == WHOLE
        assert [m.name for m in chat.messages if m.role == "tool"] == ["one", "two", "one"]

        chat, options = talk(*texts)
        with chat.stream_run("Go.", **options) as stream:
            chunks = list(stream)
        assert "".join(chunk.text for chunk in chunks if chunk.kind == "text") == stream.text == "Cold."
        assert [c.tool_call.name for c in chunks if c.tool_call] == ["one", "two", "one"]
        assert told(chat.messages) == WHOLE

    def test_for_asyncio(self, talk: Talk) -> None:
        async def main() -> None:
            texts = (calls("one", "two"), calls("one"), "Cold.")
            chat, options = talk(*texts)
            assert (await chat.arun("Go.", **options)).text == "Cold."
            assert told(chat.messages) == WHOLE
            chat, options = talk(*texts)
            async with chat.astream_run("Go.", **options) as stream:
                chunks = [chunk async for chunk in stream]
            assert "".join(chunk.text for chunk in chunks if chunk.kind == "text") == "Cold."
            assert (await stream.reply()).text == "Cold."
            assert told(chat.messages) == WHOLE

        asyncio.run(main())

    def test_with_the_format_of_a_template(self, engine: Engine) -> None:
        chat = engine.conversation("Go.", template=QWEN.read_text("utf-8"))
        call = 'Let me see.\n<tool_call>\n{"name": "two", "arguments": {}}\n</tool_call>'
        assert chat.run("Go.", tools=tools(one, two)[1:], samplers=Script(engine, call, "Noon.")).text == "Noon."
        assert told(chat.messages)[2:] == [("assistant", "two"), ("tool", "12:00"), ("assistant", "Noon.")]

    def test_without_calls_is_a_send(self, talk: Talk, engine: Engine) -> None:
        chat, options = talk("Hello.")
        assert chat.run("Hi", **options).text == "Hello."
        chat = engine.conversation()
        assert chat.run("Hi", samplers=Script(engine, "Hello.")).text == "Hello."

    def test_may_begin_with_the_messages_as_they_stand(self, talk: Talk) -> None:
        chat, options = talk(calls("two"), "Noon.")
        chat.add_user("Go.")
        assert chat.run(**options).text == "Noon."
        assert [role for role, _ in told(chat.messages)] == ["user", "assistant", "tool", "assistant"]
        with pytest.raises(ValueError, match="last message"):
            chat.run(**options)

    def test_calls_are_required_of_the_first_reply_only(self, talk: Talk) -> None:
        for choice in ("required", {"name": "two"}):
            chat, options = talk(calls("two"), "Noon.")
            assert chat.run("Go.", tool_choice=choice, **options).text == "Noon."

    @pytest.mark.parametrize("seed", range(2))
    def test_what_is_generated_is_not_evaluated_again(self, talk: Talk, seed: int) -> None:
        chat, _ = talk("")
        first = chat.send("Go.", tool_choice="required", temperature=2.0, seed=seed, max_tokens=60)
        assert first.finish_reason in {"tool_calls", "length"}
        for call in first.tool_calls:
            chat.add_tool_result(call.id, "3")
        if first.finish_reason == "tool_calls":
            assert chat.respond(max_tokens=1).usage.cached_tokens >= first.usage.total_tokens


class TestErrors:
    def test_are_results(self, talk: Talk, engine: Engine) -> None:
        chat, options = talk(calls("one", "two"), "Sorry.", one=fail)
        assert chat.run("Go.", **options).text == "Sorry."
        assert told(chat.messages)[2:4] == [("tool", "Error: LookupError: nothing there"), ("tool", "12:00")]

    def test_or_raised_once_every_call_has_a_result(self, talk: Talk, engine: Engine) -> None:
        chat, options = talk(calls("two", "one", "two"), "Sorry.", one=fail)
        with pytest.raises(LookupError, match="nothing there"):
            chat.run("Go.", on_error="raise", parallel=1, **options)
        assert [text for role, text in told(chat.messages) if role == "tool"] == [
            "12:00",
            "Error: LookupError: nothing there",
            "Error: this call was not run, because another one failed",
        ]
        assert can_go_on(chat, engine)

    @pytest.mark.parametrize("on_error", ["result", "raise"])
    def test_arguments_that_do_not_match_are_errors_too(self, talk: Talk, engine: Engine, on_error: str) -> None:
        # What no grammar enforces is found when the call is run.
        numbers = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
        schema = {"name": "add", "parameters": {"properties": {"numbers": numbers}, "required": ["numbers"]}}
        add = Tool.from_schema(schema, lambda numbers: sum(numbers))
        chat = engine.conversation(tools=[add], tool_format="generic")
        call = '{"tool_calls": [{"name": "add", "arguments": {"numbers": [1, 1]}}]}'
        options = {"samplers": Script(engine, call, "Sorry.")}
        if on_error == "raise":
            with pytest.raises(ToolError, match="invalid arguments") as caught:
                chat.run("Go.", on_error=on_error, **options)
            assert caught.value.path == "$.numbers"
            assert can_go_on(chat, engine)
        else:
            assert chat.run("Go.", on_error=on_error, **options).text == "Sorry."
        assert "invalid arguments" in told(chat.messages)[2][1]

    def test_no_result_in_time(self, talk: Talk) -> None:
        chat, options = talk(calls("one", "two"), "Sorry.", one=lambda: NEVER.wait())
        assert chat.run("Go.", timeout=0.05, **options).text == "Sorry."
        assert told(chat.messages)[2:4] == [("tool", "Error: one gave no result within 0.05 s"), ("tool", "12:00")]

    def test_a_model_that_never_stops_calling(self, talk: Talk, engine: Engine) -> None:
        count = 0

        def again() -> int:
            nonlocal count
            count += 1
            return count

        chat, options = talk(calls("one"), one=again)
        with pytest.raises(ToolError, match="max_rounds=2") as caught:
            chat.run("Go.", max_rounds=2, **options)
        assert count == caught.value.rounds == 2
        assert [text for role, text in told(chat.messages) if role == "tool"] == [
            "1",
            "2",
            "Error: this call was not run: there have been 2 rounds of calls already",
        ]
        assert can_go_on(chat, engine)

    def test_of_the_model_leave_the_results_there(self, talk: Talk, engine: Engine) -> None:
        chat, options = talk(calls("two"))
        n = len(options["samplers"].ids[0])
        with pytest.raises(ZeroDivisionError):
            chat.run("Go.", samplers=[options["samplers"], FailingAt(n + 1)])
        assert told(chat.messages)[-1] == ("tool", "12:00")
        assert can_go_on(chat, engine)

    def test_of_the_caller_change_nothing(self, talk: Talk, engine: Engine) -> None:
        chat, _ = talk("Hello.")
        wrong: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"tools": [{"name": "f"}]}, ToolError),
            ({"tools": one}, TypeError),
            ({"max_rounds": 0}, ValueError),
            ({"max_rounds": 1.5}, TypeError),
            ({"parallel": 0}, ValueError),
            ({"parallel": True}, TypeError),
            ({"timeout": 0}, ValueError),
            ({"timeout": float("nan")}, ValueError),
            ({"timeout": "1"}, TypeError),
            ({"on_error": "ignore"}, ValueError),
            ({"approve": True}, TypeError),
            ({"n": 2}, ValueError),
            ({"max_token": 2}, TypeError),
            ({"tool_choice": {"name": "other"}}, ValueError),
        ]
        for options, error in wrong:
            with pytest.raises(error):
                chat.run("Hi", **options)
            with pytest.raises(error):
                asyncio.run(chat.arun("Hi", **options))
            assert chat.messages == ()
        assert can_go_on(chat, engine)


class TestApproval:
    def test_is_asked_for_each_call_before_any_runs(self, talk: Talk) -> None:
        events: list[str] = []
        verdicts = [True, False, "not today"]

        def approve(call: ToolCall) -> bool | str:
            events.append(f"ask for {call.name}")
            return verdicts[len(events) - 1]

        async def approve_later(call: ToolCall) -> bool | str:
            await asyncio.sleep(0)
            return approve(call)

        def act() -> str:
            events.append("act")
            return "done"

        for ask in (approve, approve_later):
            for run in ("run", "arun"):
                events.clear()
                chat, options = talk(calls("one", "two", "one"), "Well.", one=act)
                found = getattr(chat, run)("Go.", approve=ask, **options)
                if run == "arun":
                    asyncio.run(found)
                assert events == ["ask for one", "ask for two", "ask for one", "act"]
                assert [m.text for m in chat.messages if m.role == "tool"] == [
                    "done",
                    "Error: this call was refused",
                    "Error: this call was refused: not today",
                ]

    def test_a_function_is_asked_in_the_thread_that_runs(self, talk: Talk) -> None:
        asked = []
        chat, options = talk(calls("two"), "Noon.")
        chat.run("Go.", approve=lambda _: not asked.append(threading.current_thread()), **options)
        assert asked == [threading.current_thread()]

    @pytest.mark.parametrize(("answer", "error"), [(None, TypeError), (KeyboardInterrupt(), KeyboardInterrupt)])
    def test_that_goes_wrong_ends_the_run(
        self, talk: Talk, engine: Engine, answer: BaseException | None, error: type[BaseException]
    ) -> None:
        def approve(call: ToolCall) -> Any:
            if answer is not None:
                raise answer

        chat, options = talk(calls("two", "two"))
        with pytest.raises(error):
            chat.run("Go.", approve=approve, **options)
        assert [m.text for m in chat.messages if m.role == "tool"] == [CANCELLED] * 2
        assert can_go_on(chat, engine)


class TestWhileItGoesOn:
    def test_the_conversation_is_busy_for_others_and_for_its_tools(self, talk: Talk, engine: Engine) -> None:
        found = []

        def meddle() -> str:
            add = lambda: chat.add_user("x")  # noqa: E731
            for attempt in (lambda: chat.send("x"), lambda: chat.run("x"), add, chat.fork, chat.rewind):
                with pytest.raises(BusyError, match="tools are being run"):
                    attempt()
                found.append(attempt)
            return f"{len(chat.messages)} messages"

        async def meddle_too() -> str:
            with pytest.raises(BusyError, match="tools are being run"):
                await chat.asend("x")
            return "tried"

        for run in ("run", "arun"):
            chat, options = talk(calls("one", "two"), "Hm.", one=meddle, two=meddle_too)
            waiting = getattr(chat, run)("Go.", **options)
            if run == "arun":
                asyncio.run(waiting)
            assert told(chat.messages)[2:4] == [("tool", "2 messages"), ("tool", "tried")]
        assert len(found) == 10
        assert can_go_on(chat, engine)

    def test_it_may_have_begun_while_somebody_else_was_about_to(self, talk: Talk) -> None:
        chat, _ = talk("")
        lock = chat._lock

        class Late:
            """Whoever takes it finds that a run has begun meanwhile."""

            def acquire(self, blocking: bool = True) -> bool:
                chat._run = chat._new_run(None, 8, 8, None, "result", None, {})
                return lock.acquire(blocking)

            def release(self) -> None:
                lock.release()

        chat._lock = Late()
        with pytest.raises(BusyError):
            chat.add_user("x")
        assert chat.messages == ()

    def test_tools_may_use_other_conversations(self, talk: Talk, engine: Engine) -> None:
        def ask() -> str:
            return engine.conversation().send("Hi", samplers=Script(engine, "Hello.")).text

        async def ask_too() -> str:
            return (await engine.conversation().asend("Hi", samplers=Script(engine, "Hello too."))).text

        chat, options = talk(calls("one", "two"), "Fine.", one=ask, two=ask_too)
        chat.run("Go.", **options)
        assert told(chat.messages)[2:4] == [("tool", "Hello."), ("tool", "Hello too.")]

    @pytest.mark.parametrize("call", ["run", "arun"])
    def test_cancel_lets_a_function_end_and_begins_nothing_more(self, talk: Talk, engine: Engine, call: str) -> None:
        reached, cancelled = threading.Event(), threading.Event()
        seen = []

        def work() -> str:
            reached.set()
            assert cancelled.wait(30)
            return "done"

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cancelled")

        chat, options = talk(calls("two", "one", "one"), "No.", one=work, two=wait)

        def cancel() -> None:
            assert reached.wait(30)
            chat.cancel()
            cancelled.set()

        thread = threading.Thread(target=cancel)
        thread.start()
        found: Any = getattr(chat, call)("Go.", parallel=2, **options)
        reply: Reply = asyncio.run(found) if inspect.isawaitable(found) else found
        thread.join()
        assert reply.finish_reason == "cancelled"
        assert reply.tool_calls
        assert told(chat.messages)[2:] == [("tool", CANCELLED), ("tool", "done"), ("tool", CANCELLED)]
        assert seen == ["cancelled"]
        assert can_go_on(chat, engine)

    def test_cancel_by_a_tool_or_while_a_call_is_approved(self, talk: Talk, engine: Engine) -> None:
        def stop() -> str:
            chat.cancel()
            return "stopped"

        chat, options = talk(calls("one"), "No.", one=stop)
        assert chat.run("Go.", **options).finish_reason == "cancelled"
        assert told(chat.messages)[-1] == ("tool", "stopped")
        assert can_go_on(chat, engine)
        chat, options = talk(calls("one"), "No.", one=stop)
        assert chat.run("Go.", approve=lambda _: chat.cancel() or True, **options).finish_reason == "cancelled"
        assert told(chat.messages)[-1] == ("tool", CANCELLED)

    @pytest.mark.parametrize("kind", ["function", "coroutine"])
    def test_ctrl_c(self, talk: Talk, engine: Engine, kind: str) -> None:
        main, seen = threading.main_thread().ident, []
        assert main is not None

        def function() -> None:
            signal.pthread_kill(main, signal.SIGINT)
            NEVER.wait()

        async def coroutine() -> None:
            signal.pthread_kill(main, signal.SIGINT)
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cancelled")

        waits = function if kind == "function" else coroutine
        chat, options = talk(calls("one", "two"), "No.", two=waits)
        with pytest.raises(KeyboardInterrupt):
            chat.run("Go.", parallel=1, **options)
        assert told(chat.messages)[2:] == [("tool", DEGREES), ("tool", CANCELLED)]
        assert seen == (["cancelled"] if kind == "coroutine" else [])
        assert can_go_on(chat, engine)

    def test_a_tool_that_ends_the_program(self, talk: Talk, engine: Engine) -> None:
        def leave() -> None:
            raise SystemExit(3)

        chat, options = talk(calls("one"), "No.", one=leave)
        with pytest.raises(SystemExit):
            chat.run("Go.", **options)
        assert can_go_on(chat, engine)

    def test_a_task_that_is_cancelled(self, talk: Talk, engine: Engine) -> None:
        seen = []

        async def main() -> None:
            begun = asyncio.Event()

            async def wait() -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    seen.append("cancelled")

            chat, options = talk(calls("one", "two"), "No.", two=wait)
            task = asyncio.create_task(chat.arun("Go.", parallel=1, **options))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert seen == ["cancelled"]
            assert told(chat.messages)[2:] == [("tool", DEGREES), ("tool", CANCELLED)]
            assert can_go_on(chat, engine)

        asyncio.run(main())

    def test_closing_the_conversation_ends_it(self, talk: Talk) -> None:
        def close() -> None:
            chat.close()

        chat, options = talk(calls("one"), "No.", one=close)
        with pytest.raises(RuntimeError, match="closed"):
            chat.run("Go.", **options)


class TestStreams:
    def test_that_are_dropped_or_closed_stop_the_run(self, talk: Talk, engine: Engine) -> None:
        for drop in (True, False):
            chat, options = talk(calls("two"), "Noon, or a little later.")
            stream = chat.stream_run("Go.", **options)
            for chunk in stream:
                if chunk.kind == "text":
                    break
            with pytest.raises(BusyError):
                chat.send("x")
            if drop:
                del stream
                gc.collect()
            else:
                stream.close()
                assert stream.reply.finish_reason == "cancelled"
                stream.close()
            assert told(chat.messages)[2] == ("tool", "12:00")
            assert told(chat.messages)[3][1].startswith("N")
            assert can_go_on(chat, engine)

    def test_that_are_closed_among_the_calls_leave_none_open(self, talk: Talk, engine: Engine) -> None:
        chat, options = talk(calls("two"), "Noon.")
        with chat.stream_run("Go.", **options) as stream:
            for chunk in stream:
                if chunk.kind == "tool_call":
                    break
        assert not [m for m in chat.messages if m.text == "12:00"]
        assert can_go_on(chat, engine)

    def test_for_asyncio_too(self, talk: Talk, engine: Engine) -> None:
        async def main() -> None:
            chat, options = talk(calls("two"), "Noon.")
            async with chat.astream_run("Go.", **options) as stream:
                async for chunk in stream:
                    if chunk.kind == "tool_call":
                        break
            await stream.aclose()
            assert not open_calls(chat.messages)
            never = chat.astream_run("Go.", **options)
            await never.aclose()
            with pytest.raises(RuntimeError, match="closed"):
                await never.reply()
            assert can_go_on(chat, engine)

        asyncio.run(main())

    def test_that_failed_tell_so_again(self, talk: Talk) -> None:
        chat, options = talk(calls("one"), one=fail)
        stream = chat.stream_run("Go.", on_error="raise", **options)
        with pytest.raises(LookupError):
            list(stream)
        assert list(stream) == []
        with pytest.raises(LookupError):
            _ = stream.reply


def test_no_thread_is_left(talk: Talk) -> None:
    before = threading.active_count()
    chat, options = talk(calls("one", "two"), "Fine.")
    chat.run("Go.", **options)
    assert threading.active_count() <= before
    assert isinstance(chat.messages[-1], Message)
