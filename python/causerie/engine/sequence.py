"""A sequence of token ids with a place in the engine's cache: what a conversation is to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.engine._parking import Parked
    from causerie.engine._slots import Slot
    from causerie.engine.adapters import Adapter
    from causerie.engine.generation import Generation

__all__ = ["Sequence"]


class Sequence:
    """A place in the cache, by whatever way it is kept. Made by `TokenEngine.sequence`.

    It has no content of its own: each generation names the whole prompt, and the engine keeps what can be reused.

    Attributes:
        name: for people, in `cache_map`.
        closed: whether it was closed.
        slot: where it is in the context; None: nowhere.
        parked: its state in RAM, if it had to leave.
        adapters: LoRA adapters it is evaluated with, as `TokenEngine.load_adapters` gave them.
        checkpoints: earlier states, where the memory cannot go back by itself.
        generation: the one that runs or ran last.
    """

    __slots__ = ("__weakref__", "adapters", "checkpoints", "closed", "generation", "name", "parked", "slot")

    def __init__(self, name: str = "", adapters: tuple[Adapter, ...] = ()) -> None:
        self.name = name
        self.adapters = adapters
        self.closed = False
        self.slot: Slot | None = None
        self.parked: Parked | None = None
        self.checkpoints: list[Parked] = []
        self.generation: Generation | None = None

    @property
    def held(self) -> int:
        """How many tokens of it are in the context now."""
        slot = self.slot
        return 0 if slot is None else len(slot.held)

    def __repr__(self) -> str:
        where = f"{self.held} tokens resident" if self.slot else "parked" if self.parked else "not resident"
        return f"<Sequence {self.name or id(self)}: {'closed' if self.closed else where}>"
