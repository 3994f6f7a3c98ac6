"""From Python types to JSON schemas: what a tool's arguments or a typed reply look like (pure Python)."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from causerie.chat.schema.annotations import (
    MISSING,
    SCALARS,
    TEXTS,
    Field,
    fields_of,
    name_of,
    type_kind,
    unwrapped,
)
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["constraints", "object_schema", "type_schema"]

# What annotated_types, and so pydantic's Field, calls the bounds.
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}


def constraints(metadata: Iterable[Any], kind: str | None = None) -> dict[str, Any]:
    """What annotations of a type add to its schema: a text describes it; ge, gt, le, lt, multiple_of, min_length,
    max_length and pattern (attributes, as annotated_types and pydantic's Field have them) limit it.

    Args:
        metadata: what stands behind the type in Annotated.
        kind: "string" or "array": what lengths are about.
    """  # noqa: D205 - one sentence
    found: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, str):
            found["description"] = item
            continue
        for attribute, keyword in _BOUNDS.items():
            if (value := getattr(item, attribute, None)) is not None:
                found[keyword] = value
        for attribute, keyword in zip(("min_length", "max_length"), _LENGTHS.get(kind or "", ()), strict=False):
            if (value := getattr(item, attribute, None)) is not None:
                found[keyword] = value
        for attribute in ("description", "pattern"):
            if isinstance(value := getattr(item, attribute, None), str):
                found[attribute] = value
        if isinstance(inner := getattr(item, "metadata", None), (list, tuple)):
            found.update(constraints(inner, kind))
    return found


class _Describer:
    """Describes types; those that contain themselves become definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self.open: dict[Any, str] = {}
        self.recursive: set[Any] = set()

    def describe(self, annotation: Any, where: str) -> dict[str, Any]:
        base, metadata = unwrapped(annotation)
        schema: dict[str, Any] = getattr(self, f"_{type_kind(base, where)}")(base, where)
        added = constraints(metadata, schema.get("type"))
        if "$ref" in schema and added.keys() - {"description"}:
            raise SchemaError(f"{where}: {name_of(base)} takes no bounds", path=where)
        return {**schema, **added}

    @staticmethod
    def _any(_base: Any, _where: str) -> dict[str, Any]:
        return {}

    @staticmethod
    def _scalar(base: Any, _where: str) -> dict[str, Any]:
        return {"type": SCALARS[base]}

    @staticmethod
    def _text(base: Any, _where: str) -> dict[str, Any]:
        return {"type": "string", "format": TEXTS[base]}

    @staticmethod
    def _literal(base: Any, where: str) -> dict[str, Any]:
        return _enumeration([getattr(v, "value", v) if isinstance(v, Enum) else v for v in get_args(base)], where)

    @staticmethod
    def _enum(base: Any, where: str) -> dict[str, Any]:
        return _enumeration([member.value for member in base], where)

    def _union(self, base: Any, where: str) -> dict[str, Any]:
        options = [self.describe(option, where) for option in get_args(base)]
        return {"anyOf": [option for i, option in enumerate(options) if option not in options[:i]]}

    def _array(self, base: Any, where: str) -> dict[str, Any]:
        arguments = get_args(base)
        if get_origin(base) is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            items = [self.describe(item, f"{where}[{i}]") for i, item in enumerate(arguments) if item != ()]
            length = {"minItems": len(items), "maxItems": len(items)}
            return {"type": "array", **({"prefixItems": items} if items else {}), **length}
        item = self.describe(arguments[0], f"{where}[]") if arguments else {}
        return {"type": "array", "items": item}

    def _mapping(self, base: Any, where: str) -> dict[str, Any]:
        arguments = get_args(base)
        if not arguments:
            return {"type": "object"}
        if unwrapped(arguments[0])[0] is not str:
            raise SchemaError(f"{where}: the keys of a JSON object are str, not {name_of(arguments[0])}", path=where)
        value = self.describe(arguments[1], f"{where}.*")
        return {"type": "object", "additionalProperties": value or True}

    def _model(self, base: Any, where: str) -> dict[str, Any]:
        try:
            schema: dict[str, Any] = base.model_json_schema()
        except Exception as error:
            raise SchemaError(f"{where}: pydantic cannot describe {name_of(base)}: {error}", path=where) from error
        for name, definition in schema.pop("$defs", {}).items():
            self._define(name, definition, where)
        return schema

    def _fields(self, base: Any, where: str) -> dict[str, Any]:
        if base in self.open:
            self.recursive.add(base)
            return {"$ref": f"#/$defs/{self.open[base]}"}
        taken = {*self.definitions, *self.open.values()}
        self.open[base] = next(n for i in range(1000) if (n := f"{base.__name__}{i or ''}") not in taken)
        description, fields = fields_of(base, where)
        schema = self.object(description, fields, where)
        name = self.open.pop(base)
        if base not in self.recursive:
            return schema
        self._define(name, schema, where)
        return {"$ref": f"#/$defs/{name}"}

    def _define(self, name: str, schema: dict[str, Any], where: str) -> None:
        if self.definitions.setdefault(name, schema) != schema:
            raise SchemaError(f"{where}: two different types are called {name}", path=where)

    def object(self, description: str, fields: Iterable[Field], where: str) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required = []
        for field in fields:
            place = f"{where}.{field.name}" if where else field.name
            schema = self.describe(field.annotation, place)
            if field.description:
                schema.setdefault("description", field.description)
            if (default := _default(field.default)) is not MISSING:
                schema["default"] = default
            properties[field.name] = schema
            if field.required:
                required.append(field.name)
        about = {"description": description} if description else {}
        return {
            "type": "object",
            **about,
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


def _enumeration(values: list[Any], where: str) -> dict[str, Any]:
    if not values or not all(v is None or isinstance(v, (bool, int, float, str)) for v in values):
        raise SchemaError(f"{where}: the values of an enum must be JSON values, not {values!r:.80}", path=where)
    kinds = {SCALARS[None if v is None else next(t for t in SCALARS if t and isinstance(v, t))] for v in values}
    return {**({"type": kinds.pop()} if len(kinds) == 1 else {}), "enum": values}


def _default(value: Any) -> Any:
    """A default as JSON; MISSING if it is none, or JSON has no word for it."""
    if isinstance(value, Enum):
        value = value.value
    plain = value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
    if plain or (isinstance(value, (list, tuple)) and all(_default(item) is not MISSING for item in value)):
        return [_default(item) for item in value] if isinstance(value, (list, tuple)) else value
    return MISSING


def type_schema(annotation: Any, where: str = "$") -> dict[str, Any]:
    """The JSON schema of a Python type.

    Args:
        annotation: bool, int, float, str, None, Literal, Enum, list, dict, tuple, dataclass, TypedDict, pydantic model,
            Union of them, and the like.
        where: what it describes, for the error.

    Raises:
        SchemaError: JSON cannot express it; `.path` is the place.
    """
    describer = _Describer()
    schema = describer.describe(annotation, where)
    return {**schema, **({"$defs": describer.definitions} if describer.definitions else {})}


def _without_null(field: Field) -> Field:
    base, metadata = unwrapped(field.annotation)
    options = [option for option in get_args(base) if option is not type(None)]
    if field.default is not None or not options or type_kind(base, field.name) != "union":
        return field
    plain: Any = Union[tuple(options)]  # noqa: UP007 - of options that are only known now
    for item in metadata:
        plain = Annotated[plain, item]
    return field._replace(annotation=plain, default=MISSING)


def object_schema(fields: Iterable[Field]) -> dict[str, Any]:
    """The JSON schema of a function's arguments.

    What is None unless it is given is described without the null: it can be left out, and many chat templates cannot
    write an anyOf.

    Raises:
        SchemaError: JSON cannot express one of them.
    """
    describer = _Describer()
    schema = describer.object("", map(_without_null, fields), "")
    return {**schema, **({"$defs": describer.definitions} if describer.definitions else {})}
