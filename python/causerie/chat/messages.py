"""Messages of a conversation: immutable, and the OpenAI shape in and out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast, get_args

from causerie.chat.content import Content, PartsPolicy, as_content, check_parts, text_of
from causerie.chat.frozen_json import checked_text, thaw
from causerie.chat.tool_call import ToolCall, check_keys, filled, set_field

__all__ = ["Content", "Message", "PartsPolicy", "Role", "ToolCall", "as_message", "as_messages"]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

_MESSAGE_KEYS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
# OpenAI's client puts these into every reply; they may stand there as long as they say nothing.
_EMPTY_KEYS = ("annotations", "audio", "function_call", "refusal")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Nothing of it can be changed, and nothing given to it is kept or changed.

    Args:
        role: "system", "user", "assistant" or "tool".
        content: text, or a sequence of content parts (dicts with a "type"; kept as a tuple, whatever their type).
        thinking: what an assistant thought before its answer; "" for nothing.
        tool_calls: calls an assistant asks for; their ids differ.
        tool_call_id: the call that a tool's message answers; required there, refused elsewhere.
        name: who speaks, or which tool answers.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an unknown role, or an argument that the role cannot have.
    """

    role: Role
    content: Content = ""
    thinking: str = field(default="", kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    tool_call_id: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        role = checked_text(self.role, "role")
        if role not in get_args(Role):
            raise ValueError(f"unknown role {role!r}: a message is by {', '.join(get_args(Role))}")
        set_field(self, "role", role)
        set_field(self, "content", as_content(self.content))
        set_field(self, "thinking", checked_text(self.thinking, "thinking"))
        set_field(self, "tool_calls", _calls(self.tool_calls))
        if role != "assistant" and (self.thinking or self.tool_calls):
            raise ValueError(f"only an assistant's message has thinking or tool calls, not one by {role!r}")
        if (role == "tool") != (self.tool_call_id is not None):
            raise ValueError("a tool's message, and no other, needs tool_call_id: the id of the call it answers")
        if self.tool_call_id is not None:
            set_field(self, "tool_call_id", filled(self.tool_call_id, "tool_call_id"))
        if self.name is not None:
            set_field(self, "name", filled(self.name, "name"))

    @property
    def text(self) -> str:
        """The text of its content; that of text parts, one per line."""
        return text_of(self.content)

    def to_dict(self) -> dict[str, Any]:
        """The message in the OpenAI shape, in plain dicts and lists; what it does not have is left out.

        Thinking goes under "reasoning_content"; "content" is always there, "" for an assistant that only calls tools.
        """
        data: dict[str, Any] = {"role": self.role, "content": thaw(self.content)}
        if self.thinking:
            data["reasoning_content"] = self.thinking
        if self.tool_calls:
            data["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            data["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            data["name"] = self.name
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, unknown_parts: PartsPolicy = "refuse") -> Message:
        """A message from the OpenAI shape. A value of None counts as left out.

        Args:
            data: not changed, and not kept.
            unknown_parts: "refuse" content parts of unknown types, or "keep" them as they are.

        Raises:
            TypeError: a value of the wrong type.
            ValueError: an unknown role or key, or a value that the role needs is missing.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"a message must be a Message or a dict, not {type(data).__name__}")
        given = {k: v for k, v in data.items() if v is not None and not (k in _EMPTY_KEYS and v in ([], ""))}
        check_keys(given, _MESSAGE_KEYS, "message")
        if "role" not in given:
            raise ValueError('a message needs "role"')
        thinking, calls = given.get("reasoning_content", ""), given.get("tool_calls", [])
        if "content" not in given and not thinking and not calls:
            raise ValueError('a message needs "content"')
        if not isinstance(calls, (list, tuple)):
            raise TypeError(f"tool_calls must be a list, not {type(calls).__name__}")
        message = cls(
            given["role"],
            given.get("content", ""),
            thinking=thinking,
            tool_calls=tuple(ToolCall.from_dict(call) for call in calls),
            tool_call_id=given.get("tool_call_id"),
            name=given.get("name"),
        )
        check_parts(message.content, unknown_parts)
        return message

    @staticmethod
    def list_to_json(messages: Iterable[Message], *, indent: int | None = None) -> str:
        """Messages as JSON text, an array in the OpenAI shape."""
        data = [message.to_dict() for message in messages]
        return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=indent)

    @staticmethod
    def list_from_json(text: str | bytes, *, unknown_parts: PartsPolicy = "refuse") -> tuple[Message, ...]:
        """Messages from JSON text, exactly those that `list_to_json` was given.

        Raises:
            TypeError, ValueError: as `from_dict`, naming the message by its index; TypeError if the text is JSON and
                no array, ValueError if it is not JSON.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the messages are not JSON: {error}") from error
        if not isinstance(data, list):
            raise TypeError(f"the messages must be a JSON array, not {type(data).__name__}")
        return as_messages(data, unknown_parts=unknown_parts)


def as_message(value: Message | Mapping[str, Any], *, unknown_parts: PartsPolicy = "refuse") -> Message:
    """A message from a `Message` (given back as it is) or a dict in the OpenAI shape (not changed, not kept).

    Raises:
        TypeError, ValueError: as `Message.from_dict`.
    """
    if isinstance(value, Message):
        check_parts(value.content, unknown_parts)
        return value
    return Message.from_dict(value, unknown_parts=unknown_parts)


def as_messages(
    values: Iterable[Message | Mapping[str, Any]], *, unknown_parts: PartsPolicy = "refuse"
) -> tuple[Message, ...]:
    """A tuple of messages, each as `as_message` takes it.

    Raises:
        TypeError, ValueError: as `Message.from_dict`, naming the message by its index.
    """
    if isinstance(values, (str, bytes, Mapping, Message)):
        raise TypeError(f"messages must be a list of messages, not one {type(values).__name__}")
    return tuple(_numbered(index, value, unknown_parts) for index, value in enumerate(values))


def _numbered(index: int, value: Message | Mapping[str, Any], unknown_parts: PartsPolicy) -> Message:
    try:
        return as_message(value, unknown_parts=unknown_parts)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"message {index}: {error}") from error


def _calls(values: object) -> tuple[ToolCall, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(call, ToolCall) for call in values):
        raise TypeError("tool_calls must be a tuple of ToolCall")
    calls = cast("tuple[ToolCall, ...]", tuple(values))
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise ValueError(f"two tool calls of one message have the id {call.id!r}")
        seen.add(call.id)
    return calls
