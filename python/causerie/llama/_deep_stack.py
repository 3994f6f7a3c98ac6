"""Runs llama.cpp's tokeniser where its recursion cannot overflow the stack.

libstdc++'s std::regex, which splits text for most BPE vocabularies, calls itself once per character that it matches:
some 26,000 letters without a break end a process whose stack has the usual 8 MiB. A match of llama.cpp's expressions
ends at a line break at the latest, unless it is all blanks.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, TypeVar

from causerie.errors import OutOfMemoryError
from causerie.llama._memory_check import available_memory, require

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["longest_match", "run"]

T = TypeVar("T")

_SAFE = 2048  # characters: less than a megabyte, which any thread has
_BYTES_PER_CHARACTER = 1024  # reserved; 350 were measured
_MOST = 2**23
_BLANKS = re.compile(rb"\s{%d}" % _SAFE)
_starting = threading.Lock()


def longest_match(text: bytes) -> int:
    """The most characters that one regular expression can match in this text."""
    if len(text) <= _SAFE:
        return len(text)
    if _BLANKS.search(text):
        return len(text)
    return max(map(len, text.split(b"\n")))


def run(depth: int, function: Callable[[], T]) -> T:
    """Call a function that recurses `depth` levels deep at most, on a thread of its own if that is much.

    Raises:
        ValueError: it would be too deep.
        OutOfMemoryError: the stack might not fit into free memory.
    """
    if depth <= _SAFE:
        return function()
    if depth > _MOST:
        raise ValueError(f"a line of {depth} bytes is too long for llama.cpp's tokeniser: at most {_MOST}")
    what, needed = f"tokenising a line of {depth} bytes", depth * _BYTES_PER_CHARACTER // 2
    require(what, needed, "break the text into lines")
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(function())
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            failed.append(error)

    thread = threading.Thread(target=work, name="causerie-tokenise")
    with _starting:  # the stack size is a setting of the process
        before = threading.stack_size(2**20 + -(-depth * _BYTES_PER_CHARACTER // 2**12) * 2**12)
        try:
            thread.start()
        except RuntimeError as error:
            raise OutOfMemoryError(f"{what}: {error}", needed=needed, available=available_memory()) from None
        finally:
            threading.stack_size(before)
    thread.join()
    if failed:
        raise failed.pop()  # not kept here: its traceback holds this frame
    return done[0]
