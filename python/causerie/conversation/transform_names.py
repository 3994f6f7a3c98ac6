"""Names for transforms: functions cannot be written into a file, names can.

Whoever saves a conversation asks `transform_name` for each transform of its settings (None: it has no name and cannot
be saved); whoever loads one asks `transform_named`, which gives the very object that was registered: an input, output
or history transform, or a text template.
"""

from __future__ import annotations

import threading
from types import MethodType
from typing import Any

from causerie.chat.tool_call import filled

__all__ = ["register_transform", "transform_name", "transform_named"]

_registered: dict[str, Any] = {}
_lock = threading.Lock()


def register_transform(name: str, transform: Any, *, replace: bool = False) -> None:
    """Give a transform a name, under which conversations are given it and under which it is saved.

    Args:
        name: the name; not empty.
        transform: an input, output or history transform, as `Engine.conversation` takes it, or a text template.
        replace: whether it may take the name of another one.

    Raises:
        TypeError: the name is not a str.
        ValueError: it is empty, or taken.
    """
    filled(name, "the name of a transform")
    if transform is None or isinstance(transform, str):
        raise TypeError(f"a transform is something to call, not {transform!r}")
    with _lock:
        if not replace and name in _registered and not _is_same(_registered[name], transform):
            raise ValueError(f"another transform is called {name!r}: take another name, or replace=True")
        _registered[name] = transform


def transform_named(name: str) -> Any:
    """The transform that was registered by this name.

    Raises:
        ValueError: none was; the message lists the names there are.
    """
    with _lock:
        if name not in _registered:
            names = ", ".join(sorted(_registered)) or "none"
            raise ValueError(f"no transform is called {name!r} (registered: {names}): use register_transform first")
        return _registered[name]


def transform_name(transform: object) -> str | None:
    """The name that a transform was registered by; None: it has none. Of several the first."""
    with _lock:
        return next((name for name, known in _registered.items() if _is_same(known, transform)), None)


def _is_same(known: object, other: object) -> bool:
    """Methods are made anew each time they are looked at."""
    return known is other or (isinstance(known, MethodType) and known == other)
