"""Tools: what a model is told about a function, and how JSON arguments reach it."""

from __future__ import annotations

import asyncio
import functools
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

from causerie import SchemaError, ToolError, UnsupportedError
from causerie.chat.schema.validation import SchemaValidator
from causerie.chat.tool_docstring import parse_docstring
from causerie.chat.tools import Tool, ToolBox, as_tool, tool


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclass
class Spot:
    lat: float
    lon: float = 0.0


class Extra(TypedDict, total=False):
    note: str


@tool
def weather(
    city: str,
    unit: Unit = Unit.C,
    days: Annotated[list[int], "which days"] = (),
    spot: Optional[Spot] = None,  # noqa: UP045 - the old spelling works too
    extra: Extra | None = None,
    mode: Literal["now", "later"] = "now",
) -> Any:
    """Current weather.

    Looks it up.

    Args:
        city: name of the city,
            without the country.
        unit (Unit): temperature unit.
        nobody: not a parameter.

    Returns:
        Something.
    """
    return city, unit, days, spot, extra, mode


def test_the_signature_and_the_docstring_make_the_schema():
    assert weather.to_dict() == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Current weather. Looks it up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "name of the city, without the country."},
                    "unit": {
                        "type": "string",
                        "enum": ["celsius", "fahrenheit"],
                        "description": "temperature unit.",
                        "default": "celsius",
                    },
                    "days": {
                        "type": "array",
                        "items": {"type": "integer"},
                        "description": "which days",
                        "default": [],
                    },
                    "spot": {
                        "type": "object",
                        "properties": {"lat": {"type": "number"}, "lon": {"type": "number", "default": 0.0}},
                        "required": ["lat"],
                        "additionalProperties": False,
                    },
                    "extra": {
                        "type": "object",
                        "properties": {"note": {"type": "string"}},
                        "required": [],
                        "additionalProperties": False,
                    },
                    "mode": {"type": "string", "enum": ["now", "later"], "default": "now"},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    SchemaValidator(weather.to_dict()["function"]["parameters"])


def test_arguments_arrive_as_the_types_of_the_signature():
    text = '{"city": "Oslo", "unit": "fahrenheit", "days": [1], "spot": {"lat": 1}, "extra": {"note": "x"}}'
    assert weather.call(text) == ("Oslo", Unit.F, [1], Spot(1.0), {"note": "x"}, "now")
    assert weather.call({"city": "Rome"}) == ("Rome", Unit.C, (), None, None, "now")
    assert weather("Rome", mode="later")[-1] == "later"


def test_a_null_is_none_even_where_the_schema_has_no_word_of_it():
    assert weather.call({"city": "Rome", "spot": None})[3] is None
    with pytest.raises(ToolError):
        weather.call({"city": "Rome", "mode": None})


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({}, "city"),
        ({"city": 3}, "city"),
        ({"city": "a", "unit": "kelvin"}, "unit"),
        ({"city": "a", "days": ["x"]}, "days[0]"),
        ({"city": "a", "spot": {"lat": "x"}}, "spot.lat"),
        ({"city": "a", "country": "b"}, "country"),
        ("[]", "$"),
        ('{"city": "a", "spot": {"lat": 1e999}}', "$"),
        ({"city": object()}, "$"),
        ("{", "$"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments, path):
    with pytest.raises(ToolError, match="weather") as caught:
        weather.call(arguments)
    assert caught.value.tool == "weather"
    assert caught.value.path == path


def test_the_decorator_takes_a_name_and_a_description():
    @tool(name="other", description="Does it.")
    def something(x: int = 3) -> int:
        """Not this.

        Args:
            x: a number.
        """
        return x

    assert (something.name, something.description) == ("other", "Does it.")
    assert something.parameters["properties"]["x"] == {"type": "integer", "default": 3, "description": "a number."}
    assert something.call() == 3


def test_an_async_function_gives_something_to_await():
    @tool
    async def slow(x: int) -> int:
        return x + 1

    assert slow.is_async
    assert not weather.is_async
    assert asyncio.run(slow.call({"x": 1})) == 2


