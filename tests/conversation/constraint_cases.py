"""Realistic constraints on replies: what `response_format` takes, and how each reply is checked by other means."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date  # noqa: TC003 - of an annotation that is looked at
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import annotated_types as at
import jsonschema
import pydantic
from tool_cases import HERMES, QWEN25, shipped
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from causerie import Choices, Grammar, Regex, tool

if TYPE_CHECKING:
    from collections.abc import Callable


class Unit(Enum):
    """Of temperatures."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Place:
    """Where something is."""

    street: Annotated[str, at.MinLen(1), at.MaxLen(12)]
    number: Annotated[int, at.Ge(1), at.Le(9999)]


@dataclass
class City:
    """A city with what belongs to it."""

    name: Annotated[str, at.MinLen(1), at.MaxLen(12)]
    people: Annotated[int, at.Ge(0), at.Lt(10_000_000)]
    climate: Literal["hot", "mild", "cold"]
    unit: Unit
    founded: date
    town_hall: Place
    mayor: Annotated[str, at.MaxLen(12)] | None = None


class Film(TypedDict):
    """A film."""

    title: Annotated[str, at.MinLen(1), at.MaxLen(12)]
    score: Annotated[float, at.Gt(0), at.Le(10)]
    tags: Annotated[list[Literal["old", "new", "long"]], at.MaxLen(3)]


class Item(pydantic.BaseModel):
    """A line of an order."""

    sku: str = pydantic.Field(pattern="^[A-Z]{2}-[0-9]{3}$")
    count: int = pydantic.Field(ge=1, le=99)


class Order(pydantic.BaseModel):
    """An order."""

    buyer: str = pydantic.Field(min_length=2, max_length=12)
    express: bool
    items: list[Item] = pydantic.Field(min_length=1, max_length=3)


