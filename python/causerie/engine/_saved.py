"""States of sequences outside the context: of those that left the context, and of those that may have to go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.engine.tokens_prefix import common_prefix_length
from causerie.errors import CauserieError

if TYPE_CHECKING:
    from causerie.engine._parking import Parked, Parking
    from causerie.engine._slots import Slot
    from causerie.engine.sequence import Sequence
    from causerie.llama.context import Context

__all__ = ["Saved"]


class Saved:
    """Saves states and finds them again. What cannot be saved is evaluated anew: nothing here raises.

    Args:
        context: whose states they are.
        parking: where they are kept.
    """

    def __init__(self, context: Context, parking: Parking) -> None:
        self._state = context.state
        self._memory = context.memory
        self._can_cut = context.memory.can_cut
        self.parking = parking
        self.parked_count = 0

    def _keep(self, slot: Slot) -> Parked | None:
        try:
            if not self.parking.fits(self._state.seq_size(slot.id)):
                return None
            data = self._state.seq_buffer(slot.id)
        except (CauserieError, MemoryError):
            return None
        return self.parking.keep(slot.held[:], data, slot.adapters)

    def park(self, owner: Sequence, slot: Slot) -> None:
        """The owner leaves the slot, and wants to come back."""
        if owner.parked is not None and _is_of(owner.parked, slot):
            return
        self.forget_parked(owner)
        owner.parked = self._keep(slot)
        self.parked_count += owner.parked is not None

    def checkpoint(self, sequence: Sequence, keep: int) -> None:
        """Save the state as it is now, for memories that cannot go back by themselves."""
        slot = sequence.slot
        if self._can_cut or slot is None or not slot.held or self.parking.closed:
            return
        if any(_is_of(saved, slot) for saved in sequence.checkpoints):
            return
        saved = self._keep(slot)
        if saved is not None:
            sequence.checkpoints.append(saved)
            while len(sequence.checkpoints) > keep:
                self.parking.release(sequence.checkpoints.pop(0))

    def share(self, parent: Sequence, child: Sequence) -> None:
        """A fork refers to the same states."""
        child.parked = None if parent.parked is None else parent.parked.shared()
        child.checkpoints = [saved.shared() for saved in parent.checkpoints]

    def forget_parked(self, owner: Sequence) -> None:
        """Give up what was saved when the sequence left."""
        if owner.parked is not None:
            self.parking.release(owner.parked)
            owner.parked = None

    def forget(self, sequence: Sequence) -> None:
        """Give up all that is saved of a sequence."""
        self.forget_parked(sequence)
        while sequence.checkpoints:
            self.parking.release(sequence.checkpoints.pop())

    def best(self, sequence: Sequence, ids: list[int], limit: int) -> tuple[int, Parked | None]:
        """The longest prefix of the ids that a saved state of the sequence gives."""
        best: tuple[int, Parked | None] = (0, None)
        for saved in (sequence.parked, *sequence.checkpoints):
            if saved is not None and saved.kept and saved.adapters == sequence.adapters:
                n = min(common_prefix_length(saved.ids, ids), limit)
                if n > best[0] and (self._can_cut or n == len(saved.ids)):
                    best = n, saved
        return best

    def load(self, slot: Slot, saved: Parked) -> bool:
        """Put a saved state into the memory of an empty slot; False: the memory holds nothing there."""
        data = self.parking.read(saved)
        if data is None:
            return False
        try:
            self._state.seq_set(slot.id, data)
        except (CauserieError, MemoryError):
            self._memory.seq_rm(slot.id)
            return False
        self.parking.touch(saved)
        return True


def _is_of(saved: Parked, slot: Slot) -> bool:
    """Whether it is still there, and is what the slot holds."""
    return saved.kept and saved.ids == slot.held and saved.adapters == slot.adapters
