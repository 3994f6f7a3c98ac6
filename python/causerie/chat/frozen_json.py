"""JSON values that nobody can change: what messages hold inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["FrozenDict", "FrozenList", "checked_text", "freeze", "thaw"]

# Deeper than any real tool call, and shallow enough for every recursion that will meet the value: json, the template.
_MAX_DEPTH = 100
_MAX_BITS = 14_000  # Python reads and writes no int of more than 4300 digits


class FrozenDict(dict[str, Any]):
    """A JSON object that refuses to change, all the way down.

    A dict in everything else: it equals a plain dict, json.dumps takes it, ``**`` spreads it. `thaw` gives a copy that
    may be changed.
    """

    __slots__ = ()

    def __init__(self, values: Mapping[str, Any] | None = None, /) -> None:
        super().__init__(_frozen_items(values or {}, 1))

    def __hash__(self) -> int:  # type: ignore[override]  # dict says None: a plain one cannot be hashed
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A JSON array that refuses to change, all the way down; a list in everything else."""

    __slots__ = ()

    def __init__(self, values: list[Any] | tuple[Any, ...] = (), /) -> None:
        super().__init__(_freeze(value, 1) for value in values)

    def __hash__(self) -> int:  # type: ignore[override]  # as above
        return hash(tuple(self))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def _refuse(self: object, *_args: Any, **_options: Any) -> NoReturn:
    kind = "object" if isinstance(self, dict) else "array"
    raise TypeError(f"this JSON {kind} belongs to a message and cannot be changed: change a copy, thaw(value)")


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refuse)
for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert"),
    *("pop", "remove", "reverse", "sort"),
):
    setattr(FrozenList, _name, _refuse)


def checked_text(value: object, what: str) -> str:
    """``value`` as an exact str that UTF-8 can express.

    Raises:
        TypeError: it is not a str.
        ValueError: it has a lone surrogate, which no tokenizer and no file could take.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    text = str.__str__(value)  # not str(value): a str Enum would give its name
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{what} has a lone surrogate at index {error.start}: it is not Unicode text") from None
    return text


def freeze(value: Any) -> Any:
    """A JSON value in a form that cannot change; the value itself is left as it is.

    Args:
        value: None, bool, int, float, str, or mappings (keys: str), lists and tuples of such values.

    Raises:
        TypeError: it holds something that JSON cannot express.
        ValueError: it holds a float that is not finite, an integer of thousands of digits or text that is not Unicode,
            or is nested too deeply.
    """
    return _freeze(value, 0)


def _freeze(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value, "text in JSON")
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise ValueError(f"an integer of {value.bit_length()} bits is more than JSON is read with")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no number for {value!r}")
        return float(value)
    if depth >= _MAX_DEPTH:
        raise ValueError(f"the JSON value is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        frozen = FrozenDict()
        dict.update(frozen, _frozen_items(value, depth + 1))
        return frozen
    if isinstance(value, (list, tuple)):
        array = FrozenList()
        list.extend(array, [_freeze(item, depth + 1) for item in value])
        return array
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _frozen_items(values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    return {checked_text(key, "a key of a JSON object"): _freeze(item, depth) for key, item in values.items()}


def thaw(value: Any) -> Any:
    """A copy of a JSON value in plain dicts and lists, which may be changed."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value
