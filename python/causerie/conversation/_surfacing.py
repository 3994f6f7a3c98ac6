"""Exceptions of people's functions, on their way out of iterators and coroutines."""

from __future__ import annotations

__all__ = ["surfacing"]


def surfacing(error: BaseException) -> BaseException:
    """The exception as it can be raised anywhere: StopIteration would be taken for the end of a stream.

    It is the context of what is raised instead, and not its cause: contextlib takes that for its own doing.
    """
    if not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    found = RuntimeError(f"a function that was called raised {type(error).__name__}: {error}")
    found.__context__ = error
    return found
