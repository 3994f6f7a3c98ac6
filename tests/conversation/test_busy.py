"""Misuse by threads, the end of an engine and of a process, and what may not be copied."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from talking import Gate, spoken

from causerie import BusyError, ClosedError, Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.llama import Model

QUESTION = "Tell me a story."


def in_thread(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


class TestTwoThreadsOnOneConversation:
    def test_the_second_gets_busy_error_and_the_first_goes_on(self, engine: Engine) -> None:
        chat = engine.conversation()
        gate = Gate(2)
        replies = []
        thread = in_thread(lambda: replies.append(chat.send(QUESTION, temperature=0, max_tokens=4, samplers=gate)))
        assert gate.reached.wait(60)
        for call in (lambda: chat.send("x"), chat.fork, chat.rewind, lambda: chat.add_user("x"), chat.prefill):
            with pytest.raises(BusyError):
                call()
        assert spoken(chat) == [("user", QUESTION)]  # may be read
        gate.open.set()
        thread.join()
        assert replies[0].text == engine.conversation().send(QUESTION, temperature=0, max_tokens=4).text

    def test_of_many_senders_at_once_each_either_speaks_or_is_told(self, engine: Engine) -> None:
        chat = engine.conversation()
        outcomes: list[str] = []

        def send(number: int) -> None:
            try:
                chat.send(f"I am {number}.", temperature=0, max_tokens=3)
                outcomes.append("spoke")
            except BusyError:
                outcomes.append("busy")

        for thread in [in_thread(lambda i=i: send(i)) for i in range(8)]:  # type: ignore[misc]
            thread.join()
        assert len(outcomes) == 8
        assert outcomes.count("spoke") * 2 == len(chat.messages)
        assert [role for role, _ in spoken(chat)] == ["user", "assistant"] * outcomes.count("spoke")


class TestTheEndOfAnEngine:
    def test_ends_eight_streams_with_closed_error(self, model: Model) -> None:
        engine = Engine(model, n_ctx=1024, n_threads=1)
        begun, results = threading.Barrier(9), []

        def read() -> None:
            stream = engine.conversation().stream(QUESTION, temperature=0)
            next(stream)
            begun.wait(60)
            try:
                list(stream)
            except Exception as error:
                results.append(error)

        threads = [in_thread(read) for _ in range(8)]
        begun.wait(60)
        engine.close()
        for thread in threads:
            thread.join(30)
        assert [type(error) for error in results] == [ClosedError] * 8

    def test_leaves_what_was_said_to_be_read(self, model: Model) -> None:
        engine = Engine(model, n_ctx=256, n_threads=1)
        chat, other = engine.conversation(), engine.conversation()
        chat.send("Hi.", temperature=0, max_tokens=2)
        said = chat.messages
        stream = other.stream(QUESTION, temperature=0)
        next(stream)
        engine.close()
        engine.close()
        assert chat.messages == said
        assert chat.report is not None
        assert chat.closed
        with pytest.raises(ClosedError):
            list(stream)
        stream.close()
        assert spoken(other) == [("user", QUESTION)]
        for call in (lambda: chat.send("x"), chat.fork, chat.tokenize, engine.conversation, engine.stats):
            with pytest.raises(ClosedError, match="this engine is closed"):
                call()
        chat.close()

    def test_a_conversation_closed_while_it_streams(self, engine: Engine) -> None:
        chat = engine.conversation()
        stream = chat.stream(QUESTION, temperature=0)
        first = next(stream).text
        chat.close()
        rest = "".join(chunk.text for chunk in stream)
        assert stream.reply.finish_reason == "cancelled"
        assert stream.reply.text == first + rest
        assert spoken(chat) == [("user", QUESTION), ("assistant", first + rest)]
        assert engine.stats().running == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork here")
def test_a_forked_child_is_told_to_make_its_own(smollm2_path: Any) -> None:
    code = """
import os, sys, causerie
engine = causerie.Engine(sys.argv[1], n_ctx=256, n_threads=1)
chat = engine.conversation()
stream = chat.stream("Tell me a story.", temperature=0)
next(stream)
child = os.fork()
if not child:
    good = 0
    for call in (lambda: next(stream), lambda: chat.send("x"), lambda: chat.messages, engine.conversation, engine.stats):
        try:
            call()
        except causerie.ClosedError as error:
            good += "os.fork" in str(error)
        except StopIteration:
            pass
    chat.cancel(); chat.close(); engine.close()
    del stream, chat, engine
    os._exit(good)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
stream.close()
print(len(chat.send("Go on.", temperature=0, max_tokens=2).text) > 0)
"""
    result = subprocess.run([sys.executable, "-c", code, smollm2_path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["5", "True"]


SYNC = "stream = chat.stream('Tell me a story.'); next(stream)"
THREAD = """
import threading, time
threading.Thread(target=lambda: list(chat.stream('Tell me a story.', max_tokens=-1)), daemon=True).start()
time.sleep(0.3)
"""
TASK = """
import asyncio
async def main():
    task = asyncio.create_task(chat.asend('Tell me a story.'))
    await asyncio.sleep(0.3)
asyncio.run(main())
"""
LOOP = """
import asyncio
async def main():
    stream = chat.astream('Tell me a story.')
    await anext(stream)
    sys.exit(0)
asyncio.run(main())
"""


@pytest.mark.parametrize("act", [SYNC, THREAD, TASK, LOOP], ids=["sync", "thread", "task", "loop"])
def test_the_end_of_the_process_mid_stream_is_silent(smollm2_path: Any, act: str) -> None:
    code = f"import sys, causerie\nengine = causerie.Engine(sys.argv[1], n_ctx=512, n_threads=1)\nchat = engine.conversation()\n{act}"
    began = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code, smollm2_path], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert time.monotonic() - began < 20


class TestCopies:
    def test_are_refused(self, engine: Engine) -> None:
        chat = engine.conversation()
        for thing in (chat, engine):
            for act in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="native memory"):
                    act(thing)

    def test_replies_and_messages_are_plain_data(self, engine: Engine) -> None:
        chat = engine.conversation("s")
        reply = chat.send("Hi.", temperature=0, max_tokens=2, logprobs=1)
        assert pickle.loads(pickle.dumps(reply)) == reply
        assert pickle.loads(pickle.dumps(chat.messages)) == chat.messages
        assert copy.deepcopy(chat.report) == chat.report
