"""Draws a `CacheMap`: as lines of text for a terminal, as SVG for a notebook. Pure; whoever reads it needs no numbers.

Both show the same: one lane for each sequence, with the cells from left to right, as many of them in one column as it
takes to make them fit. Cells behind the last one that anybody holds are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.engine.stats import CacheEntry, CacheMap

__all__ = ["svg", "text"]

Kind = Literal["none", "own", "shared", "both"]

_MARKS: dict[Kind, str] = {"none": ".", "own": "#", "shared": "=", "both": "+"}
_KEPT = "(kept)"
_NAME_WIDTH = 24
_LEAST_COLUMNS = 8

_BAR_WIDTH = 720
_ROW, _BAR_HEIGHT, _TOP, _LABEL_WIDTH, _COUNT_WIDTH = 24, 16, 44, 190, 70
_STYLE = 'font-family="sans-serif" font-size="12" fill="#222222"'
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _Lane:
    """One sequence: what it is called, and what it holds in each column."""

    label: str
    owned: bool
    cells: int
    columns: tuple[Kind, ...]


@dataclass(frozen=True)
class _Picture:
    """The lanes of all cells before an end, so many cells in a column."""

    scale: int
    end: int
    lanes: tuple[_Lane, ...]
    summary: str


def _label(entry: CacheEntry) -> str:
    name = (entry.name or f"sequence {entry.seq}") if entry.owned else _KEPT
    return f"{name} (busy)" if entry.busy else name


def _place(entry: CacheEntry) -> tuple[bool, list[tuple[int, str]]]:
    """By name, numbers by their value; what belongs to nobody comes last."""
    parts = re.split("([0-9]+)", entry.name)
    return not entry.owned, [(int(part[:18]), part) if i % 2 else (0, part) for i, part in enumerate(parts)]


def _lane(entry: CacheEntry, shared: set[int], scale: int, n_columns: int) -> _Lane:
    own_at = {cell // scale for cell in entry.cells if cell not in shared}
    shared_at = {cell // scale for cell in entry.cells if cell in shared}

    def kind(column: int) -> Kind:
        if column in own_at:
            return "both" if column in shared_at else "own"
        return "shared" if column in shared_at else "none"

    return _Lane(_label(entry), entry.owned, len(entry.cells), tuple(kind(column) for column in range(n_columns)))


def _picture(cache_map: CacheMap, most_columns: int) -> _Picture:
    holders = cache_map.holders()
    held = [cell for cell, ids in enumerate(holders) if ids]
    shared = {cell for cell in held if len(holders[cell]) > 1}
    end = held[-1] + 1 if held else 0
    scale = max(1, -(-end // most_columns))
    n_columns = max(-(-end // scale), 1)
    entries = sorted(cache_map.entries, key=_place)
    return _Picture(
        scale,
        end,
        tuple(_lane(entry, shared, scale, n_columns) for entry in entries),
        f"{cache_map.n_cells} cells: {len(held)} used, {len(shared)} of them shared; {cache_map.n_cells - len(held)} "
        "free",
    )


def _legend(picture: _Picture) -> Iterator[str]:
    marks = [("own", "its own"), ("shared", "shared with others"), ("both", "both"), ("none", "not its own, or free")]
    seen = {kind for lane in picture.lanes for kind in lane.columns}
    said = [f"{_MARKS[kind]} {what}" for kind, what in marks if kind in seen]
    each = "1 cell" if picture.scale == 1 else f"{picture.scale} cells"
    yield f"One character is {each}: {', '.join(said)}."
    if any(not lane.owned for lane in picture.lanes):
        yield f"{_KEPT}: belongs to nobody now, and goes when its room is needed."


def text(cache_map: CacheMap, width: int = 80) -> str:
    """The map as lines of ASCII (names aside), none longer than the width where that is at all possible.

    Args:
        cache_map: what to draw.
        width: columns of the terminal.
    """
    if not cache_map.entries:
        return _picture(cache_map, 1).summary + "."
    # Scaled lanes have the same labels and counts as unscaled ones, which tell how much room there is.
    first = _picture(cache_map, 1)
    names = min(max(len(_printable(lane.label)) for lane in first.lanes), _NAME_WIDTH)
    counts = max(len(str(lane.cells)) for lane in first.lanes)
    picture = _picture(cache_map, max(width - names - counts - 4, _LEAST_COLUMNS))
    lines = [picture.summary + "."]
    for lane in picture.lanes:
        bar = "".join(_MARKS[kind] for kind in lane.columns)
        lines.append(f"{_short(_printable(lane.label), names):<{names}}  {bar}  {lane.cells:>{counts}}")
    return "\n".join([*lines, *_legend(picture)])


def _printable(label: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in label)


def _short(label: str, width: int) -> str:
    return label if len(label) <= width else label[: width - 3] + "..."


def _colour(index: int, *, owned: bool) -> str:
    """Neighbours in the list are far apart on the wheel of colours (the golden angle)."""
    return f"hsl({index * 137.508 % 360:.0f}, 62%, 52%)" if owned else "#b0b0b0"


def svg(cache_map: CacheMap) -> str:
    """The map as an SVG document: a lane with label, colour and count for each sequence.

    Cells that several sequences hold are paler and have a dark line below.

    Args:
        cache_map: what to draw.
    """
    picture = _picture(cache_map, _BAR_WIDTH)
    step = _BAR_WIDTH / max((len(lane.columns) for lane in picture.lanes), default=1)
    width = _LABEL_WIDTH + _BAR_WIDTH + _COUNT_WIDTH
    height = _TOP + _ROW * len(picture.lanes) + _ROW
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} viewBox="0 0 {width} {height}" {_STYLE}>',
        f"<title>{picture.summary}</title>",
        f'<rect {size} fill="#ffffff"/>',
        f'<text x="8" y="22">{picture.summary} (the first {picture.end} are drawn)</text>',
    ]
    for index, lane in enumerate(picture.lanes):
        parts += _svg_lane(lane, _TOP + _ROW * index, step, _colour(index, owned=lane.owned))
    middle = height - _ROW / 2
    parts += [
        f'<g class="legend"><rect x="{_LABEL_WIDTH}" y="{middle - 6}" width="12" height="12" fill="#888888"/>',
        f'<text x="{_LABEL_WIDTH + 18}" y="{middle + 4}">its own</text>',
        *_shared(_LABEL_WIDTH + 90, middle - 6, 12, 12, "#888888"),
        f'<text x="{_LABEL_WIDTH + 108}" y="{middle + 4}">shared with others</text></g>',
        "</svg>",
    ]
    return "\n".join(parts)


def _svg_lane(lane: _Lane, y: float, step: float, colour: str) -> Iterator[str]:
    label = escape(_NO_XML.sub("\ufffd", lane.label))
    short = escape(_NO_XML.sub("\ufffd", _short(lane.label, _NAME_WIDTH)))
    yield f'<g class="sequence"><title>{label}: {lane.cells} cells</title>'
    yield f'<text x="8" y="{y + 12}">{short}</text>'
    yield f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" fill="#f0f0f0"/>'
    column = 0
    for kind, run in groupby(lane.columns):
        count = len(list(run))
        x, width = round(_LABEL_WIDTH + column * step, 2), round(count * step, 2)
        column += count
        if kind == "own":
            yield f'<rect class="own" x="{x}" y="{y}" width="{width}" height="{_BAR_HEIGHT}" fill="{colour}"/>'
        elif kind != "none":
            yield from _shared(x, y, width, _BAR_HEIGHT, colour)
    yield f'<text x="{_LABEL_WIDTH + _BAR_WIDTH + 8}" y="{y + 12}">{lane.cells}</text></g>'


def _shared(x: float, y: float, width: float, height: float, colour: str) -> Iterator[str]:
    place = f'x="{x}" y="{y}" width="{width}"'
    yield f'<rect class="shared" {place} height="{height}" fill="{colour}" fill-opacity="0.45"/>'
    yield f'<rect x="{x}" y="{y + height - 3}" width="{width}" height="3" fill="#444444"/>'
