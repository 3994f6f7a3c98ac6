"""cancel(): from any thread, at any time, and the next reply is right and comes at once."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from talking import Dictation, Gate, fresh, spoken

if TYPE_CHECKING:
    from causerie import Conversation, Engine

QUESTION = "Tell me a story."
GREEDY = {"temperature": 0, "max_tokens": 8}


def continues_as_fresh(chat: Conversation, engine: Engine) -> bool:
    other = fresh(chat, engine)
    ours, theirs = (c.send("Go on.", **GREEDY, logprobs=True) for c in (chat, other))
    return (ours.text, ours.logprobs) == (theirs.text, theirs.logprobs)


class TestFromAnotherThread:
    def test_ends_the_reply_and_keeps_what_there_is(self, engine: Engine) -> None:
        chat = engine.conversation()
        gate = Gate(5)

        def cancel() -> None:
            gate.reached.wait(60)
            chat.cancel()
            gate.open.set()

        thread = threading.Thread(target=cancel)
        thread.start()
        reply = chat.send(QUESTION, temperature=0, samplers=gate)
        thread.join()
        assert reply.finish_reason == "cancelled"
        assert 5 <= reply.usage.completion_tokens <= 6
        assert reply.text
        assert spoken(chat) == [("user", QUESTION), ("assistant", reply.text)]
        assert chat.report is not None
        assert chat.report.finish_reason == "cancelled"
        assert continues_as_fresh(chat, engine)

    def test_before_the_first_token_nothing_is_added(self, engine: Engine) -> None:
        chat = engine.conversation()
        stream = chat.stream(QUESTION, temperature=0)
        chat.cancel()
        assert list(stream) == []
        assert stream.reply.message is None
        assert (stream.reply.text, stream.reply.finish_reason) == ("", "cancelled")
        assert spoken(chat) == [("user", QUESTION)]
        assert chat.respond(**GREEDY).text == engine.conversation().send(QUESTION, **GREEDY).text

    def test_during_a_long_prefill(self, engine: Engine) -> None:
        text = "word " * 1500
        for act in (lambda chat: chat.respond(temperature=0), lambda chat: chat.prefill()):
            chat = engine.conversation(messages=[{"role": "user", "content": text}])
            timer = threading.Timer(0.3, chat.cancel)
            timer.start()
            began = time.perf_counter()
            found = act(chat)
            seconds = time.perf_counter() - began
            assert found is None or found.finish_reason == "cancelled"
            assert seconds < 3  # the whole takes some ten
            assert chat.messages[-1].role == "user"
            chat.reset()
            assert continues_as_fresh(chat, engine)

    def test_a_stream_ends_with_what_there_is(self, engine: Engine) -> None:
        chat = engine.conversation()
        stream = chat.stream(QUESTION, temperature=0)
        seen = [next(stream), next(stream)]
        threading.Thread(target=chat.cancel).start()
        seen += stream
        assert stream.reply.finish_reason == "cancelled"
        assert "".join(chunk.text for chunk in seen) == stream.reply.text == chat.messages[-1].text


class TestOtherwise:
    def test_idle_it_does_nothing(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.cancel()
        expected = chat.send(QUESTION, **GREEDY).text
        chat.cancel()
        assert chat.report is not None
        assert chat.report.finish_reason == "length"
        assert spoken(chat) == [("user", QUESTION), ("assistant", expected)]
        assert continues_as_fresh(chat, engine)

    def test_the_next_send_may_follow_before_the_stream_is_read(self, engine: Engine) -> None:
        chat = engine.conversation()
        stream = chat.stream(QUESTION, temperature=0)
        next(stream)
        chat.cancel()
        assert chat.send("Go on.", **GREEDY).finish_reason == "length"
        assert stream.reply.finish_reason == "cancelled"
        assert [role for role, _ in spoken(chat)] == ["user", "assistant", "user", "assistant"]

    def test_in_the_middle_of_a_character(self, engine: Engine) -> None:
        chat = engine.conversation()
        dictation = Dictation(engine, "漢🚀", end=False)
        gate = Gate(len(dictation.ids) - 1)
        stream = chat.stream("x", temperature=0, samplers=[dictation, gate])
        threading.Thread(target=lambda: (gate.reached.wait(60), chat.cancel(), gate.open.set())).start()
        text = "".join(chunk.text for chunk in stream)
        assert text.startswith("漢")
        assert stream.reply.text == text == chat.messages[-1].text
        assert chat.send("y", **GREEDY).text

    def test_a_stream_while_another_conversation_goes_on(self, engine: Engine) -> None:
        alone = engine.conversation().send(QUESTION, **GREEDY, logprobs=True)
        chat, other = engine.conversation(), engine.conversation()
        stream = chat.stream("Count.", temperature=0)
        beside = other.stream(QUESTION, **GREEDY, logprobs=True)
        next(stream)
        next(beside)
        chat.cancel()
        assert (beside.reply.text, beside.reply.logprobs) == (alone.text, alone.logprobs)

    def test_again_and_again_from_many_threads(self, engine: Engine) -> None:
        """Whatever it hits, the history stays in order and the conversation usable."""
        chat = engine.conversation()
        stop = threading.Event()

        def pester() -> None:
            while not stop.is_set():
                chat.cancel()
                len(chat.messages)
                time.sleep(0.002)

        threads = [threading.Thread(target=pester) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(12):
                chat.send(f"Say {number}.", temperature=0, max_tokens=3)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert [text for role, text in spoken(chat) if role == "user"] == [f"Say {n}." for n in range(12)]
        assert continues_as_fresh(engine.conversation(), engine)


class TestTasks:
    def test_a_task_that_is_cancelled_stops_its_reply(self, engine: Engine) -> None:
        async def main() -> None:
            chat = engine.conversation()
            task = asyncio.create_task(chat.asend(QUESTION, temperature=0))
            await asyncio.sleep(0.4)
            assert engine.stats().running
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            undisturbed = fresh(chat, engine)
            reply = await chat.asend("Go on.", **GREEDY)  # at once
            assert not engine.stats().running
            assert reply.text == (await undisturbed.asend("Go on.", **GREEDY)).text

        asyncio.run(main())

    @pytest.mark.parametrize("delay", [0.0, 0.0005, 0.002, 0.01])
    def test_also_while_it_is_being_started(self, engine: Engine, delay: float) -> None:
        async def main() -> None:
            chat = engine.conversation()
            task = asyncio.create_task(chat.asend(QUESTION, temperature=0))
            await asyncio.sleep(delay)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            chat.reset()
            assert (await chat.asend(QUESTION, **GREEDY)).text == expected

        expected = engine.conversation().send(QUESTION, **GREEDY).text
        asyncio.run(main())

    def test_a_timeout(self, engine: Engine) -> None:
        async def main() -> Any:
            chat = engine.conversation()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(chat.asend(QUESTION, temperature=0), 0.3)
            return chat.messages

        assert asyncio.run(main())[0].role == "user"
        assert not engine.stats().running
