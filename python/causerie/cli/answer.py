"""Prints an answer while it is generated, so that Ctrl-C stops the answer and nothing else.

The generating runs in a thread of its own: inside llama.cpp the main thread could not notice Ctrl-C, and an exception
in the middle of it would lose what has been generated.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causerie.cli.session import Reply, Session

__all__ = ["answer"]

_POLL_SECONDS = 0.2  # Windows does not interrupt a wait


def answer(session: Session, text: str, write: Callable[[str], object]) -> Reply:
    """Ask, and write the pieces of the answer as they come.

    Raises:
        ContextOverflowError, TemplateError: from `Session.ask`.
        OSError: what `write` raised; the answer was stopped.
    """
    with _on_interrupt(session.cancel):
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        failed: list[BaseException] = []
        work = session.ask(text)

        def run() -> None:
            try:
                for piece in work:
                    pieces.put(piece)
            except BaseException as error:  # noqa: BLE001 - it is raised again in the main thread
                failed.append(error)
            finally:
                pieces.put(None)

        thread = threading.Thread(target=run, name="causerie answer", daemon=True)
        thread.start()
        try:
            for piece in _received(pieces):
                write(piece)
        except BaseException:
            session.cancel()
            raise
        finally:
            thread.join()
        if failed:
            raise failed[0]
    if session.last is None:
        raise RuntimeError("an answer ended without a reply")
    return session.last


def _received(pieces: queue.SimpleQueue[str | None]) -> Iterator[str]:
    while True:
        with contextlib.suppress(queue.Empty):
            if (piece := pieces.get(timeout=_POLL_SECONDS)) is None:
                return
            yield piece


@contextlib.contextmanager
def _on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """While inside, Ctrl-C calls `stop`; it raises no KeyboardInterrupt. Where it was ignored it stays so."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        yield
        return

    def handle(_number: int, _frame: Any) -> None:
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
