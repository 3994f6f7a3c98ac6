"""A conversation as one file: a record of it, and what is evaluated. docs/saving.md describes the format."""

from __future__ import annotations

import sys
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from causerie.conversation.record import from_record
from causerie.engine import SequenceState
from causerie.errors import StateError
from causerie.files import Container, write_container

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from causerie.chat.tools import Tool
    from causerie.conversation.engine import Engine
    from causerie.conversation.snapshot import Snapshot
    from causerie.engine import Adapter

__all__ = ["CacheUse", "read_saved", "write_saved"]

CacheUse: TypeAlias = Literal["auto", "require", "ignore"]
"""What becomes of the evaluated part of a file: used if it can be; used, or an error; or left alone."""

_RECORD, _TOKENS, _CACHE = "conversation", "tokens", "cache"
# Bytes that compressed sections may become.
_MOST_TEXT = 1 << 28
_MOST_TOKENS = 1 << 26


def write_saved(path: str | os.PathLike[str], snapshot: Snapshot, record: bytes, *, compress: bool) -> None:
    """Write a file, which replaces an old one in one step.

    Args:
        path: where to.
        snapshot: whose evaluated part goes in.
        record: `to_record` of it.
        compress: whether to compress all of it.

    Raises:
        OSError: it cannot be written; a file that was there is as it was.
    """
    sections: dict[str, bytes | memoryview] = {_RECORD: record}
    if snapshot.state is not None:
        sections[_TOKENS] = _little(array("i", snapshot.state.ids)).tobytes()
        sections[_CACHE] = snapshot.state.data
    write_container(path, sections, compress=sections if compress else ())


@contextmanager
def read_saved(
    path: str | os.PathLike[str], engine: Engine, tools: Mapping[str, Tool], cache: CacheUse
) -> Iterator[tuple[Snapshot, SequenceState | None]]:
    """What a file says, checked, and what is evaluated, in the mapped file: only to be used within the block.

    Raises:
        OSError: it cannot be read.
        StateError: it is damaged, of another version or another model.
    """
    if cache not in {"auto", "require", "ignore"}:
        raise ValueError(f'cache must be "auto", "require" or "ignore", not {cache!r}')
    with Container(path) as container:
        if not {_RECORD} <= set(container.names) <= {_RECORD, _TOKENS, _CACHE}:
            raise StateError(f"{container.path} is not a saved conversation", path=container.path)
        snapshot = from_record(container.read(_RECORD, most=_MOST_TEXT), engine, tools)
        if (_TOKENS in container) != (_CACHE in container):
            raise StateError(f"{container.path} has only a part of what is evaluated", path=container.path)
        if cache == "require" and _CACHE not in container:
            raise StateError(f"{container.path} was saved without what is evaluated", path=container.path)
        state = None
        if cache != "ignore" and _CACHE in container:
            state = _state(container, engine, snapshot.adapters)
        yield snapshot, state


def _state(container: Container, engine: Engine, adapters: tuple[Adapter, ...]) -> SequenceState:
    model = engine.model
    raw = container.read(_TOKENS, most=_MOST_TOKENS)
    if len(raw) % 4:
        raise StateError(f"{container.path} has {len(raw)} bytes of tokens, which are four bytes each")
    tokens = array("i")
    tokens.frombytes(raw)
    # Far more than any model has for a token; what says that it becomes larger is not a cache.
    most = (1 << 28) + model.n_layer * model.n_embd * (4096 + 16 * len(tokens))
    data = container.view(_CACHE, most=most)
    return SequenceState(tuple(_little(tokens)), data, lasting=False, adapters=adapters)


def _little(tokens: array[int]) -> array[int]:
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
