"""Generators that take chunks and give chunks, run in steps: each runs on until it needs a chunk that is not there yet.

No thread and no event loop takes part, so one definition serves blocking and asynchronous calls. An asynchronous
generator stops wherever it asks for a chunk; a plain one stops only where it gives one.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

__all__ = ["FromAsyncGenerator", "FromGenerator", "checked_piece"]

_END = object()


def checked_piece(text: object) -> str:
    """What a transform gave; TypeError if it is not a str."""
    if not isinstance(text, str):
        raise TypeError(f"an output transform must give a str, not {type(text).__name__}")
    return text


class _Chunks:
    """What a plain generator takes its chunks from."""

    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.waiting:
            return self.waiting.popleft()
        if self.ended:
            raise StopIteration
        raise RuntimeError(
            "this output transform took a chunk and gave none: it cannot wait for the next one. Let it yield '' "
            "where there is nothing to show yet, or make it an asynchronous generator (async def, async for)"
        )


class FromGenerator:
    """A generator function as an `OutputTransform`: ``def f(chunks): for chunk in chunks: yield ...``.

    It gives at least one text for each chunk that it takes, "" where it holds everything back. What it gives besides
    the first comes with the next chunk.

    Args:
        function: is given an iterator of chunks, gives one.
    """

    def __init__(self, function: Callable[[Iterator[str]], Iterator[str]]) -> None:
        self._chunks = _Chunks()
        self._generator = function(self._chunks)

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`; after the generator's end: ""."""
        waiting = self._chunks.waiting
        waiting.append(text)
        pieces: list[str] = []
        while waiting:
            piece = next(self._generator, _END)
            if piece is _END:
                waiting.clear()
            else:
                pieces.append(checked_piece(piece))
        return "".join(pieces)

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        self._chunks.ended = True
        return "".join(map(checked_piece, self._generator))


class _AwaitedChunks:
    """What an asynchronous generator takes its chunks from."""

    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.ended = False

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while not self.waiting:
            if self.ended:
                raise StopAsyncIteration
            await self
        return self.waiting.popleft()

    def __await__(self) -> Generator[_AwaitedChunks, None, None]:
        yield self  # to whoever runs the generator


class FromAsyncGenerator:
    """An asynchronous generator function as an `OutputTransform`.

    ``async def f(chunks): async for chunk in chunks: yield ...``, giving as many texts for a chunk as it likes. It
    can wait for its chunks, and for nothing else.

    Args:
        function: is given an asynchronous iterator of chunks, gives one.
    """

    def __init__(self, function: Callable[[AsyncIterator[str]], AsyncIterator[str]]) -> None:
        self._chunks = _AwaitedChunks()
        self._generator = function(self._chunks)
        self._step: Generator[Any, None, str] | None = None
        self._ended = False

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`; after the generator's end: ""."""
        self._chunks.waiting.append(text)
        return self._run()

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        self._chunks.ended = True
        return self._run()

    def _run(self) -> str:
        pieces: list[str] = []
        while not self._ended:
            self._step = self._step or self._next()
            try:
                waits_for = self._step.send(None)
            except StopIteration as given:
                self._step = None
                pieces.append(checked_piece(given.value))
            except StopAsyncIteration:
                self._ended = True
            else:
                if waits_for is not self._chunks:
                    raise RuntimeError("an output transform can await its chunks only: nothing runs an event loop here")
                break
        return "".join(pieces)

    def _next(self) -> Generator[Any, None, str]:
        # An event loop that runs here would take it for its own, and close it in its own time.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            return cast("Generator[Any, None, str]", self._generator.__anext__())
        finally:
            sys.set_asyncgen_hooks(*hooks)
