"""What no message can be, and what the refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from causerie.chat import Message, ToolCall, as_message, as_messages


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "weather", {})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"role": "robot", "content": ""}, "unknown role 'robot'"),
        ({"role": "developer", "content": ""}, "unknown role 'developer'"),
        ({"content": ""}, '"role"'),
        ({"role": "user"}, '"content"'),
        ({"role": "user", "content": None}, '"content"'),
        ({"role": "assistant"}, '"content"'),
        ({"role": "user", "content": "", "text": 1, "weight": 2}, "'text', 'weight'"),
        ({"role": "user", "content": "", 5: 1}, "5"),
        ({"role": "assistant", "content": "", "refusal": "No."}, "'refusal'"),
        ({"role": "user", "content": []}, "without parts"),
        ({"role": "user", "content": [{"text": "a"}]}, 'part 0 has no "type"'),
        ({"role": "user", "content": [{"type": "text"}]}, 'no "text"'),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "smell"}]}, "part 1.*'smell'.*keep"),
        ({"role": "user", "content": "\ud800"}, "surrogate at index 0"),
        ({"role": "user", "content": "", "name": ""}, "name is empty"),
        ({"role": "user", "content": "", "reasoning_content": "Hm."}, "only an assistant"),
        ({"role": "user", "content": "", "tool_call_id": "c"}, "tool_call_id"),
        ({"role": "tool", "content": ""}, "tool_call_id"),
        ({"role": "tool", "content": "", "tool_call_id": ""}, "tool_call_id is empty"),
    ],
)
def test_wrong_data_says_what_is_wrong(data: dict[Any, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Message.from_dict(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"function": {"name": "f"}}, '"id"'),
        ({"id": "c"}, '"name"'),
        ({"id": "c", "function": {"arguments": "{}"}}, '"name"'),
        ({"id": "c", "type": "custom", "function": {"name": "f"}}, "'custom'"),
        ({"id": "c", "function": {"name": "f"}, "index": 0}, "'index'"),
        ({"id": "c", "function": {"name": "f", "strict": True}}, "'strict'"),
        ({"id": "c", "function": {"name": "f", "arguments": "{'a': 1}"}}, "not JSON"),
        ({"id": "c", "function": {"name": "f", "arguments": '{"a": NaN}'}}, "no number for nan"),
        ({"id": "c", "function": {"name": "f", "arguments": '{"a": 1e999}'}}, "no number for inf"),
        ({"id": "c", "function": {"name": "f", "arguments": '{"a":' + "[" * 200 + "]" * 200 + "}"}}, "levels deep"),
        ({"id": "c", "function": {"name": "f", "arguments": '{"a":' + "[" * 200_000}}, "not JSON"),
        ({"id": "", "function": {"name": "f"}}, "id of a tool call is empty"),
    ],
)
def test_wrong_tool_calls_say_what_is_wrong(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ToolCall.from_dict(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Message("user", None),
        lambda: Message("user", b"bytes"),
        lambda: Message("user", 5),
        lambda: Message("user", ["text"]),
        lambda: Message("user", [{"type": 5}]),
        lambda: Message("user", [{"type": "text", "text": None}]),
        lambda: Message("user", [{"type": "image_url", "image": b"raw"}]),
        lambda: Message(None, ""),
        lambda: Message("assistant", "", thinking=None),
        lambda: Message("assistant", "", tool_calls="c1"),
        lambda: Message("assistant", "", tool_calls=[{"id": "c1"}]),
        lambda: Message("user", "", name=5),
        lambda: ToolCall(1, "f", {}),
        lambda: ToolCall("c", "f", "{}"),
        lambda: ToolCall("c", "f", {"a": {1, 2}}),
        lambda: ToolCall("c", "f", {1: 2}),
        lambda: ToolCall.from_dict({"id": "c", "function": {"name": "f", "arguments": "[1]"}}),
        lambda: as_message("Hi"),
        lambda: as_messages("Hi"),
        lambda: as_messages({"role": "user", "content": "Hi"}),
        lambda: as_messages(Message("user", "Hi")),
        lambda: Message.list_from_json('{"role": "user", "content": "Hi"}'),
    ],
)
def test_a_wrong_type_is_a_type_error(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_a_wrong_message_of_a_list_is_named() -> None:
    with pytest.raises(ValueError, match="message 1: unknown role"):
        as_messages([{"role": "user", "content": ""}, {"role": "x", "content": ""}])
    with pytest.raises(TypeError, match="message 0: "):
        as_messages([None])
    with pytest.raises(ValueError, match="not JSON"):
        Message.list_from_json("[")


def test_two_calls_of_one_message_need_different_ids() -> None:
    with pytest.raises(ValueError, match="'c1'"):
        Message("assistant", "", tool_calls=(call("c1"), call("c1")))
