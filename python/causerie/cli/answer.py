"""Prints an answer while it is generated, so that Ctrl-C stops the answer and nothing else.

The stream is read by a thread of its own: inside llama.cpp the main thread could not notice Ctrl-C, and an exception in
the middle of it would lose what has been generated.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causerie.conversation import Conversation, Reply, Stream

__all__ = ["answer"]

_POLL_SECONDS = 0.2  # Windows does not interrupt a wait

logger = logging.getLogger("causerie.cli")


def answer(conversation: Conversation, begin: Callable[[], Stream], write: Callable[[str, str], object]) -> Reply:
    """Begin a reply in a conversation, and write its pieces, each with its chunk's kind, as they come.

    Raises:
        BaseException: what `begin`, or reading the stream, raised.
        OSError: what `write` raised; the reply was stopped.
    """
    pieces: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
    replies: list[Reply] = []
    failed: list[BaseException] = []
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        conversation.cancel()

    def run() -> None:
        try:
            stream = begin()
            if stopped.is_set():  # before there was anything to cancel
                conversation.cancel()
            for chunk in stream:
                pieces.put((chunk.text, chunk.kind))
            replies.append(stream.reply)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the main thread
            failed.append(error)
        finally:
            pieces.put(None)

    with _on_interrupt(stop):
        thread = threading.Thread(target=run, name="causerie answer", daemon=True)
        thread.start()
        try:
            for piece in _received(pieces):
                write(*piece)
        except BaseException:
            stop()
            raise
        finally:
            thread.join()
    if failed:
        raise failed[0]
    logger.info("%r", replies[0])
    return replies[0]


def _received(pieces: queue.SimpleQueue[tuple[str, str] | None]) -> Iterator[tuple[str, str]]:
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
