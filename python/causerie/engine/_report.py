"""Puts together what an engine tells about itself; called while nobody leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.engine.stats import CacheEntry, CacheMap, EngineStats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.engine._cache import Cache
    from causerie.engine._counters import Counters
    from causerie.engine.generation import Generation
    from causerie.engine.sequence import Sequence
    from causerie.engine.settings import Setting
    from causerie.llama.placement import DeviceUse

__all__ = ["gather_map", "gather_stats"]


def gather_stats(
    counters: Counters,
    cache: Cache,
    unfinished: list[Generation],
    sequences: Iterable[Sequence],
    settings: dict[str, Setting],
    devices: tuple[DeviceUse, ...],
) -> EngineStats:
    """`TokenEngine.stats`."""
    pool, parking = cache.pool, cache.saved.parking
    generated, prompt, mean = counters.rates()
    asked, cached = counters.prompt_tokens, counters.cached_tokens
    return EngineStats(
        cells=pool.size,
        cells_used=pool.size - pool.free - pool.garbage,
        cells_shared=pool.shared(),
        cells_free=pool.free + pool.garbage,
        sequences=sum(not s.closed for s in sequences),
        resident=sum(slot.owner is not None and bool(slot.held) for slot in cache.slots),
        parked=len(parking),
        parked_bytes=parking.used,
        parked_disk_bytes=parking.disk_used,
        running=sum(g.placed for g in unfinished),
        queued=sum(not g.placed for g in unfinished),
        steps=counters.steps,
        tokens=counters.tokens,
        generated=counters.generated,
        prompt_tokens=asked,
        cached_tokens=cached,
        hit_rate=cached / asked if asked else 0.0,
        preempted=counters.preempted,
        parkings=cache.saved.parked_count,
        restorations=cache.restored_count,
        compactions=cache.compactions,
        largest_step=counters.largest_step,
        mean_step=mean,
        tokens_per_second=generated,
        prompt_tokens_per_second=prompt,
        busy_seconds=counters.busy_seconds,
        settings=settings,
        devices=devices,
    )


def gather_map(cache: Cache) -> CacheMap:
    """`TokenEngine.cache_map`."""
    entries = tuple(
        CacheEntry(
            seq=slot.id,
            name="" if slot.owner is None else slot.owner.name,
            owned=slot.owner is not None,
            busy=slot.busy,
            cells=tuple(slot.cells),
        )
        for slot in cache.slots
        if slot.held
    )
    return CacheMap(cache.pool.size, entries)
