"""Sets of characters, as sorted ranges of code points (pure Python)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ANY", "CharSet", "chars", "complement", "contains", "intersect", "partition", "union"]

CharSet = tuple[tuple[int, int], ...]

_LAST = 0x10FFFF
# All of Unicode: a surrogate is no character.
ANY: CharSet = ((0, 0xD7FF), (0xE000, _LAST))


def chars(text: str) -> CharSet:
    """The characters of a text."""
    return union(((ord(c), ord(c)),) for c in text)


def union(sets: Iterable[CharSet]) -> CharSet:
    """What any of the sets has."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for ranges in sets for pair in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersect(a: CharSet, b: CharSet) -> CharSet:
    """What both sets have."""
    found = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def complement(a: CharSet) -> CharSet:
    """All characters that the set does not have."""
    gaps = []
    start = 0
    for low, high in a:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= _LAST:
        gaps.append((start, _LAST))
    return intersect(tuple(gaps), ANY)


def contains(a: CharSet, code: int) -> bool:
    """Whether the set has a code point."""
    return any(low <= code <= high for low, high in a)


def partition(sets: Iterable[CharSet]) -> list[tuple[CharSet, tuple[int, ...]]]:
    """Cut sets that overlap into sets that do not; with each, the indices of the sets that it is part of."""
    events: dict[int, list[tuple[int, bool]]] = {}
    for index, ranges in enumerate(sets):
        for low, high in ranges:
            events.setdefault(low, []).append((index, True))
            events.setdefault(high + 1, []).append((index, False))
    parts: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    active: set[int] = set()
    start = 0
    for point in sorted(events):
        if active:
            parts.setdefault(tuple(sorted(active)), []).append((start, point - 1))
        ending = {index for index, opens in events[point] if not opens}
        active = (active - ending) | {index for index, opens in events[point] if opens}
        start = point
    return [(union([tuple(ranges)]), members) for members, ranges in parts.items()]
