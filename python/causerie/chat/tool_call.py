"""One call of a tool, as an assistant's message holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from causerie.chat.frozen_json import FrozenDict, checked_text, freeze

__all__ = ["ToolCall", "check_keys", "filled", "set_field"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool that an assistant asks for.

    Args:
        id: names the call within its turn; not empty.
        name: the tool; not empty.
        arguments: a JSON object. A copy that cannot be changed is kept: a dict in everything but that.

    Raises:
        TypeError: an argument of the wrong type, or arguments that JSON cannot express.
        ValueError: an empty id or name, or arguments with a number that is not finite or nested too deeply.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        set_field(self, "id", filled(self.id, "the id of a tool call"))
        set_field(self, "name", filled(self.name, "the name of a tool call"))
        if not isinstance(self.arguments, Mapping):
            kind = type(self.arguments).__name__
            raise TypeError(f"the arguments of tool call {self.id!r} must be a dict, not {kind}")
        set_field(self, "arguments", freeze(self.arguments))

    def to_dict(self) -> dict[str, Any]:
        """The call in the OpenAI shape, its arguments as JSON text."""
        arguments = json.dumps(self.arguments, ensure_ascii=False, allow_nan=False)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCall:
        """A call from the OpenAI shape; arguments may be JSON text (empty text: no arguments) or a dict.

        Raises:
            TypeError: a value of the wrong type.
            ValueError: an unknown or a missing key, a type other than "function", or malformed arguments.
        """
        check_keys(data, ("id", "type", "function"), "tool call")
        if data.get("type", "function") != "function":
            raise ValueError(f'a tool call must be of type "function", not {data["type"]!r}')
        function = data.get("function", {})
        check_keys(function, ("name", "arguments"), "function of the tool call")
        for key, where in (("id", data), ("name", function)):
            if where.get(key) is None:
                raise ValueError(f'a tool call needs "{key}"')
        arguments = function.get("arguments", "")
        if isinstance(arguments, str):
            arguments = _parsed_arguments(arguments, data["id"])
        return cls(data["id"], function["name"], arguments)


def _parsed_arguments(text: str, call_id: object) -> Mapping[str, Any]:
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments of tool call {call_id!r} are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise TypeError(f"the arguments of tool call {call_id!r} must be a JSON object, not {text!r}")
    return arguments


def set_field(target: object, name: str, value: object) -> None:
    """Set a field of a frozen dataclass that is still being made (what its own __init__ does)."""
    object.__setattr__(target, name, value)


def filled(value: object, what: str) -> str:
    """``value`` as text that is not empty; TypeError or ValueError otherwise."""
    text = checked_text(value, what)
    if not text:
        raise ValueError(f"{what} is empty")
    return text


def check_keys(data: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    """Refuse data that is not a mapping (TypeError) or has keys of other names (ValueError that lists them)."""
    if not isinstance(data, Mapping):
        raise TypeError(f"a {what} must be a dict, not {type(data).__name__}")
    unknown = [repr(key) for key in data if key not in known]
    if unknown:
        raise ValueError(f"unknown key of a {what}: {', '.join(unknown)} (known: {', '.join(known)})")
