"""From a JSON schema to a grammar: every text that the grammar allows matches the schema (pure Python).

llama.cpp has such a converter too; it passes over keywords that it does not know, and over some that it knows where
they stand beside others. Here each keyword is enforced by the grammar, or listed for validation, or refused.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from causerie.chat.schema.conjunction import (
    allows_number,
    allows_text,
    kind_of,
    kinds,
    least_most,
    name_automaton,
    number_bounds,
    text_automaton,
    values,
)
from causerie.chat.schema.document import Document
from causerie.chat.schema.gbnf import Alt, Grammar, Lit, Node, Ref
from causerie.chat.schema.json_rules import JsonRules, literal_json
from causerie.chat.schema.keywords import CHECKED, KIND_KEYWORDS
from causerie.chat.schema.objects import Properties
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.chat.schema.place import Place, World

__all__ = ["SchemaGrammar", "schema_node", "schema_to_grammar"]

_ONLY_NOTES = frozenset({"title", "description", "default", "examples", "$comment", "$defs", "definitions", "$schema"})


class SchemaGrammar(NamedTuple):
    """A schema as a grammar.

    Attributes:
        text: GBNF that allows nothing but JSON which matches the schema, as far as a grammar can tell.
        checked: JSON paths of the keywords that no grammar enforces: what the grammar allows must be validated.
    """

    text: str
    checked: tuple[str, ...]


class _Compiler:
    def __init__(self, schema: Any, rules: JsonRules | None = None) -> None:
        self.document = Document(schema)
        self.rules = JsonRules(Grammar()) if rules is None else rules
        self.grammar = self.rules.grammar
        self.made: dict[frozenset[str], Ref] = {}

    def compile(self) -> SchemaGrammar:
        text = self.grammar.text(self.node([self.document.root], "value"))
        if text is None:
            raise SchemaError("$: no value can match this schema", path="$")
        return SchemaGrammar(text, tuple(self.document.checked))

    def node(self, places: Iterable[Place], hint: str) -> Node:
        """What matches all of these places."""
        todo = dict.fromkeys(self._followed(place) for place in places)
        if any(place.schema is False for place in todo):
            return Alt(())
        todo = dict.fromkeys(place for place in todo if place.schema not in (True, {}))
        if not todo:
            return self.rules.value()
        key = frozenset(place.path for place in todo)
        if key not in self.made:
            self.made[key] = self.grammar.reserve(hint)  # before its parts, which may lead back to it
            self.grammar.rules[self.made[key].name] = self._body(list(todo), hint)
        return self.made[key]

    def _followed(self, place: Place) -> Place:
        """What a place refers to, if it does nothing else."""
        seen = {place.path}
        while (
            isinstance(place.schema, dict)
            and "$ref" in place.schema
            and not (place.schema.keys() - _ONLY_NOTES - {"$ref"})
        ):
            self.document.enter(place)
            place = self.document.resolve(place)
            if place.path in seen:
                raise SchemaError(f"{place.path}: this part refers to itself, with nothing in between", path=place.path)
            seen.add(place.path)
        return place

    def _body(self, places: list[Place], hint: str) -> Node:
        if len(places) == 1:
            keywords = places[0].schema.keys() - _ONLY_NOTES
            if keywords in ({"anyOf"}, {"oneOf"}):
                self.document.worlds(places)  # for what it finds
                options = places[0].children(next(iter(keywords)))
                return Alt(tuple(self.node([option], f"{hint}-{i + 1}") for i, option in enumerate(options)))
        return Alt(tuple(self.world(world, hint) for world in self.document.worlds(places)))

    def world(self, world: World, hint: str) -> Node:
        if not world:
            return self.rules.value()
        self.document.check_unevaluated(world)
        known = values(world)
        if known is not None:
            return Alt(tuple(Lit(literal_json(v)) for v in known if self._allows(world, v)))
        wanted = kinds(world)
        parts: list[Node] = [self.rules.simple(kind) for kind in ("null", "boolean") if kind in wanted]
        if wanted & {"integer", "fraction"}:
            bounds = number_bounds(world, integer="fraction" not in wanted)
            parts.append(self.rules.number(bounds, hint, world[0].path))
        makers = {"string": self.text, "array": self.array, "object": self.object}
        parts += [make(world, hint) for kind, make in makers.items() if kind in wanted]
        return Alt(tuple(parts))

    @staticmethod
    def _allows(world: World, value: Any) -> bool:
        kind = kind_of(value)
        if kind not in kinds(world):
            return False
        if kind in {"array", "object"}:
            for place in world:
                if own := (set(KIND_KEYWORDS[kind]) - CHECKED) & place.schema.keys():
                    raise SchemaError(
                        f"{place.path}: {min(own)} beside enum or const: leave in the enum only what fits",
                        path=place.path,
                    )
            return True
        if kind in {"integer", "fraction"}:
            return allows_number(world, value)
        return kind != "string" or allows_text(world, value)

    def text(self, world: World, hint: str) -> Node:
        found = text_automaton(world)
        if found is not None:
            return self.rules.text(*found, hint)
        low, high = least_most(world, "minLength", "maxLength")
        return self.rules.free_text(low, high, hint)

    def array(self, world: World, hint: str) -> Node:
        low, high = least_most(world, "minItems", "maxItems")
        n_prefix = max(len(place.schema.get("prefixItems", ())) for place in world)
        prefix = [self.node(self._items(world, i), f"{hint}-{i + 1}") for i in range(n_prefix)]
        if not any("items" in place.schema for place in world):
            closed = any("unevaluatedItems" in place.schema for place in world)
            if closed or (n_prefix and low <= n_prefix):
                high = n_prefix if high is None else min(high, n_prefix)
        if n_prefix and not any("minItems" in place.schema for place in world):
            low = n_prefix if high is None else min(high, n_prefix)
        rest = self.node(self._items(world, n_prefix), f"{hint}-item")
        return self.rules.array(prefix, rest, low, high, hint)

    @staticmethod
    def _items(world: World, index: int) -> list[Place]:
        found = []
        for place in world:
            if index < len(place.schema.get("prefixItems", ())):
                found.append(place.child("prefixItems", index))
            elif "items" in place.schema:
                found.append(place.child("items"))
        return found

    def object(self, world: World, hint: str) -> Node:
        properties = Properties(world)
        names = self._names(world)
        members: list[tuple[str, Node, bool]] = []
        for name in properties.names:
            fits = names is None or allows_text(names, name)
            node = self.node(properties.places_of(name), f"{hint}-{name}") if fits else Alt(())
            members.append((name, node, name in properties.required))
        further = []
        for automaton, places in properties.further():
            key = self.rules.key(automaton, None if names is None else name_automaton(names), world[0].path)
            further.append((key, self.node(places, f"{hint}-further")))
        return self.rules.object(members, further, hint)

    def _names(self, world: World) -> World | None:
        """What propertyNames demands."""
        places = [place.child("propertyNames") for place in world if "propertyNames" in place.schema]
        if not places:
            return None
        ways = self.document.worlds(places)
        path = places[0].path
        if len(ways) != 1 or values(ways[0]) is not None or "string" not in kinds(ways[0]):
            raise SchemaError(f"{path}: only pattern, format and lengths are supported here", path=path)
        return ways[0]


def schema_node(schema: Any, rules: JsonRules, hint: str) -> Node:
    """A JSON schema as a part of a larger grammar.

    Args:
        schema: one that `schema_to_grammar` takes.
        rules: gets the rules.
        hint: what their names begin with.
    """
    compiler = _Compiler(schema, rules)
    return compiler.node([compiler.document.root], hint)


def schema_to_grammar(schema: Any) -> SchemaGrammar:
    """A JSON schema as GBNF.

    Args:
        schema: the schema, as json.loads gives it.

    Raises:
        SchemaError: a keyword is unknown, malformed, or cannot be enforced (`.path`), or nothing matches.
    """
    try:
        return _compiled(json.dumps(schema, allow_nan=False))
    except RecursionError:
        raise SchemaError("$: the schema is nested too deeply", path="$") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"$: the schema is not JSON: {error}", path="$") from None


@lru_cache(64)
def _compiled(text: str) -> SchemaGrammar:
    return _Compiler(json.loads(text)).compile()
