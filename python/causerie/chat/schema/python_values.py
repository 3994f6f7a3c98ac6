"""From JSON values to the Python types that a signature or a typed reply asks for, with every value checked."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, get_args, get_origin
from uuid import UUID

from causerie.chat.schema.annotations import ARRAYS, fields_of, name_of, type_kind, unwrapped
from causerie.chat.schema.python_types import constraints
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from causerie.chat.schema.annotations import Field

__all__ = ["fill_fields", "to_python"]


def _fail(where: str, wanted: str, value: Any) -> SchemaError:
    return SchemaError(f"{where} must be {wanted}, not {value!r:.80}", path=where)


def _zulu(text: str) -> str:
    return re.sub(r"[zZ]$", "+00:00", text)  # which fromisoformat of Python 3.10 does not know


_READERS: dict[Any, Callable[[str], Any]] = {
    date: date.fromisoformat,
    datetime: lambda text: datetime.fromisoformat(_fraction(_zulu(text))),
    time: lambda text: time.fromisoformat(_fraction(_zulu(text))),
    UUID: UUID,
}


def _fraction(text: str) -> str:
    """Seconds with six decimals, the only ones that Python 3.10 reads beside three."""
    return re.sub(r"\.(\d{1,6})\d*", lambda match: "." + match.group(1).ljust(6, "0"), text)


def to_python(value: Any, annotation: Any, where: str = "$") -> Any:
    """A JSON value as the type that an annotation asks for.

    Args:
        value: as json.loads gives it.
        annotation: a type that `type_schema` can describe.
        where: what the value is, for the error.

    Raises:
        SchemaError: the value does not fit; `.path` is the place in the value.
    """
    base, metadata = unwrapped(annotation)
    found = _CONVERTERS[type_kind(base, where)](value, base, where)
    if metadata:
        _check_bounds(value, constraints(metadata, "string" if isinstance(value, str) else "array"), where)
    return found


def _check_bounds(value: Any, limits: dict[str, Any], where: str) -> None:
    checks: dict[str, Callable[[Any], bool]]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        checks = {
            "minimum": lambda limit: value >= limit,
            "maximum": lambda limit: value <= limit,
            "exclusiveMinimum": lambda limit: value > limit,
            "exclusiveMaximum": lambda limit: value < limit,
            "multipleOf": lambda limit: math.isclose(value / limit, round(value / limit), abs_tol=1e-9),
        }
    elif isinstance(value, (str, list)):
        checks = {
            "minLength": lambda limit: len(value) >= limit,
            "maxLength": lambda limit: len(value) <= limit,
            "minItems": lambda limit: len(value) >= limit,
            "maxItems": lambda limit: len(value) <= limit,
            "pattern": lambda limit: re.search(limit, str(value)) is not None,
        }
    else:
        return
    for keyword, check in checks.items():
        if keyword in limits and not check(limits[keyword]):
            raise SchemaError(f"{where} is {value!r:.80}, against {keyword} {limits[keyword]!r}", path=where)


def _any(value: Any, _base: Any, _where: str) -> Any:
    return value


def _scalar(value: Any, base: Any, where: str) -> Any:
    if base is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if base is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if (value is None) if base is None else (type(value) is base or (base is str and isinstance(value, str))):
        return value
    raise _fail(where, "null" if base is None else name_of(base), value)


def _text(value: Any, base: Any, where: str) -> Any:
    if isinstance(value, str):
        try:
            return _READERS[base](value)
        except ValueError:
            pass
    raise _fail(where, f"the text of a {name_of(base)}", value)


def _literal(value: Any, base: Any, where: str) -> Any:
    for option in get_args(base):
        plain = getattr(option, "value", option)
        if plain == value and isinstance(plain, bool) is isinstance(value, bool):
            return option
    raise _fail(where, f"one of {', '.join(repr(getattr(o, 'value', o)) for o in get_args(base))}", value)


def _enum(value: Any, base: Any, where: str) -> Any:
    for member in base:
        if member.value == value and isinstance(member.value, bool) is isinstance(value, bool):
            return member
    raise _fail(where, f"one of {', '.join(repr(member.value) for member in base)}", value)


def _union(value: Any, base: Any, where: str) -> Any:
    options = get_args(base)
    exact = [option for option in options if unwrapped(option)[0] is type(value)]
    errors = []
    for option in (*exact, *options):
        try:
            return to_python(value, option, where)
        except SchemaError as error:  # noqa: PERF203 - the next one may fit
            errors.append(error)
    # The deepest error is of the option that came closest.
    raise max(errors, key=lambda error: len(error.path))


def _array(value: Any, base: Any, where: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _fail(where, "a list", value)
    arguments = get_args(base)
    if get_origin(base) is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        wanted = [a for a in arguments if a != ()]
        if len(value) != len(wanted):
            raise _fail(where, f"a list of {len(wanted)}", value)
        return tuple(to_python(v, a, f"{where}[{i}]") for i, (v, a) in enumerate(zip(value, wanted, strict=True)))
    item = arguments[0] if arguments else Any
    found = [to_python(v, item, f"{where}[{i}]") for i, v in enumerate(value)]
    try:
        return ARRAYS[get_origin(base) or base](found)
    except TypeError:  # a set of what cannot be hashed
        raise _fail(where, f"a {name_of(base)}", value) from None


def _mapping(value: Any, base: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _fail(where, "an object", value)
    item = (*get_args(base), Any, Any)[1]
    return {name: to_python(v, item, f"{where}.{name}") for name, v in value.items()}


def _model(value: Any, base: Any, where: str) -> Any:
    try:
        return base.model_validate(value)
    except ValueError as error:
        raise SchemaError(f"{where}: {error}", path=where) from error


def _fields(value: Any, base: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _fail(where, f"an object ({base.__name__})", value)
    _, fields = fields_of(base, where)
    return base(**fill_fields(value, fields, where))


def fill_fields(value: dict[str, Any], fields: Iterable[Field], where: str) -> dict[str, Any]:
    """The members of a JSON object as the types of the fields; those that are left out are left out.

    Raises:
        SchemaError: one does not fit, is missing, or is not a field.
    """
    found: dict[str, Any] = {}
    known = {field.name: field for field in fields}
    for name, item in value.items():
        path = f"{where}.{name}" if where else name
        if name not in known:
            raise SchemaError(f"{path} is unknown (known: {', '.join(known) or 'none'})", path=path)
        found[name] = to_python(item, known[name].annotation, path)
    for field in known.values():
        if field.required and field.name not in found:
            path = f"{where}.{field.name}" if where else field.name
            raise SchemaError(f"{path} is missing", path=path)
    return found


_CONVERTERS: dict[str, Callable[[Any, Any, str], Any]] = {
    "any": _any,
    "scalar": _scalar,
    "text": _text,
    "literal": _literal,
    "enum": _enum,
    "union": _union,
    "array": _array,
    "mapping": _mapping,
    "model": _model,
    "fields": _fields,
}
