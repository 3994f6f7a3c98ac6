"""A constrained reply that was cut off goes on under its constraint, at its place: also in forks, and when it is met again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import annotated_types as at
import pytest
from talking import Dictation
from tool_cases import SHORT

import causerie
from causerie import Regex, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from causerie import Conversation, Engine, Reply


@dataclass
class City:
    """A city that the model invents."""

    name: Annotated[str, at.MinLen(3), at.MaxLen(8)]
    size: Literal["small", "large"]
    founded: Annotated[int, at.Ge(1), at.Le(1999)]


FREE = {"temperature": 2.0, "top_k": 0, "seed": 3}


def to_the_end(chat: Conversation, **options: Any) -> list[Reply]:
    """Goes on, a few tokens at a time, until the reply is whole."""
    found = [chat.resume(max_tokens=5, **{**FREE, **options})]
    while found[-1].finish_reason == "length":
        found.append(chat.resume(max_tokens=5, **{**FREE, **options}))
        assert len(found) < 40
    return found


def begun(engine: Engine, response_format: Any = City, **options: Any) -> Conversation:
    chat = engine.conversation()
    options = {"max_tokens": 4, **FREE, **options}
    reply = chat.send("Invent a city.", response_format=response_format, **options)
    assert (reply.finish_reason, reply.parsed) == ("length", None)
    return chat


def is_whole(chat: Conversation, last: Reply) -> bool:
    assert last.finish_reason == "stop"
    assert isinstance(last.parsed, City)
    data = json.loads(chat.messages[-1].text)
    return data == {"name": last.parsed.name, "size": last.parsed.size, "founded": last.parsed.founded}


def test_it_goes_on_where_it_was(engine: Engine) -> None:
    chat = begun(engine)
    start = chat.messages[-1].text
    replies = to_the_end(chat)
    assert len(replies) > 1
    assert all(reply.parsed is None for reply in replies[:-1])
    assert is_whole(chat, replies[-1])
    assert chat.messages[-1].text == start + "".join(reply.text for reply in replies)


def test_greedily_it_is_the_reply_that_was_not_cut(engine: Engine) -> None:
    whole = engine.conversation().send("Invent a city.", response_format=City, temperature=0)
    chat = begun(engine, temperature=0)
    assert to_the_end(chat, temperature=0)[-1].parsed == whole.parsed
    assert chat.messages[-1].text == whole.text


def test_forks_go_on_by_themselves(engine: Engine) -> None:
    chat = begun(engine)
    for seed, branch in enumerate(chat.fork(3)):
        assert is_whole(branch, to_the_end(branch, seed=seed)[-1])
    assert is_whole(chat, to_the_end(chat)[-1])


def test_a_rewound_conversation_goes_on_with_what_is_last_again(engine: Engine) -> None:
    chat = begun(engine)
    chat.send("Something else.", temperature=0, max_tokens=3)
    chat.rewind()
    assert is_whole(chat, to_the_end(chat)[-1])


def test_characters_that_were_cut_go_on(engine: Engine) -> None:
    chat = begun(engine, Regex("👩‍🚀🏳️‍🌈{3}漢字"), max_tokens=1)
    while (reply := chat.resume(max_tokens=1)).finish_reason == "length":
        assert len(chat.messages[-1].text) < 40
    assert reply.parsed == chat.messages[-1].text
    assert "\ufffd" not in reply.parsed


def test_thinking_that_was_cut_goes_on_too(engine: Engine) -> None:
    ids = Dictation(engine, "<think>\nHm.\n</think>\n\nyes").ids
    for cut in range(1, len(ids)):
        chat = engine.conversation(template=SHORT)
        first, rest = Dictation(engine, ""), Dictation(engine, "")
        first.ids, rest.ids = ids, ids[cut:]
        options = {"temperature": 0, "thinking": True}
        form = causerie.Choices(["yes", "yellow"])
        chat.send("Yes?", response_format=form, samplers=first, max_tokens=cut, **options)
        reply = chat.resume(samplers=rest, **options)
        assert (reply.parsed, reply.finish_reason) == ("yes", "stop"), cut
        assert chat.messages[-1].text == "yes"


def test_a_whole_reply_has_nothing_to_add(engine: Engine) -> None:
    chat = engine.conversation()
    chat.send("Yes or no?", response_format=causerie.Choices(["yes"]))
    reply = chat.resume()
    assert (reply.text, reply.parsed, reply.finish_reason) == ("", "yes", "stop")


def test_what_is_asked_for_now_holds_for_the_rest_and_is_remembered(engine: Engine) -> None:
    chat = begun(engine)
    start = chat.messages[-1].text
    reply = chat.resume(response_format=Regex("[0-9]{30}!"), max_tokens=6, **FREE)
    assert reply.parsed is None
    while reply.finish_reason == "length":
        reply = chat.resume(max_tokens=6, **FREE)
    assert chat.messages[-1].text == start + reply.parsed
    assert len(reply.parsed) == 31


def test_it_can_be_taken_back(engine: Engine) -> None:
    chat = begun(engine)
    reply = chat.resume(grammar="", samplers=Dictation(engine, "... or not."), temperature=0)
    assert (reply.text, reply.parsed) == ("... or not.", None)


def test_what_a_person_wrote_is_free(engine: Engine) -> None:
    chat = begun(engine)
    chat.edit(len(chat.messages) - 1, "It is")
    reply = chat.resume(temperature=0, max_tokens=3)
    assert reply.parsed is None
    assert not reply.text.startswith("{")


def test_it_never_gives_way_to_tools(engine: Engine) -> None:
    @causerie.tool
    def clock() -> str:
        """Tells the time."""
        return "noon"

    chat = begun(engine)
    with pytest.raises(UnsupportedError, match="cannot both"):
        chat.resume(tools=[clock], tool_format="generic")
    assert is_whole(chat, to_the_end(chat)[-1])


def test_a_saved_one_goes_on(engine: Engine, tmp_path: Path) -> None:
    chat = begun(engine)
    chat.save(tmp_path / "city")
    restored = engine.load_conversation(tmp_path / "city")
    last = to_the_end(restored)[-1]
    assert last.parsed == json.loads(restored.messages[-1].text)  # the type is not saved, its schema is
    assert City(**last.parsed).size in {"small", "large"}
