"""Ownership of native objects: one owner per pointer, children before parents, never freed while in use.

A `Resource` is the native object with a count of those who need it: its handle while open, its children, calls that are
running, and numpy views into its memory. It is freed by whoever gives up the last claim. A `Handle` is the Python
object that a user holds; it pins its resource and, through it, the resources of all parents.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from causerie.errors import ClosedError
from causerie.llama._lib import ffi

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

__all__ = ["Handle", "Resource", "Uncopyable"]

# One lock for all counts: it is held for a few bytecodes only. Re-entrant, because the garbage collector may run a
# finalizer on this thread while the lock is held.
_counts = threading.RLock()


class Resource:
    """A native pointer, the function that frees it, and the resource it depends on."""

    __slots__ = ("__weakref__", "_claims", "_free", "_keep", "_parent", "_pointer", "name", "open")

    def __init__(
        self,
        name: str,
        pointer: Any,
        free: Callable[[Any], object],
        parent: Resource | None = None,
        keep: object = None,
    ) -> None:
        self.name = name
        self.open = True
        self._pointer = pointer
        self._free = free
        self._parent = parent
        self._keep = keep  # memory that the native object points into
        self._claims = 1
        if parent is not None:
            parent.claim()

    def claim(self) -> None:
        """Keep the native object alive until a matching `release`."""
        with _counts:
            self._claims += 1

    def release(self) -> None:
        """Give up one claim; the last one frees the native object, then its claim on the parent."""
        with _counts:
            self._claims -= 1
            if self._claims:
                return
            pointer, self._pointer = self._pointer, ffi.NULL
        self._free(pointer)
        if self._parent is not None:
            self._parent.release()

    def shut(self) -> None:
        """End use by new calls, and give up the owner's claim. Idempotent."""
        with _counts:
            if not self.open:
                return
            self.open = False
        self.release()

    def __enter__(self) -> Any:
        with _counts:
            if not self.open:
                raise ClosedError(f"this {self.name} is closed")
            self._claims += 1
            return self._pointer

    def __exit__(self, *exc: object) -> None:
        self.release()


class Uncopyable:
    """Base of every object that refers to native memory: it belongs to this process, and there is one of it."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} refers to native memory of this process: it cannot be pickled or copied")


class Handle(Uncopyable):
    """Base of every object that owns a native one: `close()`, `with`, no copying, no pickling."""

    _resource: Resource

    def _own(self, resource: Resource, parent: Handle | None = None) -> None:
        self._resource = resource
        self._parent_handle = parent  # pins it
        self._children: weakref.WeakSet[Handle] = weakref.WeakSet()
        self._finalizer = weakref.finalize(self, resource.shut)
        # At interpreter exit daemon threads may still be inside llama.cpp: what is open then is left to the system.
        self._finalizer.atexit = False
        if parent is not None:
            with _counts:
                parent._children.add(self)
            if parent.closed:  # it was closed while this child was being made
                self.close()
                raise ClosedError(f"the {parent._resource.name} of this {resource.name} is closed")

    @property
    def closed(self) -> bool:
        """Whether `close` has been called on this object or on its parent."""
        return not self._resource.open

    def close(self) -> None:
        """Free the native object, after those that depend on it. Idempotent; later use raises `ClosedError`."""
        with _counts:
            children = list(self._children)
        for child in children:
            child.close()
        self._finalizer.detach()
        self._resource.shut()

    def __enter__(self) -> Self:
        with self._resource:
            return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self.closed else 'open'}>"
