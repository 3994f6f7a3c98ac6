"""The keywords of JSON schema: what their values must be, and who enforces them (pure Python)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from causerie.chat.schema.formats import FREE_FORMATS, NUMBER_FORMATS, STRING_FORMATS
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CHECKED", "KINDS", "KIND_KEYWORDS", "check_keywords", "json_path"]

ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema",
    "$anchor", "$defs", "definitions", "discriminator",
})  # fmt: skip

# Those that no grammar enforces: the reply is validated afterwards.
CHECKED = frozenset({
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "minProperties",
    "maxProperties",
})  # fmt: skip

# A number is an integer or has a fraction.
KINDS: dict[str, frozenset[str]] = {
    "null": frozenset({"null"}),
    "boolean": frozenset({"boolean"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "fraction"}),
    "string": frozenset({"string"}),
    "array": frozenset({"array"}),
    "object": frozenset({"object"}),
}

_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
KIND_KEYWORDS: dict[str, tuple[str, ...]] = {
    "number": (*_NUMERIC, "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": (
        "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains",
        "unevaluatedItems",
    ),
    "object": (
        "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames", "required",
        "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
    ),
}  # fmt: skip

_INSTEAD = {
    "$id": "only the schema as a whole may have one",
    "$ref": "",
    "additionalItems": "write prefixItems and items, as in draft 2020-12",
    "dependencies": "write dependentRequired or dependentSchemas, as in draft 2020-12",
    "$dynamicRef": "write a $ref",
    "$recursiveRef": "write a $ref",
    "nullable": 'write "type": [..., "null"]',
}


def json_path(path: str, key: str | int) -> str:
    """The JSON path of a member or an element."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    plain = key.replace("$", "_").isidentifier() and key.isascii()
    return f"{path}.{key}" if plain else f"{path}[{key!r}]"


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and value == int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _all_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


_FORMATS = {*STRING_FORMATS, *FREE_FORMATS, *NUMBER_FORMATS}
_Rule = tuple[str, "Callable[[Any], bool]"]
_SCHEMA: _Rule = ("a schema (an object, true or false)", _is_schema)
_SCHEMAS: _Rule = (
    "a list of schemas, not empty",
    lambda v: isinstance(v, list) and bool(v) and all(map(_is_schema, v)),
)
_COUNT: _Rule = ("an integer that is not negative", _is_count)
_NAMED: _Rule = ("an object of schemas", _all_schemas)
_TEXT: _Rule = ("a string", lambda v: isinstance(v, str))

_VALUES: dict[str, _Rule] = {
    "type": (
        f"one of {', '.join(KINDS)}, or a list of them",
        lambda v: (v in KINDS) if isinstance(v, str) else _is_names(v) and bool(v) and all(t in KINDS for t in v),
    ),
    "enum": ("a list, not empty", lambda v: isinstance(v, list) and bool(v)),
    "const": ("a value", lambda _: True),
    "$ref": _TEXT,
    "required": ("a list of names", _is_names),
    "uniqueItems": ("true or false", lambda v: isinstance(v, bool)),
    "multipleOf": ("a number above 0", lambda v: _is_number(v) and v > 0),
    "dependentRequired": (
        "an object of lists of names",
        lambda v: isinstance(v, dict) and all(map(_is_names, v.values())),
    ),
    "pattern": _TEXT,
    "format": (
        f"one of {', '.join(sorted(_FORMATS))}",
        lambda v: isinstance(v, str) and v in _FORMATS,
    ),
    **dict.fromkeys(_NUMERIC, ("a number", _is_number)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _NAMED),
    **dict.fromkeys(
        (
            *("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"),
            *("unevaluatedItems", "unevaluatedProperties"),
        ),
        _SCHEMA,
    ),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
            *("minContains", "maxContains"),
        ),
        _COUNT,
    ),
}


def check_keywords(schema: Mapping[str, Any], path: str) -> None:
    """Refuse keywords that are unknown, and values that a keyword cannot have.

    Raises:
        SchemaError: with the path of the keyword.
    """
    for keyword, value in schema.items():
        where = json_path(path, str(keyword))
        if keyword in _VALUES:
            wanted, fits = _VALUES[keyword]
            if not fits(value):
                raise SchemaError(f"{where} must be {wanted}, not {value!r:.80}", path=where)
        elif not (keyword in ANNOTATIONS or str(keyword).startswith("x-") or (keyword == "$id" and path == "$")):
            instead = _INSTEAD.get(str(keyword), "it would be ignored; names of your own begin with x-")
            raise SchemaError(f"{where}: the keyword {keyword!r} is not supported: {instead}", path=where)
