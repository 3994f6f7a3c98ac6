"""Where nobody reads along many tokens are chosen in one go, and nobody else has to wait for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from causerie import Engine
from causerie.engine import _pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causerie.llama import Model

LONG = 250
PROMPT = "Count as far as you can, and do not stop."


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are run in one go until something ends them."""
    monkeypatch.setattr(_pace, "_UNWATCHED", 1e9)
    monkeypatch.setattr(_pace, "_MOST_TIMES", 1000)


@pytest.fixture
def engine(smollm2: Model, endless: None) -> Iterator[Engine]:
    """Replies go on to the last token."""
    bias = dict.fromkeys((t for t in range(smollm2.n_vocab) if smollm2.vocab.is_eog(t)), float("-inf"))
    with Engine(smollm2, n_ctx=2048, n_threads=1, sampling={"temperature": 0, "logit_bias": bias}) as made:
        yield made


def wait_for_first_token(chat: Any) -> None:
    end = time.monotonic() + 60
    while chat._turn is None or not chat._turn.generations[0].first_token:
        assert time.monotonic() < end
        time.sleep(0.01)


def while_one_is_sent(engine: Engine, do: Callable[[Any], object]) -> Any:
    """What is done while a long reply is generated in one go; gives the reply."""
    chat = engine.conversation()
    chat.send("Hello", max_tokens=2)  # now it is known how long a step takes
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(chat.send, PROMPT, max_tokens=LONG)
        wait_for_first_token(chat)
        time.sleep(0.1)  # the second step chooses one token, all others come in one go
        do(chat)
        assert not future.done()
        return future.result()


def test_one_who_comes_later_does_not_wait(engine: Engine) -> None:
    def send(_: Any) -> None:
        assert engine.conversation().send("Name a colour.", max_tokens=3).usage.completion_tokens == 3

    assert while_one_is_sent(engine, send).usage.completion_tokens == LONG


def test_a_look_at_the_engine_does_not_wait(engine: Engine) -> None:
    while_one_is_sent(engine, lambda _: engine.stats())


def test_cancelling_one_of_two_does_not_wait(engine: Engine) -> None:
    other = engine.conversation()
    done: list[int] = []
    thread = threading.Thread(
        target=lambda: done.append(other.send("Name a bird.", max_tokens=LONG).usage.completion_tokens)
    )

    def cancel(chat: Any) -> None:
        thread.start()
        wait_for_first_token(other)
        other.cancel()
        thread.join()

    assert while_one_is_sent(engine, cancel).usage.completion_tokens == LONG
    assert 1 <= done[0] < LONG / 2


def test_a_reply_is_the_same_read_along_or_not(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine.conversation().send(PROMPT, max_tokens=60)
    with engine.conversation().stream(PROMPT, max_tokens=60) as stream:
        first = next(stream).text
        assert stream.reply.text == whole.text
    assert whole.text.startswith(first)
    monkeypatch.setattr(_pace, "_MOST_TIMES", 1)
    assert engine.conversation().send(PROMPT, max_tokens=60).text == whole.text


def test_a_stop_string_takes_back_what_was_evaluated_behind_it(engine: Engine) -> None:
    chat = engine.conversation()
    chat.send("Hello", max_tokens=2)
    whole = engine.conversation().send(PROMPT, max_tokens=40)
    stop = whole.text[10:14]
    reply = engine.conversation().send(PROMPT, max_tokens=LONG, stop=[stop])
    assert reply.text == whole.text[: whole.text.index(stop)]
    assert reply.finish_reason == "stop"


def test_steps_in_one_go_are_fewer_where_somebody_reads_along() -> None:
    pace = _pace.Pace(512, 2.0)
    for _ in range(20):
        pace.measured(8, 0, 0.024)
    assert pace.times(8, watched=True) == 1
    assert pace.times(8, watched=False) == 8
    assert pace.times(3, watched=False) == 1  # not known
