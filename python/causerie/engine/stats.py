"""What an engine tells about itself: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.engine.settings import Setting
    from causerie.llama.placement import DeviceUse

__all__ = ["CacheEntry", "CacheMap", "EngineStats"]


@dataclass(frozen=True)
class EngineStats:
    """Counts and rates of one engine.

    Attributes:
        cells, cells_used, cells_shared, cells_free: KV cells; shared ones are held by several sequences.
        sequences: those that are open.
        resident: open sequences that are in the context now.
        parked: saved states in RAM or on disk, checkpoints included.
        parked_bytes, parked_disk_bytes: what they take in RAM and on disk.
        running, queued: generations that have a place in the context, and that wait for one.
        steps: evaluations so far.
        tokens: tokens evaluated so far, prompts and answers.
        generated: tokens generated so far.
        prompt_tokens, cached_tokens: of all prompts so far, and those of them that were in the cache.
        hit_rate: cached_tokens / prompt_tokens; 0.0 before the first prompt.
        preempted: times a generation had to leave the context to let an older one go on.
        parkings, restorations: times a sequence left the context to RAM or disk, and came back from there.
        compactions: times the cells were moved together, so that freed ones could be used again.
        largest_step, mean_step: tokens in one evaluation: ever, and on average of the recent ones.
        tokens_per_second, prompt_tokens_per_second: generated and prompt tokens, of the recent evaluations.
        busy_seconds: time spent evaluating.
        settings: what the engine was opened with and why, by the names of `TokenEngine`'s options.
        devices: which layers, and how much of weights, cache and buffers, are on which device.
    """

    cells: int
    cells_used: int
    cells_shared: int
    cells_free: int
    sequences: int
    resident: int
    parked: int
    parked_bytes: int
    parked_disk_bytes: int
    running: int
    queued: int
    steps: int
    tokens: int
    generated: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float
    preempted: int
    parkings: int
    restorations: int
    compactions: int
    largest_step: int
    mean_step: float
    tokens_per_second: float
    prompt_tokens_per_second: float
    busy_seconds: float
    settings: dict[str, Setting]
    devices: tuple[DeviceUse, ...]


@dataclass(frozen=True)
class CacheEntry:
    """One sequence id of the context.

    Attributes:
        seq: llama.cpp's sequence id.
        name: the sequence's name; "" for content that belongs to nobody and is kept as a prefix for others.
        owned: whether an open sequence lives here.
        busy: whether a generation runs here.
        cells: its cells, in the order of its tokens. Numbers are the engine's own: equal ones are the same cell.
    """

    seq: int
    name: str
    owned: bool
    busy: bool
    cells: tuple[int, ...]


@dataclass(frozen=True)
class CacheMap:
    """Which cells belong to which sequences.

    Attributes:
        n_cells: cells there are.
        entries: sequence ids that hold something.
    """

    n_cells: int
    entries: tuple[CacheEntry, ...]

    def holders(self) -> list[tuple[int, ...]]:
        """For each cell, the sequence ids that hold it."""
        held: list[list[int]] = [[] for _ in range(self.n_cells)]
        for entry in self.entries:
            for cell in entry.cells:
                held[cell].append(entry.seq)
        return [tuple(ids) for ids in held]

    def _repr_svg_(self) -> str:
        """The map as a picture, for notebooks."""
        from causerie.engine.cache_picture import svg

        return svg(self)

    def _repr_html_(self) -> str:
        """The picture, where HTML is shown and SVG is not."""
        return f"<div>{self._repr_svg_()}</div>"

    def _repr_markdown_(self) -> str:
        """The map as lines of text, where no picture can be shown."""
        from causerie.engine.cache_picture import text

        return f"```text\n{text(self)}\n```"
