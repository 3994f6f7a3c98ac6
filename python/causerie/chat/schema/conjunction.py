"""What several schemas that all hold demand together: kinds, values, bounds (pure Python)."""

from __future__ import annotations

import json
from decimal import Decimal
from math import lcm
from typing import TYPE_CHECKING, Any

from causerie.chat.schema.automaton import Automaton, Both, Length, Matching, accepts
from causerie.chat.schema.charset import ANY
from causerie.chat.schema.formats import FREE_FORMATS, NUMBER_FORMATS, STRING_FORMATS
from causerie.chat.schema.keywords import KIND_KEYWORDS, KINDS, json_path
from causerie.chat.schema.numbers import Bounds
from causerie.chat.schema.regex import parse_regex
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.chat.schema.place import Place, World

__all__ = [
    "ALL_KINDS",
    "allows_number",
    "allows_text",
    "explicit_kinds",
    "json_key",
    "kind_of",
    "kinds",
    "least_most",
    "name_automaton",
    "number_bounds",
    "text_automaton",
    "values",
]

ALL_KINDS = frozenset().union(*KINDS.values())
_MAX_LENGTH = 100_000


def _with_keyword(world: World, keyword: str) -> Iterator[tuple[Place, Any]]:
    """The places of a world that have a keyword, with its value."""
    for place in world:
        if keyword in place.schema:
            yield place, place.schema[keyword]


def json_key(value: Any) -> str:
    """A text that two JSON values share exactly if JSON schema calls them equal."""

    def plain(item: Any) -> Any:
        if isinstance(item, float) and item.is_integer():
            return int(item)
        if isinstance(item, dict):
            return {name: plain(item[name]) for name in sorted(item)}
        return [plain(entry) for entry in item] if isinstance(item, (list, tuple)) else item

    return json.dumps(plain(value), allow_nan=False)


def kind_of(value: Any) -> str:
    """The kind of a JSON value, of `ALL_KINDS`."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, (int, float)):
        return "integer" if value == int(value) else "fraction"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def explicit_kinds(world: World) -> frozenset[str] | None:
    """The kinds that "type" allows; None if nothing is said."""
    found: frozenset[str] | None = None
    for _, value in _with_keyword(world, "type"):
        names = [value] if isinstance(value, str) else value
        allowed = frozenset().union(*(KINDS[name] for name in names))
        found = allowed if found is None else found & allowed
    return found


def kinds(world: World) -> frozenset[str]:
    """The kinds to generate: what "type" allows, or else those that the keywords are about, or else all."""
    found = explicit_kinds(world)
    if found is not None:
        return found
    meant = [
        KINDS[kind] for kind, names in KIND_KEYWORDS.items() if any(name in p.schema for p in world for name in names)
    ]
    numeric = any(value in NUMBER_FORMATS for _, value in _with_keyword(world, "format"))
    return KINDS["number"] if numeric else frozenset().union(*meant) if meant else ALL_KINDS


def values(world: World) -> list[Any] | None:
    """The values that enum and const leave; None if there is neither."""
    found: dict[str, Any] | None = None
    for keyword in ("enum", "const"):
        for place, value in _with_keyword(world, keyword):
            try:
                allowed = {json_key(v): v for v in (value if keyword == "enum" else [value])}
            except (TypeError, ValueError, RecursionError) as error:
                path = json_path(place.path, keyword)
                raise SchemaError(f"{path} has a value that is not JSON: {error}", path=path) from None
            found = allowed if found is None else {k: v for k, v in found.items() if k in allowed}
    return None if found is None else list(found.values())


def least_most(world: World, least: str, most: str) -> tuple[int, int | None]:
    """The largest of the minima and the smallest of the maxima."""
    low = max((int(value) for _, value in _with_keyword(world, least)), default=0)
    high = min((int(value) for _, value in _with_keyword(world, most)), default=None)
    for keyword, value in ((least, low), (most, high or 0)):
        if value > _MAX_LENGTH:
            path = next(json_path(p.path, keyword) for p, v in _with_keyword(world, keyword) if v == value)
            raise SchemaError(f"{path} is more than a grammar can count, {_MAX_LENGTH}", path=path)
    return low, high


def number_bounds(world: World, *, integer: bool) -> Bounds:
    """The bounds of the numbers, and what they are multiples of."""
    low, above = None, False
    high, below = None, False
    for place in world:
        schema = place.schema
        for keyword, value in _bounds_of(schema):
            bound, strict = Decimal(repr(value)), keyword.startswith("exclusive")
            if keyword.lower().endswith("minimum"):
                low, above = max((low, above), (bound, strict)) if low is not None else (bound, strict)
            else:
                high, below = min((high, not below), (bound, not strict)) if high is not None else (bound, not strict)
                below = not below
    multiple, decimals = 1, 0 if integer else None
    for place, value in _with_keyword(world, "multipleOf"):
        step = Decimal(repr(value))
        _, digits, exponent = step.normalize().as_tuple()
        if step == step.to_integral_value():
            multiple, decimals = lcm(multiple, int(step)), 0
        elif digits == (1,) and isinstance(exponent, int):
            decimals = -exponent if decimals is None else min(decimals, -exponent)
        else:
            path = json_path(place.path, "multipleOf")
            raise SchemaError(f"{path} must be an integer or a power of ten such as 0.01, not {value}", path=path)
    return Bounds(low, high, above=above, below=below, multiple=multiple, decimals=decimals)


def _bounds_of(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if keyword in schema:
            yield keyword, schema[keyword]
    if schema.get("format") in NUMBER_FORMATS:
        low, high = NUMBER_FORMATS[schema["format"]]
        yield from (("minimum", low), ("maximum", high))


def name_automaton(world: World) -> tuple[Automaton, str]:
    """Which names of properties the keywords for strings allow, and where the first of them is."""
    low, high = least_most(world, "minLength", "maxLength")
    return text_automaton(world) or (Length(low, high), world[0].path if world else "$")


def text_automaton(world: World) -> tuple[Automaton, str] | None:
    """Which strings the patterns and formats allow, and where the first is; None if there are none of them."""
    members: list[Automaton] = []
    paths: list[str] = []
    for place, pattern in _with_keyword(world, "pattern"):
        paths.append(json_path(place.path, "pattern"))
        members.append(Matching(parse_regex(pattern, paths[-1], search=True)))
    for place, name in _with_keyword(world, "format"):
        if name in FREE_FORMATS or name in NUMBER_FORMATS:
            continue
        paths.append(json_path(place.path, "format"))
        members.append(Matching(parse_regex(STRING_FORMATS[name], paths[-1])))
    if not members:
        return None
    low, high = least_most(world, "minLength", "maxLength")
    if low or high is not None:
        members.append(Length(low, high))
    return (members[0] if len(members) == 1 else Both(tuple(members))), paths[0]


def allows_text(world: World, text: str) -> bool:
    """Whether the keywords for strings allow a text."""
    low, high = least_most(world, "minLength", "maxLength")
    if len(text) < low or (high is not None and len(text) > high):
        return False
    if any(not any(a <= ord(c) <= b for a, b in ANY) for c in text):
        return False
    found = text_automaton(world)
    return found is None or accepts(found[0], text)


def allows_number(world: World, value: float) -> bool:
    """Whether the keywords for numbers allow a number."""
    return number_bounds(world, integer=False).allow(Decimal(repr(value)))
