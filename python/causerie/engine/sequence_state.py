"""What is evaluated of a sequence, outside of any engine: to be put into another one, or into a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.engine.adapters import Adapter

__all__ = ["SequenceState"]


@dataclass(frozen=True, eq=False)
class SequenceState:
    """Token ids, and what the memory holds for exactly these.

    Attributes:
        ids: from the first one on.
        data: as `llama.State.seq_buffer` gives it; read-only.
        lasting: whether the data may be kept; otherwise they are copied.
        adapters: LoRA adapters that it was evaluated with.
    """

    ids: tuple[int, ...]
    data: bytes | memoryview = field(repr=False)
    lasting: bool = True
    adapters: tuple[Adapter, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return memoryview(self.data).nbytes
