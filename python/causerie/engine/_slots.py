"""What the context's memory holds under one sequence id, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.engine.adapters import Adapter
    from causerie.engine.sequence import Sequence

__all__ = ["Slot"]


class Slot:
    """One sequence id of the context. Owned by whoever leads the engine.

    Attributes:
        id: llama.cpp's sequence id.
        held: exactly the ids in the memory, position by position.
        adapters: what they were evaluated with; whoever has others cannot use them.
        cells: for each of them, its cell in the pool.
        pending: ids in the evaluation that is running: what of them became part of the memory is known behind it.
        owner: the sequence that lives here; None: nobody, but the content may still serve as a prefix.
        busy: whether a generation works here.
        used: when it was last used, in steps of the engine.
    """

    __slots__ = ("adapters", "busy", "cells", "held", "id", "owner", "pending", "used")

    def __init__(self, number: int) -> None:
        self.id = number
        self.held: list[int] = []
        self.adapters: tuple[Adapter, ...] = ()
        self.cells: list[int] = []
        self.pending: list[int] = []
        self.owner: Sequence | None = None
        self.busy = False
        self.used = 0

    def __repr__(self) -> str:
        return f"<Slot {self.id}: {len(self.held)} tokens{' busy' if self.busy else ''}>"