def obj(properties: dict[str, Any], *optional: str, **more: Any) -> dict[str, Any]:
    """The schema of an object with all properties but the optional ones required."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


WORD = {"type": "string", "minLength": 1, "maxLength": 12}
SHORT = {"type": "string", "maxLength": 6}
SCHEMAS: dict[str, Any] = {
    "references": obj(
        {"home": {"$ref": "#/$defs/place"}, "work": {"$ref": "#/$defs/place"}},
        **{"$defs": {"place": obj({"street": WORD, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}})}},
    ),
    "recursion": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": obj(
                {"v": {"enum": [1, 2]}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
            )
        },
    },
    "anyOf": {
        "type": "array",
        "items": {"anyOf": [{"type": "integer", "minimum": -9, "maximum": 9}, {"type": "null"}, SHORT]},
        "minItems": 1,
        "maxItems": 4,
    },
    "oneOf": {
        "oneOf": [
            obj({"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0, "maximum": 5}}),
            obj({"kind": {"const": "square"}, "side": {"type": "integer", "minimum": 1, "maximum": 5}}),
        ]
    },
    "enum and const": obj(
        {
            "a": {"enum": ["x", 1, None, True, {"y": [1]}]},
            "b": {"const": 'say "hi"\n'},
            "c": {"enum": ["é", "日本", "😀"]},
        }
    ),
    "formats": obj(
        {
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "id": {"type": "string", "format": "uuid"},
            "host": {"type": "string", "format": "ipv4"},
        }
    ),
    "patterns": obj(
        {
            "plate": {"type": "string", "pattern": "^[A-Z]{1,3}-[0-9]{2,4}$"},
            "hex": {"type": "string", "pattern": "^#([0-9a-f]{3}|[0-9a-f]{6})$"},
            "part": {"type": "string", "pattern": "ab", "maxLength": 8},
        }
    ),
    "lengths and bounds": obj(
        {
            "name": {"type": "string", "minLength": 2, "maxLength": 5},
            "age": {"type": "integer", "minimum": 18, "maximum": 120},
            "ratio": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25},
            "step": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 50},
            "few": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        }
    ),
    "additionalProperties": obj(
        {"id": {"type": "integer", "minimum": 0, "maximum": 9}},
        additionalProperties={"type": "boolean"},
        propertyNames={"type": "string", "pattern": "^[a-z]{2,4}$"},
    ),
    "tuples": {
        "type": "array",
        "prefixItems": [{"enum": ["x", "y"]}, {"type": "integer", "minimum": 0, "maximum": 99}, {"type": "null"}],
        "items": False,
        "minItems": 2,
    },
    "optional": obj(
        {"a": SHORT, "b": {"type": "integer", "minimum": 0, "maximum": 9}, "c": {"type": "boolean"}}, "a", "b"
    ),
    "conjunction": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
            obj({"a": {"maximum": 7}, "b": SHORT}, "b"),
        ]
    },
}
TYPES: dict[str, Any] = {"dataclass": City, "TypedDict": Film, "pydantic": Order}
TEXTS: dict[str, Any] = {
    "Regex": Regex(r"(Mr|Mrs|Dr)\. [A-Z][a-z]{1,8}( [A-Z]\.)?, \d{1,3} years?"),
    "Choices": Choices(["yes", "no", "I don't know", 'a "b"\n\\', "Zürich", "👩‍🚀"]),
    "Grammar": Grammar('root ::= item ("," item){0,3} "."\nitem ::= [a-c] [0-9]{1,3} | "(" item ")"'),
}
CONSTRAINTS = {**SCHEMAS, **TYPES, **TEXTS}


def _check_json(schema: Any) -> Callable[[str, Any], bool]:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())

    def check(text: str, parsed: Any) -> bool:
        validator.validate(json.loads(text))
        return bool(json.loads(text) == parsed)

    return check


def _nested(text: str) -> bool:
    while (shorter := re.sub(r"\(([a-c][0-9]{1,3})\)", r"\1", text)) != text:
        text = shorter
    return re.fullmatch(r"[a-c][0-9]{1,3}(,[a-c][0-9]{1,3}){0,3}\.", text) is not None


# name -> whether a reply and its `parsed` are right, without the help of what made the grammar.
CHECKS: dict[str, Callable[[str, Any], bool]] = {
    **{name: _check_json(schema) for name, schema in SCHEMAS.items()},
    "dataclass": lambda text, parsed: (
        pydantic.TypeAdapter(City).validate_json(text) == parsed and isinstance(parsed.town_hall, Place)
    ),
    "TypedDict": lambda text, parsed: pydantic.TypeAdapter(Film).validate_json(text) == parsed,
    "pydantic": lambda text, parsed: Order.model_validate_json(text) == parsed and isinstance(parsed, Order),
    "Regex": lambda text, parsed: bool(re.fullmatch(TEXTS["Regex"].pattern, text)) and parsed == text,
    "Choices": lambda text, parsed: text in TEXTS["Choices"].options and parsed == text,
    "Grammar": lambda text, parsed: _nested(text) and parsed == text,
}


@tool
def book(
    guest: Annotated[str, at.MinLen(1), at.MaxLen(12)],
    nights: Annotated[int, at.Ge(1), at.Le(14)],
    room: Literal["single", "double"] = "single",
) -> str:
    """Books a room. Args: guest: the name."""
    return f"{guest}: {nights} in a {room} room"


@tool
def convert(amount: Annotated[float, at.Ge(0), at.Lt(1000)], to: Literal["EUR", "NOK"]) -> str:
    """Converts an amount of money."""
    return f"{amount} {to}"


TOOLS = (book, convert)
# Conversations whose replies have to be calls.
REQUIRED: dict[str, dict[str, Any]] = {
    "Hermes 2 Pro": {"template": shipped(HERMES), "tools": TOOLS},
    "Qwen 2.5": {"template": shipped(QWEN25), "tools": TOOLS},
    "generic": {"tool_format": "generic", "tools": TOOLS},
}
