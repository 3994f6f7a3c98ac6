"""Tools: functions that a model may ask to be called, and the schemas that tell it how."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from causerie.chat.frozen_json import freeze, thaw
from causerie.chat.schema.python_values import fill_fields
from causerie.chat.schema.validation import SchemaValidator
from causerie.chat.tool_schema import describe_function
from causerie.errors import SchemaError, ToolError

if TYPE_CHECKING:
    from causerie.chat.schema.annotations import Field

__all__ = ["Tool", "ToolBox", "ToolLike", "as_tool", "is_async", "tool"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that a model may ask to be called.

    Made by `tool` from a typed function, or by `Tool.from_schema` from a JSON schema. Calling it calls its function.

    Args:
        name: what the model calls it: letters, digits, ``_``, ``-`` and ``.``, at most 64.
        description: tells the model what it does.
        parameters: JSON schema of the arguments, an object. A copy that cannot be changed is kept.
        function: what to call; None if calls are answered by hand.

    Raises:
        ValueError: a name that no template could write.
        SchemaError: parameters that are not the schema of an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any] | None = None
    _fields: tuple[Field, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"the name of a tool has 1 to 64 letters, digits, _, - and ., unlike {self.name!r}")
        if not isinstance(self.description, str):
            raise TypeError(f"tool {self.name}: the description must be a str, not {type(self.description).__name__}")
        parameters = self.parameters
        if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
            raise SchemaError(f"tool {self.name}: $ must be the JSON schema of an object", path="$")
        object.__setattr__(self, "parameters", freeze({"type": "object", "properties": {}, **parameters}))
        if self.function is not None:
            self.require_checkable()

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Tool:
        """A tool from the OpenAI shape.

        Args:
            schema: ``{"type": "function", "function": {"name", "description", "parameters"}}``, or the inner part.
            function: called with the arguments as keywords, plain JSON values, after they were validated; None if you
                answer the calls yourself.

        Raises:
            TypeError, ValueError: it has another shape.
            SchemaError: the parameters are not the schema of an object.
            UnsupportedError: there is a function, and jsonschema, which validates its arguments, is not installed.
        """
        inner = schema.get("function", schema) if isinstance(schema, Mapping) else schema
        if not isinstance(inner, Mapping):
            raise TypeError(f"a tool's schema must be a dict, not {type(inner).__name__}")
        if schema.get("type", "function") != "function":
            raise ValueError(f'a tool must be of type "function", not {schema["type"]!r}')
        if unknown := sorted(set(inner) - {"name", "description", "parameters", "strict", "type"}):
            raise ValueError(
                f"unknown key of a tool's schema: {', '.join(unknown)} (known: name, description, parameters)"
            )
        if "name" not in inner:
            raise ValueError('a tool\'s schema needs a "name"')
        return cls(inner["name"], inner.get("description") or "", inner.get("parameters") or {}, function)

    def to_dict(self) -> dict[str, Any]:
        """The tool in the OpenAI shape."""
        inner = {"name": self.name, "description": self.description, "parameters": thaw(self.parameters)}
        return {"type": "function", "function": inner}

    @property
    def is_async(self) -> bool:
        """Whether a call gives something to await."""
        return is_async(self.function)

    @cached_property
    def _validator(self) -> SchemaValidator:
        return SchemaValidator(thaw(self.parameters), f"tool {self.name}: checking arguments by a raw schema")

    def require_checkable(self) -> None:
        """Raise unless `check` can work.

        Raises:
            UnsupportedError: the tool has a raw schema, and jsonschema is not installed.
            SchemaError: the schema is none.
        """
        if self._fields is None:
            _ = self._validator

    def check(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """The arguments as the function takes them.

        Args:
            arguments: a JSON object, or its text.

        Raises:
            ToolError: they do not match the parameters; ``.tool`` and ``.path`` tell which.
            UnsupportedError: the tool has a raw schema, and jsonschema is not installed.
        """
        try:
            values = thaw(freeze(json.loads(arguments) if isinstance(arguments, str) else arguments))
            if not isinstance(values, dict):
                raise SchemaError(f"the arguments must be a JSON object, not {arguments!r:.80}", path="$")
            if self._fields is not None:
                return fill_fields(values, self._fields, "")
            self._validator.check(values)
        except (TypeError, ValueError, RecursionError) as error:
            path = getattr(error, "path", "$")
            raise ToolError(f"tool {self.name}: invalid arguments: {error}", tool=self.name, path=path) from error
        return values

    def call(self, arguments: Mapping[str, Any] | str = "{}") -> Any:
        """Call the function with JSON arguments, converted to the types of its signature.

        Args:
            arguments: a JSON object, or its text.

        Returns:
            What the function returns; something to await if `is_async`.

        Raises:
            ToolError: the arguments are invalid, or the tool has no function. What the function itself raises is not
                changed.
        """
        if self.function is None:
            raise ToolError(f"tool {self.name} has no function: answer its calls with add_tool_result", tool=self.name)
        values = self.check(arguments)
        positional = []
        for name in _positional_only(self.function):
            if name not in values:
                break
            positional.append(values.pop(name))
        return self.function(*positional, **values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it had not been decorated."""
        if self.function is None:
            raise ToolError(f"tool {self.name} has no function", tool=self.name)
        return self.function(*args, **kwargs)


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine: a coroutine function, or an object whose call is one."""
    inner = getattr(function, "__call__", None)  # noqa: B004 - what its call is, is the question
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)


def _positional_only(function: Callable[..., Any]) -> Iterator[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    yield from (p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function; a decorator, with or without arguments.

    The schema comes from the signature: bool, int, float, str, Literal, Enum, list, dict, tuple, dataclass, TypedDict,
    pydantic models, date, datetime, time, UUID, unions and Optional of them; defaults make parameters optional. Texts
    come from the docstring (Google style), or from ``Annotated[type, "text"]``.

    Args:
        function: sync or async.
        name: instead of the function's.
        description: instead of the docstring's.

    Raises:
        SchemaError: a parameter that cannot be described; ``.path`` is its name.
    """
    if function is None:
        return lambda decorated: _from_function(decorated, name, description)
    return _from_function(function, name, description)


