"""Which ids are in the context's memory, and how a sequence gets a prefix of its prompt without evaluating it again."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from causerie.engine._cells import CountedCells, OrderedCells
from causerie.engine._saved import Saved
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
        self.saved = Saved(context, parking)
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
        self.restored_count = 0

    # ---- what is there ----

    def usable(self, slot: Slot, sequence: Sequence, ids: list[int], limit: int) -> int:
        """How many of the ids a slot could give a sequence as a prefix."""
        if slot.adapters != sequence.adapters:
            return 0
        n = min(common_prefix_length(slot.held, ids), limit)
        return n if self.can_cut or n == len(slot.held) else 0

    def best(self, sequence: Sequence, ids: list[int], limit: int, but: Slot | None = None) -> tuple[int, Slot | None]:
        """The longest prefix that any slot could give a sequence."""
        length, found = 0, None
        for slot in self.slots:
            if slot is not but and slot.held:
                n = self.usable(slot, sequence, ids, limit)
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
            with suppress(UnsupportedError):  # a window that moved on: they may be used, if in another order
                self._memory.seq_cp(slot.id, self._graveyard, length + first, length + last)

    def cut(self, slot: Slot, length: int) -> None:
        """Let the slot hold its first ids only; nothing, where the memory cannot remove a part."""
        if length >= len(slot.held):
            return
        if length == 0:
            self.empty(slot)
            return
        self._bury(slot, length)
        del slot.held[length:], slot.cells[length:]
        try:
            self._memory.seq_rm(slot.id, length)
        except UnsupportedError:
            self.empty(slot)

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
        target.held, target.cells, target.adapters = source.held[:length], source.cells[:length], source.adapters
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

    def obtainable(self, cells: int) -> bool:
        """Whether there are so many cells that no busy slot holds."""
        if self.pool.free + self.pool.garbage >= cells:
            return True
        held = {cell for slot in self.slots if slot.busy for cell in slot.cells}
        return self.pool.size - len(held) >= cells

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
        if owner.closed or len(slot.held) < _FEW or self.saved.parking.closed:
            return
        if self.can_share and self.pool.private(slot.cells) < _FEW:
            return  # it comes back from the one it shares with
        self.saved.park(owner, slot)

    # ---- placing a sequence ----

    def place(self, sequence: Sequence, ids: list[int], limit: int, reserved: int = 0) -> Slot | None:
        """A slot of the sequence's own that holds as many of the first `limit` ids as can be had.

        Leaves `reserved` cells to others.

        None: every slot is busy, or there are too few cells.
        """
        self.clock += 1
        slot = sequence.slot
        here = 0 if slot is None else self.usable(slot, sequence, ids, limit)
        elsewhere, source = self.best(sequence, ids, limit, but=slot)
        saved_length, saved = self.saved.best(sequence, ids, limit)
        if slot is None or self._better_moved(here, saved_length, elsewhere, source):
            if slot is not None:
                self.disown(slot, park=False)
            slot = self._claim(source if elsewhere > saved_length else None)
            if slot is None:
                return None
            slot.owner, sequence.slot = sequence, slot
            here = self.usable(slot, sequence, ids, limit)
        self._prepare(slot, sequence)
        slot.used, slot.busy = self.clock, True
        if source is slot or source is None or not self.can_share or not source.held:
            elsewhere = 0
        if saved is None or not saved.kept:  # to make room, it may have been dropped
            saved_length = 0
        most = max(here, elsewhere, saved_length)
        if here + _FEW > most:
            self.cut(slot, here)
        elif source is not None and elsewhere == most:
            self.empty(slot)
            self._copy(source, slot, elsewhere)
        elif saved is not None:
            self._restore(slot, saved, saved_length, reserved)
            self.restored_count += saved is sequence.parked and bool(slot.held)
        if slot.held:
            self.saved.forget_parked(sequence)
        return slot

    def _prepare(self, slot: Slot, sequence: Sequence) -> None:
        """What the slot holds was evaluated with the sequence's adapters, from here on."""
        if slot.adapters != sequence.adapters:
            self.empty(slot)
            slot.adapters = sequence.adapters

    def _better_moved(self, here: int, saved: int, elsewhere: int, source: Slot | None) -> bool:
        """Whether to take over a slot that nobody owns, as nothing can be copied from it."""
        vacant = source is not None and source.owner is None and not source.busy
        return vacant and not self.can_share and elsewhere >= max(here, saved) + _FEW

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

    def _restore(self, slot: Slot, saved: Parked, length: int, reserved: int) -> None:
        """Let the slot hold a saved state, cut to a length; nothing, where that fails."""
        self.empty(slot)
        if self.make_room(len(saved.ids) + reserved) and self.saved.load(slot, saved):
            slot.held = [*saved.ids]
            slot.cells = self.pool.take(len(slot.held))
            self.cut(slot, length)

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Let the child hold what the parent holds, where a slot is vacant and cells or state can be shared."""
        source = parent.slot
        self.saved.share(parent, child)
        if source is None or not source.held:
            return False
        slot = next((s for s in self.slots if s.owner is None and not s.busy and not s.held), None)
        if slot is None or not self._copy(source, slot, len(source.held)):
            return False
        self.clock += 1
        slot.owner, child.slot, slot.used = child, slot, self.clock
        return True

    def leave(self, sequence: Sequence) -> None:
        """The sequence has no use for what it holds; it stays as a prefix for others."""
        if sequence.slot is not None:
            self.disown(sequence.slot, park=False)

    def purge(self) -> None:
        """Let the memory hold nothing, and zero it: NaN in a cell may spoil what is computed with others beside it."""
        for slot in self.slots:
            self.disown(slot, park=False)
            self.empty(slot)
        self._memory.clear(data=True)
        self.pool.compact()

    def forget(self, sequence: Sequence) -> None:
        """The sequence is closed: its saved states go, its content stays as a prefix for others."""
        self.saved.forget(sequence)
        self.leave(sequence)

    def close(self) -> None:
        """Give up all saved states; the context is about to be freed."""
        self.saved.parking.clear()
