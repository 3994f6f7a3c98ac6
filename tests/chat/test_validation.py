"""Which message may follow which, and histories cut at turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat import Message, ToolCall
from causerie.chat.validation import (
    Turns,
    append,
    check_append,
    check_messages,
    check_respond,
    drop_turns,
    edit,
    open_calls,
    split_turns,
)
from causerie.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

SYSTEM = Message("system", "Be brief.")
HI = Message("user", "Hi")
HELLO = Message("assistant", "Hello.")


def asks(*ids: str) -> Message:
    return Message("assistant", "", tool_calls=tuple(ToolCall(i, "f", {}) for i in ids))


def result(call_id: str) -> Message:
    return Message("tool", "done", tool_call_id=call_id)


def refusal(check: Callable[[], None]) -> type | None:
    try:
        check()
    except (ValueError, ToolError) as error:
        return type(error)
    return None


steps = st.one_of(
    st.sampled_from([SYSTEM, HI, HELLO]),
    st.builds(asks, st.sampled_from("abc")),
    st.builds(asks, st.just("a"), st.just("b")),
    st.builds(result, st.sampled_from("abc")),
)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [SYSTEM, HI, HELLO],
        [HELLO, HI],
        [HI, HI, HELLO, HELLO],
        [HI, asks("a", "b"), result("b"), result("a"), HELLO],
        [HI, asks("a"), result("a"), asks("a"), result("a")],
        [HI, asks("a", "b"), result("a"), HELLO, result("b")],
        [HI, asks("a"), HI, asks("a"), result("a")],
    ],
)
def test_accepted(history: list[Message]) -> None:
    check_messages(history)
    assert append((), *history) == tuple(history)


@pytest.mark.parametrize(
    ("history", "wrong", "kind", "said"),
    [
        ([HI], SYSTEM, ValueError, "must be the first"),
        ([SYSTEM], SYSTEM, ValueError, "must be the first"),
        ([], result("a"), ToolError, "'a' is not of this turn .*: none"),
        ([HI, asks("b")], result("a"), ToolError, "'a' is not of this turn .*: 'b'"),
        ([HI, asks("a", "b"), result("a")], result("a"), ToolError, "'a' has been answered already .*: 'b'"),
        ([HI, asks("a"), HI], result("a"), ToolError, "not of this turn"),
        ([HI, asks("a"), result("a"), HI], result("a"), ToolError, "not of this turn"),
        ([HI, asks("a")], asks("a"), ValueError, "'a' is in use"),
    ],
)
def test_refused(history: list[Message], wrong: Message, kind: Any, said: str) -> None:
    check_messages(history)
    before = list(history)
    with pytest.raises(kind, match=said):
        check_append(history, wrong)
    with pytest.raises(kind, match=said):
        append(history, HELLO, wrong)
    assert history == before
    with pytest.raises(kind, match=f"message {len(history)}: .*{said}"):
        check_messages([*history, wrong])


def test_a_refused_result_tells_its_facts() -> None:
    with pytest.raises(ToolError) as caught:
        check_append([HI, asks("a", "b")], result("x"))
    assert caught.value.call_id == "x"
    assert caught.value.open_ids == ("a", "b")


@settings(deadline=None, max_examples=150)
@given(st.lists(steps, max_size=10))
def test_checking_one_by_one_is_checking_all(history: list[Message]) -> None:
    def one_by_one() -> None:
        for index, message in enumerate(history):
            check_append(history[:index], message)

    assert refusal(one_by_one) == refusal(lambda: check_messages(history))


def test_open_calls_are_those_that_wait() -> None:
    assert [call.id for call in open_calls([HI, asks("a", "b", "c"), result("b")])] == ["a", "c"]
    assert open_calls([HI, asks("a"), HI]) == ()
    assert open_calls([]) == ()


@pytest.mark.parametrize("history", [[SYSTEM, HI], [HI, asks("a"), result("a")]])
def test_a_user_or_a_tool_can_be_responded_to(history: list[Message]) -> None:
    check_respond(history)


@pytest.mark.parametrize("history", [[], [SYSTEM], [HI, HELLO]])
def test_nobody_else_can_be_responded_to(history: list[Message]) -> None:
    with pytest.raises(ValueError, match="first"):
        check_respond(history)


def test_a_turn_is_a_user_message_with_all_that_answers_it() -> None:
    tools = (HI, asks("a"), result("a"), HELLO)
    assert split_turns([SYSTEM, HELLO, HI, *tools]) == Turns((SYSTEM, HELLO), ((HI,), tools))
    assert split_turns([SYSTEM]) == Turns((SYSTEM,), ())
    assert split_turns([]) == Turns((), ())


def test_examples_may_belong_to_the_head() -> None:
    examples = (SYSTEM, HI, HELLO)
    assert split_turns((*examples, HI), keep=3) == Turns(examples, ((HI,),))
    assert split_turns(examples, keep=3) == Turns(examples, ())
    for keep in (-1, 4):
        with pytest.raises(ValueError, match="keep"):
            split_turns(examples, keep=keep)


def test_turns_are_dropped_from_either_end() -> None:
    first, second = Message("user", "1"), Message("user", "2")
    history = (SYSTEM, HI, HELLO, first, HELLO, second)
    assert drop_turns(history, keep=3) == (SYSTEM, HI, HELLO, first, HELLO)
    assert drop_turns(history, 2, keep=3) == (SYSTEM, HI, HELLO)
    assert drop_turns(history, oldest=True, keep=3) == (SYSTEM, HI, HELLO, second)
    assert drop_turns(history, 0) == history
    assert drop_turns(history, 3) == (SYSTEM,)
    for n in (-1, 4):
        with pytest.raises(ValueError, match="has 3"):
            drop_turns(history, n)


@settings(deadline=None, max_examples=150)
@given(st.lists(steps, max_size=12), st.data())
def test_dropping_turns_keeps_a_right_history_right(drawn: list[Message], data: st.DataObject) -> None:
    history: tuple[Message, ...] = ()
    for message in drawn:
        if refusal(lambda new=message, old=history: check_append(old, new)) is None:
            history = append(history, message)
    turns = split_turns(history)
    assert turns.messages == history
    assert all(turn[0].role == "user" for turn in turns.turns)
    count = len(turns.turns)
    dropped = data.draw(st.integers(0, count))
    rest = drop_turns(history, dropped, oldest=data.draw(st.booleans()))
    check_messages(rest)
    assert len(split_turns(rest).turns) == count - dropped


def test_an_edit_replaces_one_message_and_drops_what_follows() -> None:
    history = (SYSTEM, HI, HELLO, HI)
    assert edit(history, 1, "Bye") == (SYSTEM, Message("user", "Bye"))
    assert edit(history, -2, "Bye.") == (SYSTEM, HI, Message("assistant", "Bye."))
    assert history == (SYSTEM, HI, HELLO, HI)


def test_an_edit_keeps_who_speaks_and_drops_thinking_and_calls() -> None:
    thought = Message("assistant", "", thinking="Hm.", tool_calls=asks("a").tool_calls, name="Ada")
    assert edit((HI, thought), 1, "No.")[1] == Message("assistant", "No.", name="Ada")
    assert edit((HI, asks("a"), result("a")), 2, "x")[2] == Message("tool", "x", tool_call_id="a")


def test_a_wrong_edit_is_refused() -> None:
    for index in (2, -3):
        with pytest.raises(IndexError, match="has 2"):
            edit((HI, HELLO), index, "")
    with pytest.raises(IndexError):
        edit((), 0, "")
    for content in (None, 5):
        with pytest.raises(TypeError):
            edit((HI,), 0, content)
    with pytest.raises(ValueError, match="smell"):
        edit((HI,), 0, [{"type": "smell"}])
    assert edit((HI,), 0, [{"type": "smell"}], unknown_parts="keep")[0].content == ({"type": "smell"},)


def test_an_append_does_not_look_at_earlier_turns() -> None:
    class Watched(list[Message]):
        seen = 0

        def __getitem__(self, key: Any) -> Any:
            self.seen += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
            return super().__getitem__(key)

    history = Watched([HI, HELLO] * 1000 + [HI, asks("a")])
    check_append(history, result("a"))
    check_append(history, HI)
    assert history.seen < 10
