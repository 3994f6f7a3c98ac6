"""Whether no value can match two schemas at once, as far as their kinds, values and required properties tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.chat.schema.conjunction import ALL_KINDS, explicit_kinds, json_key, kind_of, values
from causerie.chat.schema.objects import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.chat.schema.document import Document
    from causerie.chat.schema.place import World

__all__ = ["disjoint"]

_MAX_DEPTH = 4


def disjoint(document: Document, a: Iterable[World], b: Iterable[World], depth: int = 0) -> bool:
    """Whether no value matches one of the worlds `a` and one of the worlds `b`; False if that cannot be told."""
    others = list(b)
    return depth <= _MAX_DEPTH and all(_apart(document, one, other, depth) for one in a for other in others)


def _apart(document: Document, a: World, b: World, depth: int) -> bool:
    values_a, values_b = values(a), values(b)
    if values_a is not None and values_b is not None:
        return not {json_key(v) for v in values_a} & {json_key(v) for v in values_b}
    common = _kinds(a) & _kinds(b)
    if common != {"object"}:
        return not common
    first, second = Properties(a), Properties(b)
    for name in {*first.required, *second.required}:
        if first.excludes(name) or second.excludes(name):
            return True
        if name in first.names and name in second.names:
            ways = [document.worlds(side.places_of(name)) for side in (first, second)]
            if disjoint(document, ways[0], ways[1], depth + 1):
                return True
    return False


def _kinds(world: World) -> frozenset[str]:
    found = explicit_kinds(world) or ALL_KINDS
    known = values(world)
    return found if known is None else found & {kind_of(value) for value in known}