def _from_function(function: Callable[..., Any], name: str | None, description: str | None) -> Tool:
    found = describe_function(function)
    text = found.description if description is None else description
    return Tool(name or found.name, text, found.parameters, function, found.fields)


ToolLike = Tool | Callable[..., Any] | Mapping[str, Any]
"""A tool, or what can be made one: a typed function, or a dict in the OpenAI shape."""


def as_tool(value: ToolLike) -> Tool:
    """A tool from a tool, a typed function or a dict in the OpenAI shape.

    Raises:
        TypeError, ValueError, SchemaError: it is none of them; as `tool` and `Tool.from_schema`.
    """
    if isinstance(value, Tool):
        return value
    if isinstance(value, Mapping):
        return Tool.from_schema(value)
    if callable(value):
        return tool(value)
    raise TypeError(f"a tool is a function, a Tool or a dict, not {type(value).__name__}")


class ToolBox:
    """Tools by name, in order; ``box[name]`` is a `Tool`, or raises `ToolError` where there is none of that name.

    Args:
        tools: what `as_tool` takes.

    Raises:
        ValueError: two have the same name.
    """

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in map(as_tool, tools):
            if self._tools.setdefault(item.name, item) is not item:
                raise ValueError(f"two tools are called {item.name!r}")

    def __getitem__(self, name: str) -> Tool:
        if name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError(f"there is no tool {name!r} (known: {known})", tool=name, known=tuple(self._tools))
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def to_list(self) -> list[dict[str, Any]]:
        """All tools in the OpenAI shape."""
        return [item.to_dict() for item in self._tools.values()]
