"""Messages: what they accept, that nothing changes them, and the OpenAI shape in and out."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat import Message, ToolCall, as_message, freeze

light = settings(deadline=None, max_examples=60)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text("abcdé_-. \n", min_size=1, max_size=6)
numbers = st.integers() | st.integers(-(10**4200), 10**4200) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(ToolCall, names, names, st.dictionaries(texts, json_values, max_size=3))
parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, texts),
    st.builds(lambda data: {"type": "unheard_of", **data}, st.fixed_dictionaries({"x": json_values})),
)
contents = texts | st.lists(parts, min_size=1, max_size=3)
maybe_name = st.none() | names
messages = st.one_of(
    st.builds(Message, st.sampled_from(["system", "user"]), contents, name=maybe_name),
    st.builds(
        Message,
        st.just("assistant"),
        contents,
        thinking=texts,
        tool_calls=st.lists(calls, max_size=3, unique_by=lambda call: call.id).map(tuple),
        name=maybe_name,
    ),
    st.builds(Message, st.just("tool"), contents, tool_call_id=names, name=maybe_name),
)


def exact(value: Any) -> str:
    """A text that also tells 1 from 1.0 and True, which compare equal."""
    return repr(value)


def call(call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, "weather", arguments)


@light
@given(messages)
def test_a_message_survives_the_openai_shape_exactly(message: Message) -> None:
    back = Message.from_dict(message.to_dict(), unknown_parts="keep")
    assert back == message
    assert exact(back) == exact(message)


@light
@given(st.lists(messages, max_size=4), st.none() | st.just(2))
def test_a_list_of_messages_survives_json_exactly(given_messages: list[Message], indent: int | None) -> None:
    text = Message.list_to_json(given_messages, indent=indent)
    text.encode()
    for source in (text, text.encode()):
        back = Message.list_from_json(source, unknown_parts="keep")
        assert exact(back) == exact(tuple(given_messages))


@light
@given(messages)
def test_a_message_survives_pickle_and_copies_and_can_be_hashed(message: Message) -> None:
    for other in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
        assert exact(other) == exact(message)
        assert hash(other) == hash(message)


@light
@given(messages)
def test_a_dict_is_neither_changed_nor_kept(message: Message) -> None:
    data = message.to_dict()
    before = copy.deepcopy(data)
    taken = as_message(data, unknown_parts="keep")
    assert data == before
    data.clear()
    for part in before["content"] if isinstance(before["content"], list) else ():
        part.clear()
    assert taken == message


def test_the_shape_is_openais() -> None:
    message = Message("assistant", "", thinking="Hm.", tool_calls=(call(city="Ústí", days=[1, 2.0]),))
    assert message.to_dict() == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Ústí", "days": [1, 2.0]}'},
            }
        ],
    }
    result = Message("tool", "21 °C", tool_call_id="c1", name="weather")
    assert result.to_dict() == {"role": "tool", "content": "21 °C", "tool_call_id": "c1", "name": "weather"}
    assert Message("user", "Hi").to_dict() == {"role": "user", "content": "Hi"}


def test_what_could_not_be_read_again_is_refused() -> None:
    for digits in (4_300, 100_000):
        with pytest.raises(ValueError, match="bits is more than JSON"):
            call(n=10**digits)
    written = "1" * 5_000
    with pytest.raises(ValueError, match=r"not JSON|more than JSON"):
        ToolCall.from_dict({"id": "c", "function": {"name": "f", "arguments": f'{{"a": {written}}}'}})


def test_to_dict_gives_plain_values_that_may_be_changed() -> None:
    message = Message("user", [{"type": "text", "text": "a"}])
    data = message.to_dict()
    data["content"][0]["text"] = "b"
    data["content"].append("c")
    assert message.content == ({"type": "text", "text": "a"},)


def test_a_reply_of_openais_client_may_be_given_back() -> None:
    data = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "now", "arguments": ""}}],
    }
    assert Message.from_dict(data) == Message("assistant", "", tool_calls=(ToolCall("x", "now", {}),))


def test_arguments_may_be_a_dict_in_the_shape() -> None:
    data = {"id": "c1", "function": {"name": "weather", "arguments": {"city": "Brno"}}}
    assert ToolCall.from_dict(data) == call(city="Brno")


def test_unknown_parts_are_kept_by_choice() -> None:
    smell = {"type": "smell", "smell": {"of": ["rain"]}}
    kept = as_message({"role": "user", "content": [smell]}, unknown_parts="keep")
    assert kept.to_dict()["content"] == [smell]
    assert as_message(kept, unknown_parts="keep") is kept
    with pytest.raises(ValueError, match="smell"):
        as_message(kept)
    with pytest.raises(ValueError, match='"keep" or "refuse"'):
        as_message(kept, unknown_parts="drop")


def test_a_message_is_given_back_as_it_is() -> None:
    message = Message("user", "Hi")
    assert as_message(message) is message


def test_lists_become_tuples_and_subclasses_become_what_json_has() -> None:
    class Text(str):
        __slots__ = ()

    class Real(float):
        __slots__ = ()

    class Whole(int):
        __slots__ = ()

    assert [type(value) for value in freeze([Text("a"), Real(1), Whole(1), True])] == [str, float, int, bool]

    message = Message(Text("assistant"), Text("Hi"), tool_calls=[call()])
    assert message.tool_calls == (call(),)
    assert type(message.content) is str
    assert type(message.role) is str


def test_importing_the_package_loads_neither_native_code_nor_numpy() -> None:
    program = (
        "import sys, causerie.chat, causerie.chat.validation\n"
        "sys.exit(bool({'numpy', 'causerie._native', 'causerie.llama', 'cffi'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
