"""Which ids are in the context's memory, and how a sequence gets a prefix of its prompt without evaluating it again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from causerie.engine._cells import CountedCells, OrderedCells
from causerie.engine._slots import Slot
from causerie.engine.tokens_prefix import common_prefix_length
from causerie.errors import CauserieError, UnsupportedError

if TYPE_CHECKING:
    from causerie.engine._cells import Cells
    from causerie.engine._parking import Parked, Parking
    from causerie.engine.sequence import Sequence
    from causerie.llama.context import Context

__all__ = ["Cache"]

# Evaluating so few tokens is cheaper than saving, restoring or copying them.
_FEW = 16
# Cells that nobody wants slow attention down: when they are more than half of all, and of so many, they are removed.
_MUCH_GARBAGE = 1024

logger = logging.getLogger("causerie.engine")


class Cache:
    """The slots of a context. Owned by whoever leads the engine; nothing here is evaluated.

    Whatever fails leaves a slot that holds less, never one that holds what it does not say.

    Args:
        context: whose memory it is.
        parking: where the state of sequences goes that must leave.
    """

    def __init__(self, context: Context, parking: Parking) -> None:
        self._memory = context.memory
        self._state = context.state
        self.parking = parking
        ids = context.n_seq_max
        self.pool: Cells
        self._graveyard: int | None = None  # the sequence id that keeps cells from being used
        if context.kv_unified and self._memory.can_cut:
            ids -= 1
            self._graveyard = ids
            self.pool = OrderedCells(context.n_ctx)
        elif context.kv_unified and not context.model.is_recurrent:
            self.pool = CountedCells(context.n_ctx)
        else:  # each sequence has cells of its own, or takes none: nobody is in another's way
            self.pool = CountedCells(context.n_ctx_seq * ids)
        self.slots = [Slot(i) for i in range(ids)]
        self.can_cut = self._memory.can_cut  # whether any end of a sequence can be removed
        self.can_share = self._memory.can_share  # whether sequences can hold the same cells
        self.clock = 0
        self.compactions = 0
        self.parked_count = 0
        self.restored_count = 0

    # ---- what is there ----

    def usable(self, slot: Slot, ids: list[int], limit: int) -> int:
        """How many of the ids a slot could give as a prefix."""
        n = min(common_prefix_length(slot.held, ids), limit)
        return n if self.can_cut or n == len(slot.held) else 0

    def best(self, ids: list[int], limit: int, but: Slot | None = None) -> tuple[int, Slot | None]:
        """The longest prefix that any slot could give."""
        length, found = 0, None
        for slot in self.slots:
            if slot is not but and slot.held:
                n = self.usable(slot, ids, limit)
                if n > length:
                    length, found = n, slot
        return length, found

    # ---- changing what a slot holds ----

    def empty(self, slot: Slot) -> None:
        """Let the slot hold nothing."""
        self._bury(slot, 0)
        self._memory.seq_rm(slot.id)
        slot.held, slot.cells, slot.pending = [], [], []

    def _bury(self, slot: Slot, length: int) -> None:
        """Before the memory forgets what the slot holds from a length on: see to it that nobody uses those cells."""
        first, last = self.pool.release(slot.cells[length:])
        if first < last and self._graveyard is not None:
            self._memory.seq_cp(slot.id, self._graveyard, length + first, length + last)

    def cut(self, slot: Slot, length: int) -> None:
        """Let the slot hold its first ids only; nothing, where the memory cannot remove a part."""
        if length >= len(slot.held):
            return
        if length == 0:
            self.empty(slot)
            return
        if self.can_cut:
            self._bury(slot, length)
            self._memory.seq_rm(slot.id, length)
        else:
            try:
                self._memory.seq_rm(slot.id, length)
            except UnsupportedError:
                self.empty(slot)
                return
            self.pool.release(slot.cells[length:])
        del slot.held[length:], slot.cells[length:]

    def _copy(self, source: Slot, target: Slot, length: int) -> bool:
        """Let an empty slot hold the first ids of another one."""
        if not self.can_share:
            return False
        whole = length == len(source.held)
        try:
            self._memory.seq_cp(source.id, target.id, -1, -1 if whole else length)
        except UnsupportedError:
            self._memory.seq_rm(target.id)
            return False
        target.held, target.cells = source.held[:length], source.cells[:length]
        self.pool.share(target.cells)
        return True

    def commit(self, slot: Slot) -> None:
        """What was pending has been evaluated."""
        slot.cells += self.pool.take(len(slot.pending))
        slot.held += slot.pending
        slot.pending = []

    def reconcile(self, slot: Slot) -> None:
        """Ask the memory what it holds, after an evaluation that did not end as planned."""
        ids = slot.held + slot.pending
        slot.pending = []
        end = self._memory.seq_pos_max(slot.id) + 1
        if end > len(ids) or (end and self._memory.seq_pos_min(slot.id) < 0):
            self.empty(slot)
            return
        if end < len(slot.held):  # llama.cpp has removed more than it was evaluating: recurrent state
            self.pool.release(slot.cells[end:])
            del slot.cells[end:]
        else:
            slot.cells += self.pool.take(end - len(slot.held))
        slot.held = ids[:end]

    # ---- room ----

    def make_room(self, cells: int) -> bool:
        """Let idle sequences leave until so many cells are free; whether they are."""
        while self.pool.free + self.pool.garbage < cells:
            if not self.evict_one():
                return False
        if self.pool.free < cells or self.pool.garbage > max(_MUCH_GARBAGE, self.pool.size - self.pool.free) / 2:
            self._compact()
        return self.pool.free >= cells

    def _compact(self) -> None:
        """Move all cells up, in their order, so that those that nobody wants become free."""
        if self._graveyard is None or not self.pool.garbage:
            return
        self._memory.seq_rm(self._graveyard)
        try:
            self._state.set(self._state.get(checksum=False))
        except (CauserieError, MemoryError):
            logger.warning("the cache could not be compacted: all sequences will be evaluated anew", exc_info=True)
            for slot in self.slots:
                self.empty(slot)
            self._memory.clear(data=False)
        moved = self.pool.compact()
        for slot in self.slots:
            slot.cells = [moved[cell] for cell in slot.cells]
        self.compactions += 1

    def evict_one(self) -> bool:
        """Let the least recently used idle sequence leave the memory; False: there is none."""
        idle = [slot for slot in self.slots if slot.held and not slot.busy]
        if not idle:
            return False
        self.vacate(min(idle, key=lambda slot: (slot.owner is not None, slot.used)))
        return True

    def vacate(self, slot: Slot) -> None:
        """Empty a slot; what its owner has there is parked if that is worth it."""
        self.disown(slot, park=True)
        self.empty(slot)

    def disown(self, slot: Slot, *, park: bool) -> None:
        """The owner leaves; the content stays as a prefix for others."""
        owner, slot.owner, slot.busy = slot.owner, None, False
        if owner is None:
            return
        if park:
            self._park(owner, slot)
        owner.slot = None

    def _park(self, owner: Sequence, slot: Slot) -> None:
        if owner.closed or len(slot.held) < _FEW or not self.parking.budget:
            return
        if self.can_share and self.pool.private(slot.cells) < _FEW:
            return  # it comes back from the one it shares with
        try:
            if not self.parking.fits(self._state.seq_size(slot.id)):
                return
            data = self._state.seq_get(slot.id, checksum=False)
        except (CauserieError, MemoryError):
            return  # it comes back by evaluation
        self.forget_parked(owner)
        owner.parked = self.parking.keep(slot.held[:], data)
        self.parked_count += owner.parked is not None

    def forget_parked(self, owner: Sequence) -> None:
        """Give up a sequence's saved state."""
        if owner.parked is not None:
            self.parking.release(owner.parked)
            owner.parked = None

    # ---- placing a sequence ----

    def place(self, sequence: Sequence, ids: list[int], limit: int) -> Slot | None:
        """A slot of the sequence's own that holds as many of the first `limit` ids as can be had.

        None: every slot is busy, or there are too few cells.
        """
        self.clock += 1
        slot = sequence.slot
        length = 0 if slot is None else self.usable(slot, ids, limit)
        shared_length, source = self.best(ids, limit, but=slot)
        parked, parked_length = self._parked_prefix(sequence, ids, limit)
        checkpoint, checkpoint_length = self._checkpoint_prefix(sequence, ids, limit)
        if slot is None:
            slot = self._claim(source if source is not None and shared_length > parked_length else None)
            if slot is None:
                return None
            slot.owner, sequence.slot = sequence, slot
            if slot is source:
                length, source = shared_length, None
        slot.used, slot.busy = self.clock, True
        most = max(length, shared_length if source is not None else 0, parked_length, checkpoint_length)
        if length + _FEW > most:
            self.cut(slot, length)
        elif source is not None and shared_length == most:
            self.empty(slot)
            if not self._copy(source, slot, shared_length):
                return slot
        elif checkpoint is not None and checkpoint_length == most:
            self._restore(slot, checkpoint, checkpoint_length)
        elif parked is not None:
            self._restore(slot, parked, parked_length)
            self.restored_count += bool(slot.held)
        if slot.held:
            self.forget_parked(sequence)
        return slot

    def _parked_prefix(self, sequence: Sequence, ids: list[int], limit: int) -> tuple[Parked | None, int]:
        parked = sequence.parked
        if parked is None or parked.data is None:
            return None, 0
        n = min(common_prefix_length(parked.ids, ids), limit)
        return (parked, n) if n and (self.can_cut or n == len(parked.ids)) else (None, 0)

    def _checkpoint_prefix(self, sequence: Sequence, ids: list[int], limit: int) -> tuple[Parked | None, int]:
        """The longest checkpoint that the ids begin with."""
        best: tuple[Parked | None, int] = (None, 0)
        for saved in sequence.checkpoints:
            n = len(saved.ids)
            if saved.data is not None and best[1] < n <= limit and saved.ids == ids[:n]:
                best = saved, n
        return best

    def _claim(self, source: Slot | None) -> Slot | None:
        """A slot for a sequence that has none: an empty one, or one whose content nobody needs more."""
        vacant = [slot for slot in self.slots if slot.owner is None and not slot.busy]
        if source is not None and source in vacant and (not self.can_share or all(slot.held for slot in vacant)):
            return source
        for slot in vacant:
            if not slot.held:
                return slot
        others = [slot for slot in vacant if slot is not source]
        if others:
            slot = min(others, key=lambda s: s.used)
            self.empty(slot)
            return slot
        idle = [slot for slot in self.slots if not slot.busy and slot is not source]
        if idle:
            slot = min(idle, key=lambda s: s.used)
            self.vacate(slot)
            return slot
        if source is not None and not source.busy:
            self.disown(source, park=True)
            return source
        return None

    def _restore(self, slot: Slot, saved: Parked, length: int) -> None:
        """Let the slot hold a saved state, cut to a length; nothing, where that fails."""
        self.empty(slot)
        if saved.data is None or not self.make_room(len(saved.ids)):
            return
        try:
            self._state.seq_set(slot.id, saved.data)
        except (CauserieError, MemoryError):
            self._memory.seq_rm(slot.id)
            return
        slot.held = saved.ids[:]
        slot.cells = self.pool.take(len(slot.held))
        self.parking.touch(saved)
        self.cut(slot, length)

    def checkpoint(self, sequence: Sequence, keep: int) -> None:
        """Save the state as it is now, for memories that cannot go back by themselves."""
        slot = sequence.slot
        if self.can_cut or slot is None or not slot.held or not self.parking.budget:
            return
        if any(saved.ids == slot.held for saved in sequence.checkpoints):
            return
        try:
            data = self._state.seq_get(slot.id, checksum=False)
        except (CauserieError, MemoryError):
            return
        saved = self.parking.keep(slot.held[:], data)
        if saved is not None:
            sequence.checkpoints.append(saved)
            while len(sequence.checkpoints) > keep:
                self.parking.release(sequence.checkpoints.pop(0))

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Let the child hold what the parent holds, where a slot is vacant and cells or state can be shared."""
        source = parent.slot
        child.parked = None if parent.parked is None else parent.parked.shared()
        child.checkpoints = [saved.shared() for saved in parent.checkpoints]
        if source is None or not source.held:
            return False
        slot = next((s for s in self.slots if s.owner is None and not s.busy and not s.held), None)
        if slot is None or not self._copy(source, slot, len(source.held)):
            return False
        self.clock += 1
        slot.owner, child.slot, slot.used = child, slot, self.clock
        return True

    def forget(self, sequence: Sequence) -> None:
        """The sequence is closed: its saved states go, its content stays as a prefix for others."""
        self.forget_parked(sequence)
        while sequence.checkpoints:
            self.parking.release(sequence.checkpoints.pop())
        if sequence.slot is not None:
            self.disown(sequence.slot, park=False)
