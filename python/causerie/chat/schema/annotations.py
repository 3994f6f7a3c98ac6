"""Python's type annotations, taken apart: what describing a type and reading its values have in common."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections import abc
from datetime import date, datetime, time
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from causerie.chat.tool_docstring import parse_docstring
from causerie.errors import SchemaError

__all__ = [
    "ARRAYS",
    "MISSING",
    "SCALARS",
    "TEXTS",
    "Field",
    "Kind",
    "fields_of",
    "hints_of",
    "name_of",
    "type_kind",
    "unwrapped",
]

MISSING: Any = inspect.Parameter.empty
SCALARS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", None: "null"}
# Classes that JSON has no word for, by the format of their text.
TEXTS: dict[Any, str] = {date: "date", datetime: "date-time", time: "time", UUID: "uuid"}

ARRAYS: dict[Any, Any] = {
    list: list, set: set, frozenset: frozenset, tuple: tuple,
    abc.Sequence: list, abc.MutableSequence: list, abc.Iterable: list, abc.Collection: list,
    abc.Set: set, abc.MutableSet: set,
}  # fmt: skip
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)

Kind = Literal["any", "scalar", "text", "literal", "enum", "union", "array", "mapping", "model", "fields"]


class Field(NamedTuple):
    """A member of a dataclass or TypedDict, or a parameter of a function."""

    name: str
    annotation: Any
    required: bool
    default: Any = MISSING
    description: str = ""


def unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without Annotated, NewType and the like, and what was annotated."""
    metadata: tuple[Any, ...] = ()
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            metadata = (*annotation.__metadata__, *metadata)
            annotation = annotation.__origin__
        elif str(origin).rpartition(".")[2] in {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return (None if annotation is type(None) else annotation), metadata


def _is_model(annotation: Any) -> bool:
    """Whether it is a pydantic model."""
    return isinstance(annotation, type) and hasattr(annotation, "model_json_schema")


def _is_typed_dict(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, dict) and hasattr(annotation, "__required_keys__")


def type_kind(annotation: Any, where: str) -> Kind:
    """What kind of type it is.

    Raises:
        SchemaError: JSON cannot express it.
    """
    origin = get_origin(annotation)
    base = origin or annotation
    if base in (Any, object):
        return "any"
    if origin in (Union, types.UnionType):
        return "union"
    if origin is Literal:
        return "literal"
    for kind, known in (("scalar", SCALARS), ("text", TEXTS), ("array", ARRAYS), ("mapping", _MAPPINGS)):
        if _among(base, known):
            return typing.cast("Kind", kind)
    return _kind_of_class(annotation, where)


def _among(base: Any, known: Any) -> bool:
    try:
        return base in known
    except TypeError:  # not hashable
        return False


def _kind_of_class(annotation: Any, where: str) -> Kind:
    if _is_model(annotation):
        return "model"
    if isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return "enum"
        if dataclasses.is_dataclass(annotation) or _is_typed_dict(annotation):
            return "fields"
    known = "bool, int, float, str, None, Literal, Enum, list, dict, tuple, dataclass, TypedDict, Union, date, UUID"
    hint = "it is not annotated" if annotation is MISSING else f"{name_of(annotation)} has no JSON schema"
    raise SchemaError(f"{where}: {hint} (known: {known} and pydantic models)", path=where)


def name_of(annotation: Any) -> str:
    """The type as a reader would write it."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def hints_of(target: Any, where: str) -> dict[str, Any]:
    """The annotations of a class or function.

    Raises:
        SchemaError: a name in them cannot be found.
    """
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception as error:
        raise SchemaError(
            f"{where}: its annotations cannot be read: {error} (types must be known where it was defined)", path=where
        ) from error


def fields_of(cls: Any, where: str) -> tuple[str, list[Field]]:
    """The description and the fields of a dataclass or TypedDict.

    Raises:
        SchemaError: an annotation cannot be read.
    """
    hints = hints_of(cls, where)
    own_doc = cls.__doc__ if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(") else ""
    if own_doc == dict.__doc__:
        own_doc = ""
    description, described = parse_docstring(own_doc, hints)
    found = []
    if not dataclasses.is_dataclass(cls):
        for name, hint in hints.items():
            said = str(get_origin(hint)).rpartition(".")[2]
            required = said == "Required" or (name in cls.__required_keys__ and said != "NotRequired")
            found.append(Field(name, hint, required, description=described.get(name, "")))
        return description, found
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = MISSING if field.default is dataclasses.MISSING else field.default
        text = str(field.metadata.get("description", described.get(field.name, "")))
        found.append(Field(field.name, hints[field.name], required, default, text))
    return description, found
