"""From a typed function to what a model is told about it: name, description, JSON schema of the parameters."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from causerie.chat.schema.annotations import MISSING, Field, hints_of
from causerie.chat.schema.python_types import object_schema
from causerie.chat.tool_docstring import parse_docstring
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FunctionSchema", "describe_function"]


class FunctionSchema(NamedTuple):
    """What a function is called, what it does and what it takes."""

    name: str
    description: str
    parameters: dict[str, Any]
    fields: tuple[Field, ...]


def describe_function(function: Callable[..., Any]) -> FunctionSchema:
    """Describe a typed function.

    Args:
        function: each parameter annotated with a type that JSON can express.

    Raises:
        TypeError: it cannot be called.
        SchemaError: a parameter cannot be described; ``.path`` is its name.
    """
    if not callable(function):
        raise TypeError(f"a tool needs a function, not {type(function).__name__}")
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{name}: its signature cannot be read: {error}", path="") from None
    hinted = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__
    hints = hints_of(hinted.__init__ if inspect.isclass(hinted) else hinted, name)
    description, texts = parse_docstring(inspect.getdoc(inner), parameters)
    fields = []
    for parameter in parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise SchemaError(
                f"{name}: {parameter} takes any arguments: give each parameter a name and a type", path=parameter.name
            )
        annotation = hints.get(parameter.name, MISSING)
        required = parameter.default is MISSING
        fields.append(Field(parameter.name, annotation, required, parameter.default, texts.get(parameter.name, "")))
    try:
        schema = object_schema(fields)
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}", path=error.path) from error
    return FunctionSchema(name, description, schema, tuple(fields))
