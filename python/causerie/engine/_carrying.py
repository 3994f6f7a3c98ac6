"""Takes what is evaluated of a sequence out of the cache, and puts it into one. Used by whoever leads the engine."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from causerie.engine.sequence_state import SequenceState
from causerie.errors import CacheFullError, CauserieError, StateError

if TYPE_CHECKING:
    from causerie.engine._cache import Cache
    from causerie.engine._slots import Slot
    from causerie.engine.sequence import Sequence
    from causerie.llama.context import Context

__all__ = ["put_in", "take_out"]

logger = logging.getLogger("causerie.engine")

# Evaluating so few tokens again is as good.
_FEW = 16


def take_out(context: Context, cache: Cache, sequence: Sequence, ids: list[int]) -> SequenceState | None:
    """What there is of the beginning of `ids`, wherever it is; None: hardly anything.

    What the sequence holds beyond them is given up: it is nothing that comes next.
    """
    limit = len(ids)
    slot = sequence.slot
    here = 0 if slot is None else cache.usable(slot, sequence, ids, limit)
    elsewhere = cache.best(sequence, ids, limit, but=slot)[0] if cache.can_share else 0
    saved_length, saved = cache.saved.best(sequence, ids, limit)
    most = max(here, elsewhere, saved_length)
    if most < _FEW:
        return None
    whole = saved is not None and saved_length == len(saved.ids)
    if saved is not None and whole and here <= saved_length > most - _FEW:
        on_disk = saved.data is None
        data = cache.saved.parking.read(saved)
        if data is not None:
            return SequenceState(tuple(saved.ids), bytes(data) if on_disk else data, adapters=saved.adapters)
    if slot is None or here + _FEW <= most:
        slot = cache.place(sequence, ids, limit)
        if slot is None:
            return None
        slot.busy = False
    else:
        cache.cut(slot, here)
    if len(slot.held) < _FEW or slot.held != ids[: len(slot.held)]:
        return None
    try:
        return SequenceState(tuple(slot.held), context.state.seq_buffer(slot.id), adapters=slot.adapters)
    except (CauserieError, MemoryError) as error:
        logger.warning("what is evaluated of a sequence could not be taken out: %s", error)
        return None


def put_in(context: Context, cache: Cache, sequence: Sequence, state: SequenceState) -> None:
    """Give a new sequence what was taken out of another one: in the context, in RAM or on disk.

    Raises:
        StateError: it does not fit this context, or is damaged.
        CacheFullError: there is no room.
    """
    ids = list(state.ids)
    first, last = context.state.seq_check(state.data)
    if not ids or last + 1 != len(ids) or first < 0:
        raise StateError(f"a state of {last + 1} positions does not belong to {len(ids)} tokens")
    if min(ids) < 0 or max(ids) >= context.model.n_vocab:
        raise StateError(f"token ids must be in 0..{context.model.n_vocab - 1}")
    if len(ids) > context.n_ctx_seq:
        raise CacheFullError(f"the state of {len(ids)} tokens needs n_ctx={len(ids)}, there are {context.n_ctx_seq}")
    slot = _vacant(cache, len(ids))
    if slot is None:
        data = state.data if state.lasting else bytes(state.data)
        sequence.parked = cache.saved.parking.keep(ids, data, sequence.adapters)
        if sequence.parked is not None:
            return
        while slot is None and cache.evict_one():
            slot = _vacant(cache, len(ids))
        if slot is None:
            raise CacheFullError(f"there is no room for the state of {len(ids)} tokens")
    _load(context, cache, slot, ids, state.data)
    cache.clock += 1
    slot.owner, sequence.slot, slot.used, slot.adapters = sequence, slot, cache.clock, sequence.adapters


def _vacant(cache: Cache, cells: int) -> Slot | None:
    """An empty slot with free cells, for which nobody has to leave."""
    vacant = [slot for slot in cache.slots if slot.owner is None and not slot.busy]
    held = {cell for slot in cache.slots if slot not in vacant for cell in slot.cells}
    if not vacant or cache.pool.size - len(held) < cells:
        return None
    slot = min(vacant, key=lambda each: (bool(each.held), each.used))
    cache.empty(slot)
    return slot if cache.make_room(cells) else None


def _load(context: Context, cache: Cache, slot: Slot, ids: list[int], data: bytes | memoryview) -> None:
    """Let an empty slot hold a state; nothing, where that fails."""
    try:
        context.state.seq_set(slot.id, data)
        end = context.memory.seq_pos_max(slot.id) + 1
        if end != len(ids):
            raise StateError(f"the state has {end} positions and belongs to {len(ids)} tokens")
    except (CauserieError, MemoryError) as error:
        context.memory.seq_rm(slot.id)
        if isinstance(error, (StateError, CacheFullError)):
            raise
        raise StateError(f"the state could not be restored: {error}") from error
    slot.held = ids
    slot.cells = cache.pool.take(len(ids))
