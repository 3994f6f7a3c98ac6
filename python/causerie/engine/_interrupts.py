"""Ctrl-C waits until a step of the engine is over: in the middle of one it would disturb other conversations."""

from __future__ import annotations

import threading
from _signal import (  # type: ignore[import-not-found]  # as `signal`, without its enums: this is done for every token
    SIGINT,
    default_int_handler,
    getsignal,
    signal,
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

__all__ = ["Interrupts"]


class Interrupts:
    """While inside, SIGINT on the main thread is noted, and raised as KeyboardInterrupt behind it.

    Only where Python's own handler is installed: other handlers are the program's affair. On other threads nothing is
    changed, as they never see a KeyboardInterrupt.

    Args:
        on_interrupt: called when it happens, to end early what can be ended.

    Attributes:
        installed: whether Ctrl-C is noted here: on the main thread, and not inside of another one.
        pending: whether it has happened.
    """

    def __init__(self, on_interrupt: Callable[[], object]) -> None:
        self._on_interrupt = on_interrupt
        self.installed = False
        self.pending = False

    def _handle(self, _number: int, _frame: Any) -> None:
        self.pending = True
        self._on_interrupt()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.installed = getsignal(SIGINT) is default_int_handler
            if self.installed:
                signal(SIGINT, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.installed:
            self.installed = False
            signal(SIGINT, default_int_handler)
        if self.pending and exc[0] is None:
            raise KeyboardInterrupt
