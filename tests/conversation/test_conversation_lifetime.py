"""Nothing is left behind: without the garbage collector's help, and however many turns there were."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from talking import FailingAt

from causerie import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.llama import Model


@pytest.fixture
def no_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def rss() -> int:
    """Resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class TestWithoutTheCollector:
    def test_a_conversation_dies(self, engine: Engine, no_gc: None) -> None:
        chat = engine.conversation("s")
        chat.send("Hi.", temperature=0, max_tokens=2)
        dead = weakref.ref(chat)
        before = engine.stats().sequences
        del chat
        assert dead() is None
        assert engine.stats().sequences == before - 1

    def test_with_its_branches_and_candidates(self, engine: Engine, no_gc: None) -> None:
        before = engine.stats().sequences
        chat = engine.conversation()
        chat.send("Hi.", temperature=0, max_tokens=2, n=2)
        branch = chat.fork()
        dead = weakref.ref(chat), weakref.ref(branch)
        del chat, branch
        assert [ref() for ref in dead] == [None, None]
        assert engine.stats().sequences == before

    @pytest.mark.parametrize("chunks", [0, 2])
    def test_a_stream_dies_and_its_conversation_with_it(self, engine: Engine, no_gc: None, chunks: int) -> None:
        chat = engine.conversation()
        stream = chat.stream("Tell me a story.", temperature=0)
        for _ in range(chunks):
            next(stream)
        dead = weakref.ref(stream), weakref.ref(chat)
        del chat
        assert dead[1]() is not None  # the stream can be read on
        next(stream)
        del stream
        assert [ref() for ref in dead] == [None, None]
        assert engine.stats().running == 0

    def test_after_a_failure_was_handled(self, engine: Engine, no_gc: None) -> None:
        chat = engine.conversation()
        with pytest.raises(ZeroDivisionError):
            chat.send("Hi.", temperature=0, samplers=FailingAt(1))
        chat.send("Hi.", temperature=0, max_tokens=1)
        dead = weakref.ref(chat)
        del chat
        gc.collect()  # a traceback and what it tells of are a cycle
        assert dead() is None

    def test_an_engine_dies(self, model: Model, no_gc: None) -> None:
        engine = Engine(model, n_ctx=256, n_threads=1)
        engine.conversation().send("Hi.", temperature=0, max_tokens=1)
        dead = weakref.ref(engine)
        del engine
        assert dead() is None


class TestManyTurns:
    def test_leave_memory_flat(self, engine: Engine) -> None:
        chat = engine.conversation(template="{% for m in messages %}{{ m.content }}|{% endfor %}")  # a short prompt

        def turns(count: int) -> None:
            for number in range(count):
                if number % 8 == 0:
                    chat.reset()
                chat.send(f"{number % 16}", temperature=0, max_tokens=1)

        turns(40)
        gc.collect()
        blocks, resident = sys.getallocatedblocks(), rss()
        turns(100)
        gc.collect()
        assert sys.getallocatedblocks() - blocks < 1500  # a turn leaves none behind
        assert rss() - resident < 4 * 2**20

    def test_of_dropped_conversations_too(self, engine: Engine) -> None:
        def dropped(count: int) -> None:
            for number in range(count):
                stream: Any = engine.conversation().stream(f"{number % 16}", temperature=0)
                next(stream)

        grown = []
        for _ in range(4):
            dropped(20)
            gc.collect()
            grown.append((engine.stats().sequences, rss()))
        assert len({sequences for sequences, _ in grown}) == 1
        # One round may meet an allocator that asks for more; a leak grows in each.
        assert min(after - before for (_, before), (_, after) in pairwise(grown)) < 2**20
