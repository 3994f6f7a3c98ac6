"""Messages between an engine and its helper process: pickled, each behind its length, over a pair of sockets."""

from __future__ import annotations

import pickle
import selectors
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

__all__ = ["Wire"]

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 18


class Wire:
    """One end. Anybody may send; one thread at a time receives.

    Both ends are processes of the same user and the same program, one started by the other: nothing else can reach the
    sockets, so that what arrives is trusted.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._arrived = bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(end, selectors.EVENT_READ)

    def send(self, *message: Any) -> None:
        """Send one message.

        Raises:
            OSError: the other end is gone.
            Exception: it cannot be pickled; nothing was sent.
        """
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            try:
                self._socket.sendall(_LENGTH.pack(len(body)) + body)
            except BaseException:  # Ctrl-C: nobody could tell where the next message begins
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                raise

    def receive(self, timeout: float | None = None) -> list[tuple[Any, ...]]:
        """All messages that have arrived, at least one; none after so many seconds.

        Raises:
            EOFError: the other end is gone.
        """
        while not (messages := self._complete()):
            if not self._selector.select(timeout):
                return []
            try:
                chunk = self._socket.recv(_CHUNK)
            except OSError as error:
                raise EOFError(str(error)) from error
            if not chunk:
                raise EOFError("the other end is closed")
            self._arrived += chunk
        return messages

    def _complete(self) -> list[tuple[Any, ...]]:
        messages, begin = [], 0
        while len(self._arrived) - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._arrived, begin)
            end = begin + _LENGTH.size + length
            if len(self._arrived) < end:
                break
            with memoryview(self._arrived) as view, view[begin + _LENGTH.size : end] as body:
                messages.append(pickle.loads(body))  # noqa: S301 - see the class
            begin = end
        del self._arrived[:begin]
        return messages

    def close(self) -> None:
        """Tell the other end that nobody is here any more. Idempotent."""
        self._selector.close()
        self._socket.close()
