"""The properties of objects: which names there may be, and what each of them has to match (pure Python)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from causerie.chat.schema.automaton import Automaton, Both, Complement, Matching, accepts, either, text_of
from causerie.chat.schema.keywords import json_path
from causerie.chat.schema.regex import parse_regex
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.chat.schema.place import Place, World

__all__ = ["Properties"]

_MAX_PATTERNS = 4


class Properties:
    """What the places of a world say together about an object's properties.

    Where nothing is said about further properties, none are generated, unless no property has a name at all.

    Args:
        world: places that all hold.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.required = tuple(dict.fromkeys(name for place in world for name in place.schema.get("required", ())))
        named = (name for place in world for name in place.schema.get("properties", ()))
        self.names = tuple(dict.fromkeys((*named, *self.required)))
        self.patterns: dict[str, Automaton] = {}
        self.without: dict[str, Automaton] = {}  # what certainly does not match them
        for place in world:
            for pattern in place.schema.get("patternProperties", ()):
                path = json_path(json_path(place.path, "patternProperties"), pattern)
                self.patterns[pattern] = Matching(parse_regex(pattern, path, search=True))
                self.without[pattern] = Complement(Matching(parse_regex(pattern, path, search=True, wide=True)))
                if len(self.patterns) > _MAX_PATTERNS:
                    raise SchemaError(f"{path}: more than {_MAX_PATTERNS} patterns for one object", path=path)
        self._matching: dict[str, frozenset[str]] = {}
        explicit = [p.schema["additionalProperties"] for p in world if "additionalProperties" in p.schema]
        closed = any("unevaluatedProperties" in place.schema for place in world)
        self.is_open = any(value is not False for value in explicit) or not (
            self.names or self.patterns or explicit or closed
        )

    def matching(self, name: str) -> frozenset[str]:
        """The patterns that a name matches."""
        if name not in self._matching:
            self._matching[name] = frozenset(p for p, automaton in self.patterns.items() if accepts(automaton, name))
        return self._matching[name]

    def places_of(self, name: str) -> list[Place]:
        """What the value of a property has to match."""
        return self._places(name, self.matching(name))

    def excludes(self, name: str) -> bool:
        """Whether there cannot be a property of that name."""
        return any(place.schema is False for place in self.places_of(name))

    def _places(self, name: str | None, matching: frozenset[str]) -> list[Place]:
        found = []
        for place in self.world:
            inner = [
                place.child("patternProperties", p) for p in place.schema.get("patternProperties", ()) if p in matching
            ]
            if name is not None and name in place.schema.get("properties", ()):
                inner.append(place.child("properties", name))
            if not inner and "additionalProperties" in place.schema:
                inner.append(place.child("additionalProperties"))
            found += inner
        return found

    def further(self) -> Iterator[tuple[Automaton | None, list[Place]]]:
        """Properties without a name: which names each kind may have (None: any), and what their values match."""
        others: list[Automaton] = [Complement(Matching(either(map(text_of, self.names))))] if self.names else []
        for chosen in product((False, True), repeat=len(self.patterns)):
            if not any(chosen) and not self.is_open:
                continue
            members = [
                (self.patterns if yes else self.without)[p] for yes, p in zip(chosen, self.patterns, strict=True)
            ]
            matching = frozenset(p for yes, p in zip(chosen, self.patterns, strict=True) if yes)
            both = (*others, *members)
            yield Both(both) if both else None, self._places(None, matching)
