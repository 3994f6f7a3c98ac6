"""What is evaluated of a sequence, outside of any engine: to be put into another one, or into a file."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SequenceState"]


@dataclass(frozen=True, eq=False)
class SequenceState:
    """Token ids, and what the memory holds for exactly these.

    Attributes:
        ids: from the first one on.
        data: as `llama.State.seq_buffer` gives it; read-only.
        lasting: whether the data may be kept; otherwise they are copied.
    """

    ids: tuple[int, ...]
    data: bytes | memoryview = field(repr=False)
    lasting: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return memoryview(self.data).nbytes
