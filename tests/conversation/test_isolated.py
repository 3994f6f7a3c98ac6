"""`Engine(isolate=True)`: the same conversations, and a helper that may die."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from talking import EXACT, HOT, kill

from causerie import (
    ClosedError,
    Engine,
    GrammarError,
    HelperDiedError,
    ModelLoadError,
    NativeError,
    StateWarning,
    ToolError,
    UnsupportedError,
    tool,
)
from causerie.chat.choosing import ChooserRecipe
from causerie.chat.options import SamplingOptions
from causerie.engine.isolated import IsolatedTokenEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causerie.llama import Model

GREEDY = {"temperature": 0, "max_tokens": 12}
LONG = {"temperature": 0, "max_tokens": 400}
QUESTION = "Name three colours of the sea."


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # no such folder here
        return True
    return status.rpartition(")")[2].split()[0] != "Z"  # a zombie has ended: somebody has yet to ask


def gone(pid: int, seconds: float = 15) -> bool:
    """Whether a process ends within that time."""
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def isolated(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, isolate=True, n_ctx=2048, **EXACT) as made:
        yield made


@pytest.fixture
def make(smollm2_path: Path) -> Iterator[Callable[..., Any]]:
    made: list[Engine] = []

    def one(**options: Any) -> Engine:
        made.append(Engine(smollm2_path, isolate=True, **{"n_ctx": 1024, **EXACT, **options}))
        return made[-1]

    yield one
    for engine in made:
        engine.close()


class TestTheSame:
    """Whatever is asked, the answer is that of an engine in this process."""

    def test_it_is_an_engine(self, isolated: Engine) -> None:
        assert isinstance(isolated, Engine)
        assert isinstance(isolated, IsolatedTokenEngine)
        assert isolated.helper_pid not in {None, os.getpid()}
        assert isolated.n_ctx == 2048

    def test_the_helper_knows_whether_somebody_reads_along(
        self, isolated: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remote: Any = isolated._remote  # type: ignore[attr-defined]
        sent: list[str] = []
        send = remote._send

        def spy(name: str, *arguments: Any) -> None:
            sent.append(name)
            send(name, *arguments)

        monkeypatch.setattr(remote, "_send", spy)
        chat = isolated.conversation()
        chat.send(QUESTION, **GREEDY)
        assert [name for name in sent if name in {"generate", "unwatch"}] == ["generate", "unwatch"]
        sent.clear()
        assert len(list(chat.stream(QUESTION, **GREEDY))) > 3
        assert "unwatch" not in sent
        assert not remote._unwatched

    @pytest.mark.parametrize(
        "options",
        [
            GREEDY,
            {**HOT, "seed": 7, "max_tokens": 12},
            {**GREEDY, "logprobs": 3},
            {**GREEDY, "repeat_penalty": 1.5, "dry_multiplier": 0.8},
            {**GREEDY, "logit_bias": {28: -5.0, 30: -float("inf")}},
            {"temperature": 1.2, "seed": 3, "grammar": 'root ::= "red" | "green" | "blue"'},
            {"temperature": 0, "response_format": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "max_tokens": 30},
            {**GREEDY, "stop": ["sea"]},
            {**HOT, "seed": 1, "n": 3, "max_tokens": 6},
        ],
    )  # fmt: skip
    def test_replies(self, isolated: Engine, engine: Engine, options: dict[str, Any]) -> None:
        here, there = (each.conversation("Be brief.") for each in (engine, isolated))
        for question in (QUESTION, "And of the sky?"):
            expected, found = here.send(question, **options), there.send(question, **options)
            assert found.text == expected.text
            assert found.finish_reason == expected.finish_reason
            assert found.usage == expected.usage or question == QUESTION  # the engine of all tests may have cached more
            assert found.logprobs == expected.logprobs
            assert [c.text for c in found.candidates] == [c.text for c in expected.candidates]
            assert found.parsed == expected.parsed
        assert there.messages == here.messages
        assert there.tokenize().tolist() == here.tokenize().tolist()
        assert found.usage.cached_tokens > 0
        timings = found.timings
        assert 0 <= timings.queue <= timings.total
        assert timings.first_token is not None

    def test_streams_and_tasks(self, isolated: Engine) -> None:
        text = isolated.conversation().send(QUESTION, **GREEDY).text
        assert "".join(chunk.text for chunk in isolated.conversation().stream(QUESTION, **GREEDY)) == text

        async def ask() -> list[str]:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.005)

            ticker = asyncio.create_task(tick())
            replies = await asyncio.gather(*(isolated.conversation().asend(QUESTION, **GREEDY) for _ in range(3)))
            ticker.cancel()
            assert ticks > 3
            return [reply.text for reply in replies]

        assert asyncio.run(ask()) == [text] * 3

    def test_going_back_and_branching(self, isolated: Engine, engine: Engine) -> None:
        def program(which: Engine) -> list[Any]:
            chat = which.conversation("Be brief.")
            told: list[Any] = [chat.send(QUESTION, **GREEDY).text, chat.regenerate(**HOT, seed=4, max_tokens=5).text]
            told.append(chat.resume(**GREEDY).text)
            branch = chat.fork()
            told += [chat.send("One more.", **GREEDY).text, branch.send("Two more.", **GREEDY).text]
            chat.rewind()
            chat.edit(1, "Name a bird.")
            chat.prefill()
            return [*told, chat.respond(**GREEDY).text, chat.messages, branch.messages]

        assert program(isolated) == program(engine)

    def test_a_fork_shares_cells(self, make: Callable[..., Any]) -> None:
        chat = make().conversation("Be brief.")
        chat.send(QUESTION, **GREEDY)
        branch = chat.fork()
        assert branch.send("And?", **GREEDY).usage.cached_tokens >= chat.token_count - 2
        assert chat._engine.stats().cells_shared > 0
        assert len(chat._engine.cache_map().entries) >= 2

    def test_tools_are_called_here(self, isolated: Engine, engine: Engine) -> None:
        asked: list[tuple[int, str]] = []

        @tool
        def colour(name: str) -> str:
            """Tell a colour."""
            asked.append((os.getpid(), name))
            return "green"

        options = {"tools": [colour], "tool_format": "generic", "temperature": 0, "max_tokens": 40}
        expected = engine.conversation().send("Which colour has grass?", tool_choice="required", **options)
        found = isolated.conversation().send("Which colour has grass?", tool_choice="required", **options)
        assert found.tool_calls
        assert [(c.name, c.arguments) for c in found.tool_calls] == [(c.name, c.arguments) for c in expected.tool_calls]
        with pytest.raises(ToolError, match="max_rounds"):
            isolated.conversation().run("Which colour has grass?", tool_choice="required", max_rounds=1, **options)
        assert asked
        assert {pid for pid, _ in asked} == {os.getpid()}

    def test_transforms_run_here(self, isolated: Engine) -> None:
        from causerie import KeywordRemover

        plain = isolated.conversation().send(QUESTION, **GREEDY).text
        word = plain.split()[1]
        chat = isolated.conversation(output_transform=KeywordRemover([word]))
        assert word not in chat.send(QUESTION, **GREEDY).text
        assert word in chat.messages[-1].content

    def test_many_threads(self, isolated: Engine) -> None:
        texts: dict[int, str] = {}

        def talk(k: int) -> None:
            chat = isolated.conversation(f"The number is {k}.")
            texts[k] = chat.send("Which number?", **GREEDY).text + chat.send("Sure?", **GREEDY).text

        threads = [threading.Thread(target=talk, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        together = dict(texts)
        for k in (0, 5):
            talk(k)
            assert texts[k] == together[k]

    def test_what_is_saved_goes_on_anywhere(self, isolated: Engine, engine: Engine, tmp_path: Path) -> None:
        for first, second in ((isolated, engine), (engine, isolated)):
            chat = first.conversation("Be brief.")
            chat.send(QUESTION, **GREEDY)
            chat.save(tmp_path / "chat.causerie")
            restored = second.load_conversation(tmp_path / "chat.causerie", cache="require")
            again = second.restore(chat.snapshot())
            expected = chat.send("Another?", **GREEDY)
            for other in (restored, again):
                found = other.send("Another?", **GREEDY)
                assert found.text == expected.text
                assert found.usage.cached_tokens >= expected.usage.cached_tokens - 1


class TestRefused:
    def test_samplers_in_python(self, isolated: Engine) -> None:
        chat = isolated.conversation()
        with pytest.raises(UnsupportedError, match="sampler"):
            chat.send(QUESTION, samplers=[lambda row: None])
        assert chat.messages == ()
        assert chat.send(QUESTION, **GREEDY).text

    def test_what_cannot_be_sent(self, smollm2_path: Path, model: Model) -> None:
        with pytest.raises(UnsupportedError, match="loaded model"):
            Engine(model, isolate=True)
        for options in ({"progress": lambda _: None}, {"eval_callback": lambda *_: True}):
            with pytest.raises(UnsupportedError, match="another process"):
                Engine(smollm2_path, isolate=True, **options)

    def test_what_the_helper_refuses_is_raised_here(self, smollm2_path: Path, tmp_path: Path) -> None:
        (tmp_path / "bad.gguf").write_bytes(b"GGUF\3\0\0\0nothing")
        with pytest.raises(ModelLoadError):
            Engine(tmp_path / "bad.gguf", isolate=True)
        with pytest.raises(ValueError, match="max_resident"):
            Engine(smollm2_path, isolate=True, max_resident=-1)
        with pytest.raises(TypeError):
            Engine(smollm2_path, isolate=True, nonsense=1)

    def test_a_bad_grammar_changes_nothing(self, isolated: Engine) -> None:
        chat = isolated.conversation()
        with pytest.raises(GrammarError):
            chat.send(QUESTION, grammar="root ::= (")
        assert chat.messages == ()

    def test_too_long(self, isolated: Engine) -> None:
        with pytest.raises(ValueError, match="tokens"):
            isolated.conversation().send("sea " * 3000)

    def test_a_recipe_survives_pickling(self, model: Model) -> None:
        options = SamplingOptions(temperature=0.5, logit_bias={5: 1.0, 6: -float("inf")}, stop=["a"], logprobs=2)
        recipe = pickle.loads(pickle.dumps(ChooserRecipe(options, 3, None, (1, 2))))
        assert recipe == ChooserRecipe(options, 3, None, (1, 2))
        with recipe.make(model, [1, 2, 3]).chain as chain:
            assert {"logit-bias", "temp", "dist"} <= set(chain.names)


class TestDeath:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGTERM])
    def test_replies_in_flight_fail_and_the_next_goes_on(
        self, make: Callable[..., Any], engine: Engine, number: signal.Signals
    ) -> None:
        isolated = make()
        chat, other, idle = (isolated.conversation("Be brief.") for _ in range(3))
        said = idle.send("Hello.", **GREEDY).text
        streams = chat.stream(QUESTION, **LONG), other.stream("Tell a long story.", **LONG)
        for stream in streams:
            next(stream)
        pid = isolated.helper_pid
        os.kill(pid, number)
        for stream in streams:
            with pytest.raises(HelperDiedError, match=number.name) as caught:
                for _ in stream:
                    pass
            assert caught.value.exit_code == -number
        assert [message.content for message in chat.messages] == ["Be brief.", QUESTION]
        assert idle.messages[-1].content == said
        undisturbed = engine.conversation("Be brief.").send(QUESTION, **GREEDY)
        reply = chat.respond(**GREEDY)
        assert reply.text == undisturbed.text
        assert reply.usage.cached_tokens == 0
        assert isolated.helper_pid not in {None, pid}
        again = engine.conversation("Be brief.", messages=[*idle.messages[1:]])
        assert idle.send("And you?", **GREEDY).text == again.send("And you?", **GREEDY).text
        assert idle.fork().send("Why?", **GREEDY).usage.cached_tokens > 0

    def test_blocking_calls_and_tasks_fail_too(self, make: Callable[..., Any]) -> None:
        isolated = make()

        def kill_soon() -> None:
            while not isolated._remote._active:
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(isolated.helper_pid, signal.SIGKILL)

        for ask in (
            lambda chat: chat.send(QUESTION, **LONG),
            lambda chat: asyncio.run(chat.asend(QUESTION, **LONG)),
        ):
            threading.Thread(target=kill_soon).start()
            with pytest.raises(HelperDiedError):
                ask(isolated.conversation())
        assert isolated.conversation().send(QUESTION, **GREEDY).text

    def test_while_nothing_runs_it_is_not_noticed(self, make: Callable[..., Any]) -> None:
        isolated = make()
        chat = isolated.conversation()
        first = chat.send(QUESTION, **GREEDY).text
        kill(isolated)
        assert chat.send("And?", **GREEDY).text
        assert chat.messages[1].content == first
        kill(isolated)
        assert isolated.stats().sequences == 1
        kill(isolated)
        branch = chat.fork()
        assert branch.messages == chat.messages
        assert chat.snapshot().state is None
        assert branch.send("Why?", **GREEDY).text

    def test_a_helper_that_cannot_start_again_is_tried_anew(self, smollm2_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        path.symlink_to(smollm2_path)
        with Engine(path, isolate=True, n_ctx=512, **EXACT) as isolated:
            chat = isolated.conversation()
            kill(isolated)
            path.unlink()
            for _ in range(2):
                with pytest.raises(ModelLoadError):
                    chat.send(QUESTION, **GREEDY)
                assert chat.messages == ()
            path.symlink_to(smollm2_path)
            assert chat.send(QUESTION, **GREEDY).text

    def test_a_sequence_state_that_was_lost_is_evaluated_again(self, make: Callable[..., Any]) -> None:
        isolated = make()
        chat = isolated.conversation()
        chat.send(QUESTION, **GREEDY)
        snapshot = chat.snapshot()
        assert snapshot.state is not None
        kill(isolated)
        restored = isolated.restore(snapshot)
        assert restored.send("And?", **GREEDY).usage.cached_tokens > 0
        damaged = replace(snapshot, state=replace(snapshot.state, data=b"nonsense"))
        with pytest.warns(StateWarning, match="evaluated again"):
            isolated.restore(damaged)

    def test_behind_a_failed_check_another_helper_goes_on(self, make: Callable[..., Any]) -> None:
        isolated = make()
        chat, pid = isolated.conversation(), isolated.helper_pid
        stream = chat.stream(QUESTION, **LONG)
        next(stream)
        (number,) = isolated._remote._active
        isolated._remote._on_ended(number, "error", NativeError("a check failed", aborted=True), False)
        with pytest.raises(NativeError, match="a check failed"):
            list(stream)
        assert chat.respond(**GREEDY).text
        assert isolated.helper_pid not in {None, pid}


class TestEnds:
    def test_cancel(self, isolated: Engine) -> None:
        chat = isolated.conversation()
        stream = chat.stream("Tell a long story.", **LONG)
        next(stream)
        begun = time.monotonic()
        chat.cancel()
        reply = stream.reply
        assert reply.finish_reason == "cancelled"
        assert time.monotonic() - begun < 5
        assert chat.messages[-1].content == reply.message.content
        assert chat.send("Go on.", **GREEDY).text

    def test_a_dropped_stream_is_left_alone(self, make: Callable[..., Any]) -> None:
        isolated = make()
        chat = isolated.conversation()
        for _ in chat.stream("Tell a long story.", temperature=0, max_tokens=900):
            break
        gc.collect()
        time.sleep(1.5)
        steps = isolated.stats().steps
        time.sleep(1)
        assert isolated.stats().steps <= steps + 1
        assert chat.send("Hello.", **GREEDY).text

    def test_closing_ends_the_helper(self, smollm2_path: Path) -> None:
        isolated = Engine(smollm2_path, isolate=True, n_ctx=512)
        pid = isolated.helper_pid
        chat = isolated.conversation()
        stream = chat.stream(QUESTION, **LONG)
        next(stream)
        isolated.close()
        isolated.close()
        assert gone(pid)
        with pytest.raises(ClosedError):
            list(stream)
        for call in (lambda: chat.send("x"), isolated.stats, isolated.conversation):
            with pytest.raises(ClosedError):
                call()

    def test_dropping_the_engine_ends_the_helper(self, smollm2_path: Path) -> None:
        isolated = Engine(smollm2_path, isolate=True, n_ctx=512)
        pid = isolated.helper_pid
        del isolated
        gc.collect()
        assert gone(pid)

    def test_what_is_parked_on_disk_is_removed(self, smollm2_path: Path, tmp_path: Path) -> None:
        folder = tmp_path / "parked"
        with Engine(smollm2_path, isolate=True, n_ctx=512, parking_folder=folder) as isolated:
            assert isolated.conversation().send(QUESTION, **GREEDY).text
        assert not folder.exists() or not list(folder.iterdir())

    @pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit(0)", "pass"])
    def test_the_helper_ends_with_the_program(self, smollm2_path: Path, end: str) -> None:
        code = f"""
import os, sys
from causerie import Engine
engine = Engine({str(smollm2_path)!r}, isolate=True, n_ctx=512)
stream = engine.conversation().stream("Tell a long story.", max_tokens=400)
next(stream)
print(engine.helper_pid, flush=True)
{end}
"""
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
        )
        assert result.stderr == ""
        assert gone(int(result.stdout))

    def test_ctrl_c_is_the_programs(self, smollm2_path: Path) -> None:
        code = f"""
import os, signal, threading, time
from causerie import Engine
engine = Engine({str(smollm2_path)!r}, isolate=True, n_ctx=512)
chat = engine.conversation()
pid = engine.helper_pid
def interrupt():
    while not engine._remote._active:  # until it writes
        time.sleep(0.01)
    time.sleep(0.1)
    os.killpg(0, signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    chat.send("Tell a long story.", max_tokens=400, temperature=0)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", len(chat.messages))
print(bool(chat.send("Hello.", max_tokens=3).text), engine.helper_pid == pid)
engine.close()
"""
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True, text=True, timeout=120, start_new_session=True,
        )  # fmt: skip
        assert result.stderr == ""
        first, second = result.stdout.splitlines()
        assert first.startswith("interrupted")
        assert second == "True True"