def test_everything_that_can_be_called_can_be_a_tool():
    class Counter:
        """Counts."""

        def __call__(self, by: int) -> int:
            return by

        def add(self, by: int) -> int:
            return by + 1

    def power(base: float, exponent: float, /) -> float:
        return base**exponent

    assert tool(Counter()).call({"by": 2}) == 2
    assert tool(Counter()).name == "Counter"
    assert tool(Counter().add).call({"by": 2}) == 3
    assert tool(power).call({"base": 2, "exponent": 3}) == 8
    assert tool(functools.partial(power, 2)).call({"exponent": 3}) == 8


def untyped(a): ...
def starred(*many: int): ...
def keyed(**many: int): ...
def typed_bytes(data: bytes): ...
def unknown(a: NoSuchType): ...  # noqa: F821 - that is the point
def nested(a: list[dict[str, complex]]): ...


@pytest.mark.parametrize(
    ("function", "path"),
    [
        (untyped, "a"), (starred, "many"), (keyed, "many"), (typed_bytes, "data"), (unknown, "unknown"),
        (nested, "a[].*"),
    ],
)  # fmt: skip
def test_what_cannot_be_described_is_refused_by_its_parameter(function, path):
    with pytest.raises(SchemaError, match=function.__name__) as caught:
        tool(function)
    assert caught.value.path == path


@pytest.mark.parametrize("value", [3, None, "weather"])
def test_what_cannot_be_called_is_no_tool(value):
    with pytest.raises(TypeError):
        as_tool(value)


RAW = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
    },
}


def test_a_raw_schema_is_a_tool_and_its_arguments_are_validated():
    added = Tool.from_schema(RAW, lambda a: a + 1)
    assert added.to_dict() == RAW
    assert added.call({"a": 1}) == 2
    with pytest.raises(ToolError) as caught:
        added.call({"a": 0})
    assert caught.value.path == "$.a"
    assert Tool.from_schema(RAW["function"]).to_dict() == RAW


def test_a_tool_without_a_function_is_answered_by_hand():
    with pytest.raises(ToolError, match="add_tool_result"):
        Tool.from_schema(RAW).call({"a": 1})


def test_a_raw_schema_with_a_function_needs_jsonschema(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    Tool.from_schema(RAW)
    with pytest.raises(UnsupportedError, match=r"causerie\[schema\]"):
        Tool.from_schema(RAW, lambda a: a)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": ""}, ValueError), ({"name": "a b"}, ValueError), ({"name": "x" * 65}, ValueError),
        ({"parameters": {"type": "array"}}, SchemaError), ({"extra": 1}, ValueError), ({"description": 3}, TypeError),
    ],
)  # fmt: skip
def test_a_malformed_schema_is_refused(change, error):
    with pytest.raises(error):
        Tool.from_schema({**RAW["function"], **change})


def test_a_tool_cannot_be_changed():
    with pytest.raises(TypeError):
        weather.parameters["properties"]["city"]["type"] = "null"


def test_a_box_finds_tools_by_name():
    box = ToolBox([weather, RAW, sorted_names])
    assert [item.name for item in box] == ["weather", "add", "sorted_names"]
    assert box["weather"] is weather
    assert "add" in box
    assert len(box) == 3
    assert box.to_list()[1] == RAW
    with pytest.raises(ToolError, match="known: weather, add") as caught:
        box["subtract"]
    assert caught.value.tool == "subtract"
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        ToolBox([RAW, RAW])


def sorted_names(names: list[str]) -> list[str]:
    """Sorts."""
    return sorted(names)


@pytest.mark.parametrize(
    ("text", "description", "found"),
    [
        (None, "", {}),
        ("One line.", "One line.", {}),
        ("Current weather. Args: city: name of it. unit: in what.", "Current weather.", {"city": "name of it.", "unit": "in what."}),
        ("Short.\n\n    Args:\n        city: one\n            two: three\n        unit: x\n\n    Returns:\n        city: no", "Short.", {"city": "one two: three", "unit": "x"}),
        ("Note: this stays.\n\nArguments:\n  city: a", "", {"city": "a"}),
    ],
)  # fmt: skip
def test_docstrings(text, description, found):
    assert parse_docstring(text, ["city", "unit"]) == (description, found)
