"""The ownership and the locking of a sampler, and how failures of native calls and Python functions come out of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from causerie.errors import BusyError, CauserieError, ClosedError, NativeError
from causerie.llama._errors import check
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.llama._sampler_part import Part
    from causerie.llama.model import Model

__all__ = ["SamplerHandle"]


def _leave(_: Any) -> None:
    """Free nothing: a chain owns it now."""


class SamplerHandle(Handle):
    """A native sampler, the lock for it, and the errors of calls into it."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._lock = threading.RLock()
        self._running = False
        self._moved = False
        self._broken: tuple[type[CauserieError], str] | None = None
        model, _ = self._bound()
        self._own(
            Resource("sampler", part.pointer, lib.llama_sampler_free, None if model is None else model._resource), model
        )

    def _bound(self) -> tuple[Model | None, int | None]:
        """The model whose vocabulary it works with and the number of tokens it was made for; None: any."""
        model, n_tokens = None, None
        for part in self._part.walk():
            model, n_tokens = model or part.model, n_tokens or part.n_tokens
        return model, n_tokens

    @contextmanager
    def _use(self, *, broken: bool = False) -> Iterator[Any]:
        """The native pointer, with nobody else inside. A context's lock is taken before a sampler's, never after."""
        with self._lock:
            self._refuse_moved()
            with self._resource as pointer:
                self._refuse_unusable(broken=broken)
                try:
                    self._running = True
                    yield pointer
                finally:
                    self._running = False

    def _refuse_moved(self) -> None:
        if self._moved:
            raise ClosedError("this sampler was added to a chain, and is a part of it now: next time add a clone()")

    def _refuse_unusable(self, *, broken: bool) -> None:
        if self._running:
            raise BusyError("this sampler is running: its Python functions must not call into it")
        if self._broken is not None and not broken:
            error, reason = self._broken
            raise error(f"this sampler needs reset() first: {reason}")

    def _acquire(self) -> Any:
        """As `_use`, until `_release` on the same thread; without the cost of a context manager for every token."""
        self._lock.acquire()
        try:
            self._refuse_moved()
            pointer = self._resource.__enter__()
            try:
                self._refuse_unusable(broken=False)
            except BaseException:
                self._resource.release()
                raise
        except BaseException:
            self._lock.release()
            raise
        self._running = True
        return pointer

    def _release(self) -> None:
        """End what `_acquire` began."""
        self._running = False
        self._resource.release()
        self._lock.release()

    def _after(self, operation: str, error: type[CauserieError] = NativeError, *, breaks: bool = False) -> None:
        """Raise what a Python function or llama.cpp raised during the native call before."""
        code = lib.causerie_error_code()
        if code and (breaks or code == lib.CAUSERIE_ERROR_ABORT):
            aborted = code == lib.CAUSERIE_ERROR_ABORT
            reason = ffi.string(lib.causerie_error_message()).decode("utf-8", "replace")
            self._broken = (NativeError if aborted else error, f"{operation}: {reason}")
        self._reraise()
        check(operation, error)
        if lib.causerie_log_pending():
            drain_log()

    def _reraise(self) -> None:
        """Raise what a Python function raised, with its own traceback."""
        raised = [p.custom for p in self._part.walk() if p.custom is not None and p.custom.error is not None]
        error = raised[0].error if raised else None
        for custom in raised:
            custom.error = None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback refers to this frame

    @property
    def name(self) -> str:
        """llama.cpp's name ("top-k"); with a question mark in front if the options make it do nothing."""
        return self._part.name

    @property
    def seed(self) -> int | None:
        """The seed in use (llama_sampler_get_seed): of dist, mirostat, or the last of them in a chain; None: none."""
        with self._use(broken=True) as pointer:
            seed = int(lib.llama_sampler_get_seed(pointer))
            self._after("reading the seed")
            return None if seed == lib.LLAMA_DEFAULT_SEED else seed

    def close(self) -> None:
        """Wait for a running call of another thread to end, and free the native sampler. Idempotent."""
        with self._lock:
            super().close()

    def _give_up(self) -> None:
        """Let a chain own the native sampler; call it inside `_use`."""
        self._moved = True
        self._finalizer.detach()
        self._resource._free = _leave
        self._resource.shut()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {'closed' if self.closed else 'open'}>"
