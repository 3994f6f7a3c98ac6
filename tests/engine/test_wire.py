"""Messages over a pair of sockets: whole, in order, from many threads, until one end is gone."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from causerie.engine._wire import Wire


@pytest.fixture
def ends() -> Any:
    pair = [Wire(end) for end in socket.socketpair()]
    yield pair
    for wire in pair:
        wire.close()


def test_messages_arrive_whole_and_in_order(ends: list[Wire]) -> None:
    sent = [("a",), ("b", b"\0" * 1_000_000, [1, 2]), ("c", {"d": None}), ()]
    thread = threading.Thread(target=lambda: [ends[0].send(*message) for message in sent])
    thread.start()
    found: list[Any] = []
    while len(found) < len(sent):
        found += ends[1].receive(10)
    thread.join()
    assert found == sent
    assert ends[1].receive(0) == []


def test_many_threads_may_send(ends: list[Wire]) -> None:
    def send(k: int) -> None:
        for i in range(200):
            ends[0].send(k, i, b"x" * (i * 37 % 1000))

    threads = [threading.Thread(target=send, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    found: list[Any] = []
    while len(found) < 800:
        found += ends[1].receive(10)
    for thread in threads:
        thread.join()
    for k in range(4):
        assert [i for who, i, _ in found if who == k] == list(range(200))


def test_what_cannot_be_pickled_is_not_sent(ends: list[Wire]) -> None:
    with pytest.raises(Exception, match="pickle"):
        ends[0].send(lambda: None)
    ends[0].send("next")
    assert ends[1].receive(10) == [("next",)]


def test_what_was_sent_before_the_end_arrives(ends: list[Wire]) -> None:
    ends[0].send("last")
    ends[0].close()
    assert ends[1].receive(10) == [("last",)]
    with pytest.raises(EOFError):
        ends[1].receive(10)
    with pytest.raises(OSError, match=r".+"):
        _send_to_nobody(ends[1])


def _send_to_nobody(wire: Wire) -> None:
    for _ in range(3):
        wire.send("nobody")


def test_a_message_that_was_cut_is_an_end() -> None:
    here, there = socket.socketpair()
    wire = Wire(there)
    here.sendall(b"\x10\0\0\0\0\0\0\0half")
    here.close()
    with pytest.raises(EOFError):
        wire.receive(10)
    wire.close()
