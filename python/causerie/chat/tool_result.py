"""What a tool gave, or why it gave nothing, as the text that a model is told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from causerie.chat.frozen_json import checked_text
from causerie.errors import ToolError

__all__ = ["error_text", "result_text"]

_LONGEST_ERROR = 500


def result_text(value: Any) -> str:
    """A result as text: a str as it is, everything else as JSON.

    Args:
        value: JSON values, and of these: dataclasses, pydantic models, enums, mappings, sets, dates and times, UUIDs,
            paths, decimal numbers (as text), numpy's arrays and numbers.

    Raises:
        TypeError, ValueError: JSON cannot express it.
    """
    if isinstance(value, str):
        return checked_text(value, "a tool's result")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except RecursionError:
        raise ValueError("the result is nested too deeply for JSON") from None
    return checked_text(text, "a tool's result")


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


_STEPS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (Enum, lambda value: value.value),
    (Mapping, dict),
    (AbstractSet, list),
    ((date, time), lambda value: value.isoformat()),
    (timedelta, lambda value: value.total_seconds()),
    ((UUID, PurePath, Decimal), str),
)


def _plain(value: Any) -> Any:
    """One step towards what json knows."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    for kinds, step in _STEPS:
        if isinstance(value, kinds):
            return step(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no form for a value of type {type(value).__name__}")


def error_text(error: BaseException | str) -> str:
    """Why there is no result, in short: type and message of an exception, without its traceback."""
    if isinstance(error, str):
        return f"Error: {error}"
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - of the user's own class
        message = ""
    kind = type(error).__name__
    text = message if isinstance(error, ToolError) and message else f"{kind}: {message}" if message else kind
    text = text.encode("utf-8", "replace").decode()
    return "Error: " + (text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - 1]}…")
