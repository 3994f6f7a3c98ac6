"""Response formats: whatever describes a reply becomes a grammar, and the reply becomes what was asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from enum import Enum
from random import Random
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID  # noqa: TC003 - it is read from the annotation

import annotated_types as at
import pydantic
import pytest
from schema_sampling import GrammarSampler

from causerie import SchemaError
from causerie.chat.response_format import Choices, Grammar, Regex, ResponseFormat, as_response_format
from causerie.chat.schema.python_types import type_schema
from causerie.chat.schema.validation import SchemaValidator


class Mood(Enum):
    GOOD = "good"
    BAD = 0


@dataclass
class Place:
    """Where something is.

    Attributes:
        lat: degrees north.
    """

    lat: Annotated[float, at.Ge(-90), at.Le(90)]
    name: Annotated[str, "what it is called", at.MaxLen(5)] = "?"


@dataclass(frozen=True)
class City:
    name: str
    moods: list[Mood]
    place: Optional[Place] = None  # noqa: UP045 - the old spelling works too
    pair: tuple[int, Literal["x", True]] = (1, "x")
    more: dict[str, int | None] = field(default_factory=dict)
    secret: int = field(default=3, init=False)


class Film(TypedDict, total=False):
    title: str
    year: Annotated[int, at.Gt(1900), at.Lt(2000), at.MultipleOf(4)]


@dataclass
class Node:
    value: int
    children: list[Node]
    parent: Node | None = None


class User(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=5, pattern="^[a-z]+$")
    born: date
    friends: list[User] = []


@dataclass
class Meeting:
    at: datetime
    id: UUID
    kind: Place | City | str


Meters = NewType("Meters", int)
TYPES = [
    City, Film, Node, User, Meeting, Mood, int, str, bool, float, list[int], dict[str, Place], tuple[int, ...],
    tuple[int, str], set[int], Literal["a", 2], int | None, Annotated[int, at.Ge(3)], Meters,
    list[User], Any | None,
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_becomes_a_grammar_and_a_reply_an_instance(kind):
    found = as_response_format(kind)
    sampler, validator = GrammarSampler(found.grammar), SchemaValidator(found.schema)
    for seed in range(20):
        text = sampler.draw(Random(seed), limit=150)
        validator.check(json.loads(text))
        value = found.parse(text)
        if isinstance(kind, type) and kind is not Film and not hasattr(kind, "__args__"):
            assert type(value) is kind


def test_typed_values_all_the_way_down():
    text = '{"name":"Oslo","moods":["good",0],"place":{"lat":60,"name":"N"},"pair":[2,true],"more":{"a":null,"b":1}}'
    place = Place(60.0, "N")
    assert as_response_format(City).parse(text) == City(
        "Oslo", [Mood.GOOD, Mood.BAD], place, (2, True), {"a": None, "b": 1}
    )
    assert as_response_format(City).parse('{"name":"Oslo","moods":[]}') == City("Oslo", [])
    assert as_response_format(Node).parse('{"value":1,"children":[{"value":2,"children":[]}]}') == Node(
        1, [Node(2, [])]
    )
    user = as_response_format(User).parse('{"name":"ada","born":"1815-12-10","friends":[]}')
    assert user == User(name="ada", born=date(1815, 12, 10))
    meeting = as_response_format(Meeting).parse(
        '{"at":"2024-02-28T12:00:00.5Z","id":"123e4567-e89b-42d3-a456-426614174000","kind":{"lat":1}}'
    )
    assert meeting.at == datetime(2024, 2, 28, 12, 0, 0, 500_000, tzinfo=timezone.utc)
    assert meeting.kind == Place(1.0)
    assert as_response_format(set[int]).parse("[1, 2, 1]") == {1, 2}


def test_descriptions_and_bounds_are_in_the_schema():
    schema = type_schema(Place)
    assert schema["description"] == "Where something is."
    assert schema["properties"]["lat"] == {
        "type": "number",
        "minimum": -90,
        "maximum": 90,
        "description": "degrees north.",
    }
    assert schema["properties"]["name"]["default"] == "?"
    assert schema["required"] == ["lat"]
    assert type_schema(Film)["required"] == []
    assert "secret" not in type_schema(City)["properties"]


def test_a_type_that_contains_itself_becomes_a_definition():
    schema = type_schema(Node)
    assert schema["$ref"] == "#/$defs/Node"
    assert schema["$defs"]["Node"]["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}


@pytest.mark.parametrize("kind", [bytes, object(), complex, dict[int, str], list[bytes], Literal[b"x"]])
def test_a_type_that_json_has_no_word_for_is_refused(kind):
    with pytest.raises((SchemaError, TypeError)):
        as_response_format(kind)


@pytest.mark.parametrize(
    ("kind", "text", "path"),
    [
        (City, '{"name":"a","moods":["bad"]}', "$.moods[0]"),
        (City, '{"name":"a"}', "$.moods"),
        (City, '{"name":"a","moods":[],"x":1}', "$.x"),
        (City, '{"name":"a","moods":[],"place":{"lat":91}}', "$.place.lat"),
        (City, '{"name":"a","moods":[],"pair":[1]}', "$.pair"),
        (Film, '{"year":1999}', "$.year"),
        (int, "true", "$"),
        (bool, "1", "$"),
        (User, '{"name":"ADA","born":"1815-12-10"}', "$"),
    ],
)
def test_a_reply_that_does_not_fit_the_type_is_refused(kind, text, path):
    with pytest.raises(SchemaError) as caught:
        as_response_format(kind).parse(text)
    assert caught.value.path == path


SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]}


@pytest.mark.parametrize(
    "value",
    [
        SCHEMA,
        {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}},
        {"type": "json_schema", "name": "x", "schema": SCHEMA},
        {"type": "json_object", "schema": SCHEMA},
    ],
)
def test_schemas_come_in_several_shapes(value):
    found = as_response_format(value)
    assert found == as_response_format(found)
    assert found.schema == SCHEMA
    assert found.parse('{"a": ["b"]}') == {"a": ["b"]}


def test_any_json_object():
    found = as_response_format({"type": "json_object"})
    assert isinstance(found, ResponseFormat)
    assert found.parse('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("value", [None, 3, "a+", ["a"], True, {"type": "json_schema"}])
def test_what_describes_no_reply_is_refused(value):
    with pytest.raises((TypeError, SchemaError)):
        as_response_format(value)


def test_a_reply_that_was_cut_off_is_none_and_can_be_repaired():
    found = as_response_format(SCHEMA)
    text = '{"a": ["one", "tw'
    assert found.parse(text) is None
    assert json.loads(found.repair(text)) == {"a": ["one", "tw"]}
    assert found.repair('{"a": []}') == '{"a": []}'
    pattern = as_response_format(Regex("[a-z]+!"))
    assert pattern.parse("ab") is None
    assert pattern.repair("ab") == "ab"


def test_a_grammar_is_used_as_it_is():
    found = as_response_format(Grammar('root ::= "a"'))
    assert found.grammar == 'root ::= "a"'
    assert found.parse("a") == "a"
    with pytest.raises(ValueError, match="empty"):
        Grammar(" ")
    assert as_response_format(Choices(["a"])).schema is None
