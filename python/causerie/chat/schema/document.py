"""A JSON schema with its references, and what has to hold at one place of it (pure Python)."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from causerie.chat.schema.disjoint import disjoint
from causerie.chat.schema.keywords import CHECKED, check_keywords, json_path
from causerie.chat.schema.place import Place, World
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Document"]

_MAX_WORLDS = 500


class Document:
    """A schema as a whole.

    Args:
        schema: the JSON schema; draft 2020-12, as far as `docs/structured-output.md` lists it.

    Raises:
        SchemaError: it is not a schema.
    """

    def __init__(self, schema: Any) -> None:
        if not isinstance(schema, (dict, bool)):
            raise SchemaError(f"$ must be a schema (an object, true or false), not {schema!r:.80}", path="$")
        self.root = Place("$", schema)
        self.checked: dict[str, None] = {}
        """Paths of what no grammar enforces, in order."""
        self._known: set[str] = set()
        self._worlds: dict[str, list[World]] = {}

    def enter(self, place: Place) -> None:
        """Look at the keywords of a place, once.

        Raises:
            SchemaError: one is unknown or has a value that it cannot have.
        """
        if place.path in self._known or isinstance(place.schema, bool):
            return
        self._known.add(place.path)
        check_keywords(place.schema, place.path)
        for keyword in CHECKED & place.schema.keys():
            if not _trivial(place.schema, keyword):
                self.checked[json_path(place.path, keyword)] = None
        for keyword in ("not", "if", "then", "else", "contains"):
            if keyword in place.schema:
                self._enter_checked(place.child(keyword))

    def _enter_checked(self, place: Place) -> None:
        """Look at a part that is only ever validated."""
        if place.path in self._known or isinstance(place.schema, bool):
            return
        self.enter(place)
        if "format" in place.schema:
            path = json_path(place.path, "format")
            raise SchemaError(f"{path}: a format is enforced by a grammar only, and none follows this part", path=path)
        for child in _parts(place):
            self._enter_checked(child)
        if "$ref" in place.schema:
            self._enter_checked(self.resolve(place))

    def resolve(self, place: Place) -> Place:
        """What the $ref of a place refers to.

        Raises:
            SchemaError: it is not inside this schema.
        """
        ref = place.schema["$ref"]
        where = json_path(place.path, "$ref")
        if ref.startswith("#") and ref[1:2] not in {"", "/"}:
            for target in _subschemas(self.root):
                if target.schema.get("$anchor") == ref[1:]:
                    return target
            raise SchemaError(f"{where}: there is no $anchor {ref[1:]!r}", path=where)
        if not ref.startswith("#"):
            raise SchemaError(f"{where}: {ref!r} is outside this schema: only references to #... work", path=where)
        target = self.root
        for token in unquote(ref[1:]).split("/")[1:]:
            key: str | int = token.replace("~1", "/").replace("~0", "~")
            if isinstance(target.schema, list) and token.isascii() and token.isdigit():
                key = int(token)
            try:
                target = target.child(key)
            except (KeyError, IndexError, TypeError):
                raise SchemaError(f"{where}: there is nothing at {ref!r}", path=where) from None
        if not isinstance(target.schema, (dict, bool)):
            raise SchemaError(f"{where}: what is at {ref!r} is not a schema", path=where)
        return target

    def worlds(self, places: Iterable[Place]) -> list[World]:
        """All ways in which these places can hold together: one for each choice that their keywords leave.

        Raises:
            SchemaError: there are too many, or a place refers to itself.
        """
        return self._all([self._of(place, ()) for place in places], "$")

    def _of(self, place: Place, above: tuple[str, ...]) -> list[World]:
        self.enter(place)
        if isinstance(place.schema, bool):
            return [()] if place.schema else []
        if place.path in above:
            raise SchemaError(f"{place.path}: this part refers to itself, with nothing in between", path=place.path)
        if place.path not in self._worlds:
            inner = (*above, place.path)
            parts: list[list[World]] = [[(place,)]]
            if "$ref" in place.schema:
                parts.append(self._of(self.resolve(place), inner))
            parts += [self._of(child, inner) for child in place.children("allOf")]
            for keyword in ("anyOf", "oneOf"):
                if options := [self._of(option, inner) for option in place.children(keyword)]:
                    parts.append([world for option in options for world in option])
                    if keyword == "oneOf" and not all(disjoint(self, *pair) for pair in combinations(options, 2)):
                        self.checked[json_path(place.path, keyword)] = None
            for groups in _dependent(place):
                ways = [self._all([self._of(p, inner) for p in group], place.path) for group in groups]
                parts.append([world for way in ways for world in way])
            self._worlds[place.path] = self._all(parts, place.path)
        return self._worlds[place.path]

    def check_unevaluated(self, world: World) -> None:
        """Note where an unevaluated... keyword does not see all that a world names: only validation helps there."""
        for place in world:
            for keyword in ("unevaluatedProperties", "unevaluatedItems"):
                if keyword in place.schema:
                    seen = {inner for way in self._worlds.get(place.path, ()) for inner in way}
                    if not seen.issuperset(world):
                        self.checked[json_path(place.path, keyword)] = None

    @staticmethod
    def _all(parts: list[list[World]], path: str) -> list[World]:
        size = 1
        for part in parts:
            size *= len(part)
        if size > _MAX_WORLDS:
            raise SchemaError(f"{path}: anyOf, oneOf and the like combine to more than {_MAX_WORLDS} ways", path=path)
        return [tuple(dict.fromkeys(p for world in chosen for p in world)) for chosen in product(*parts)]


def _trivial(schema: dict[str, Any], keyword: str) -> bool:
    """Whether a keyword demands nothing that a grammar would not give anyway."""
    value = schema[keyword]
    if keyword == "minProperties":
        return bool(value <= len(set(schema.get("required", ()))))
    if keyword == "maxProperties":
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        return closed and value >= len(schema.get("properties", ()))
    return keyword == "uniqueItems" and (not value or schema.get("maxItems", 2) <= 1)


def _dependent(place: Place) -> Iterator[tuple[tuple[Place, ...], ...]]:
    """Dependencies as choices: the property is absent, or it is there with what it brings along."""
    for keyword in ("dependentRequired", "dependentSchemas"):
        for name, demand in place.schema.get(keyword, {}).items():
            path = json_path(json_path(place.path, keyword), name)
            absent = Place(f"{path} (absent)", {"properties": {name: False}})
            names = [name, *(demand if keyword == "dependentRequired" else ())]
            present = Place(f"{path} (present)", {"required": names})
            more = (place.child(keyword, name),) if keyword == "dependentSchemas" else ()
            yield (absent,), (present, *more)


def _parts(place: Place) -> Iterator[Place]:
    """The schemas directly inside a schema."""
    for keyword, value in place.schema.items():
        keys: Iterable[Any] = ()
        if keyword in {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}:
            keys = value if isinstance(value, dict) else ()
        elif keyword in {"allOf", "anyOf", "oneOf", "prefixItems"}:
            keys = range(len(value)) if isinstance(value, list) else ()
        elif isinstance(value, dict) and keyword not in {"const", "default", "discriminator", "dependentRequired"}:
            yield place.child(keyword)
        for key in keys:
            if isinstance(value[key], dict):
                yield place.child(keyword, key)


def _subschemas(place: Place) -> Iterator[Place]:
    if isinstance(place.schema, dict):
        yield place
        for part in _parts(place):
            yield from _subschemas(part)
