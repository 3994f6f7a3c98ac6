"""At interpreter exit, threads that are inside llama.cpp are stopped before the process tears down.

What is left then are daemon threads. They must leave native code, which the process is about to unload, and must not
see an exception for it, which `threading` would print: so they never return.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.llama.context import Context

__all__ = ["gate", "remember", "stopping"]

_SECONDS = 2.0  # for all threads to leave
_open: weakref.WeakSet[Context] = weakref.WeakSet()
_exiting: list[int] = []  # the thread that runs the exit handlers, once it does


def remember(context: Context) -> None:
    """Stop this context's evaluation at exit."""
    _open.add(context)


def stopping() -> bool:
    """Whether this thread has to stop: the exit handlers run, on another one."""
    return bool(_exiting) and threading.get_ident() not in _exiting


def gate() -> None:
    """Never return where `stopping`. To be called without holding a lock."""
    while stopping():
        time.sleep(3600)


@atexit.register
def _stop_all() -> None:
    _exiting.append(threading.get_ident())
    contexts = list(_open)
    deadline = time.monotonic() + _SECONDS
    while any(context._running for context in contexts) and time.monotonic() < deadline:
        for context in contexts:
            context.cancel()
        time.sleep(0.001)
