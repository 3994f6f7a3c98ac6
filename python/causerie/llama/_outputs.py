"""Which rows of output a context holds, and numpy views of them that cannot outlive their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import BusyError, UnsupportedError
from causerie.llama._lib import ffi

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causerie.llama._handle import Resource
    from causerie.llama.batch import Batch
    from causerie.llama.model import Model

__all__ = ["Outputs"]


class _Views:
    """How many views are alive. Not a reference to the context, which must be able to die before them."""

    def __init__(self) -> None:
        self.alive = 0


class Outputs:
    """Bookkeeping of one context's output buffer. Used under the context's lock.

    llama.cpp frees and reallocates the buffer when an evaluation gives more output than any before it. A view would
    then point into freed memory, so such an evaluation is refused while a view is alive.
    """

    def __init__(self, model: Model, n_seq_max: int) -> None:
        self._model = model
        self._least_rows = n_seq_max
        self._capacity = 0  # floats; 0 until the first evaluation, before which there is nothing to view
        self._rows: NDArray[np.intp] | None = None
        self._pending: tuple[NDArray[np.intp], int] | None = None
        self._views = _Views()
        self.has_logits = False

    def prepare(self, batch: Batch, n: int, *, every: bool, embeddings: bool) -> None:
        """Before an evaluation: forget the old rows, work out the new.

        Args:
            batch: its first n entries are evaluated.
            n: how many.
            every: all of them give output, asked or not.
            embeddings: they give embeddings too.

        Raises:
            BusyError: the buffer would move under a living view.
        """
        rows = np.arange(n) if every else np.flatnonzero(batch.output[:n])
        width = self._model.n_vocab
        if embeddings or self._model.has_encoder:
            width += self._model.n_embd_out
        floats = max(len(rows), self._least_rows) * width
        if floats > self._capacity and self._views.alive:
            raise BusyError(
                f"this batch asks for {len(rows)} rows of output, more than any before it, while {self._views.alive} "
                "arrays returned by logits() or embeddings() still point into the old buffer: "
                "del them, or keep a .copy() instead"
            )
        self._rows = None
        self._pending = (rows, floats)

    def commit(self, *, logits: bool) -> None:
        """After a successful evaluation: the new rows are there; `logits` tells whether logits are among them."""
        self.has_logits = logits
        if self._pending is not None:
            self._rows, floats = self._pending
            self._capacity = max(self._capacity, floats)
            self._pending = None

    def forget(self) -> None:
        """The rows are no longer valid."""
        self._rows = None

    def index(self, i: int) -> int:
        """The batch index that `i` means.

        Raises:
            IndexError: that entry gave no output.
        """
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise TypeError(f"index must be an int, not {type(i).__name__}")
        if self._rows is None:
            raise IndexError("there is no output: nothing was evaluated yet, or the last evaluation failed")
        if i < 0:
            if -i > len(self._rows):
                raise IndexError(f"output {i} does not exist: the last batch asked for {len(self._rows)}")
            return int(self._rows[i])
        if i not in self._rows:
            raise IndexError(f"no output was asked for entry {i} of the last batch: use output=True when adding it")
        return int(i)

    def logits_index(self, i: int) -> int:
        """As `index`, where logits are wanted.

        Raises:
            UnsupportedError: the last evaluation gave embeddings only.
        """
        found = self.index(i)
        if not self.has_logits:
            raise UnsupportedError("an encoder gives no logits: use embeddings() or embeddings_seq()")
        return found

    def view(self, row: Any, width: int, resource: Resource, what: str) -> NDArray[np.float32]:
        """float32 (width,) over native memory, which stays allocated as long as the array."""
        if row == ffi.NULL:
            raise IndexError(f"llama.cpp has no {what} for that entry")
        views = self._views
        resource.claim()
        views.alive += 1

        def release(_: Any) -> None:
            views.alive -= 1
            resource.release()

        return np.frombuffer(ffi.buffer(ffi.gc(row, release), 4 * width), np.float32)
