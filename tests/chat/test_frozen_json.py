"""Nothing inside a message can be changed; it is JSON in everything else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from causerie.chat import FrozenDict, FrozenList, Message, ToolCall, freeze, thaw


def call(**arguments: Any) -> ToolCall:
    return ToolCall("c1", "weather", arguments)


def test_nothing_inside_a_message_can_be_changed() -> None:
    message = Message("assistant", [{"type": "text", "text": "a"}], tool_calls=(call(days=[1], of={"x": 1}),))
    arguments: Any = message.tool_calls[0].arguments
    attempts = [
        lambda: arguments.update(a=1),
        lambda: arguments.setdefault("a", 1),
        lambda: arguments.pop("days"),
        lambda: arguments.popitem(),
        lambda: arguments.clear(),
        lambda: arguments.__setitem__("a", 1),
        lambda: arguments.__delitem__("days"),
        lambda: arguments.__ior__({"a": 1}),
        lambda: arguments["of"].update(x=2),
        lambda: arguments["days"].append(2),
        lambda: arguments["days"].extend([2]),
        lambda: arguments["days"].insert(0, 2),
        lambda: arguments["days"].__setitem__(0, 2),
        lambda: arguments["days"].__delitem__(0),
        lambda: arguments["days"].__iadd__([2]),
        lambda: arguments["days"].__imul__(2),
        lambda: arguments["days"].pop(),
        lambda: arguments["days"].remove(1),
        lambda: arguments["days"].clear(),
        lambda: arguments["days"].sort(),
        lambda: arguments["days"].reverse(),
        lambda: message.content[0].update(text="b"),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match="cannot be changed"):
            attempt()
    for target, field in ((message, "content"), (message.tool_calls[0], "arguments")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(target, field, "")
    assert repr(arguments) == "{'days': [1], 'of': {'x': 1}}"


def test_what_was_given_stays_the_callers() -> None:
    days = [1]
    made = call(days=days)
    days.append(2)
    assert made.arguments == {"days": [1]}


def test_frozen_json_is_json_in_everything_else() -> None:
    frozen = freeze({"a": [1, {"b": None}], "c": (2.5, True)})
    assert isinstance(frozen, FrozenDict)
    assert isinstance(frozen["a"], FrozenList)
    assert frozen == {"a": [1, {"b": None}], "c": [2.5, True]}
    assert json.dumps(frozen) == '{"a": [1, {"b": null}], "c": [2.5, true]}'
    plain = thaw(frozen)
    plain["a"][1]["b"] = 1
    assert type(plain) is dict
    assert frozen["a"][1] == {"b": None}


def test_layers_of_frozen_values_count_as_depth() -> None:
    value = FrozenDict()
    for _ in range(99):
        value = FrozenDict({"a": value})
    with pytest.raises(ValueError, match="levels deep"):
        FrozenDict({"a": value})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="levels deep"):
        freeze(loop)
