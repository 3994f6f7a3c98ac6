"""Stop strings: never shown, wherever tokens cut them; and the turn after one is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from talking import Dictation, Oracle, fresh

if TYPE_CHECKING:
    from causerie import Conversation, Engine, Reply

TEXT = "Alpha beta, gamma delta. 漢字 omega!"


def said(engine: Engine, text: str = TEXT, **options: Any) -> tuple[Conversation, Reply, list[str]]:
    """A reply of a text, and its chunks."""
    chat = engine.conversation()
    stream = chat.stream("x", temperature=0, samplers=Dictation(engine, text), **options)
    chunks = [chunk.text for chunk in stream]
    return chat, stream.reply, chunks


def test_at_any_offset_of_a_text(engine: Engine) -> None:
    """Every stop string of five characters, so that tokens cut it everywhere."""
    for start in range(0, len(TEXT) - 5, 2):
        stop = TEXT[start : start + 5]
        chat, reply, chunks = said(engine, stop=stop)
        assert reply.text == "".join(chunks) == TEXT[:start]
        assert (reply.finish_reason, reply.stop) == ("stop", stop)
        assert chat.messages[-1].text == TEXT[:start]


def test_generation_ends_with_the_token_that_completes_it(engine: Engine) -> None:
    _, reply, _ = said(engine, stop="beta")
    whole = said(engine)[1]
    assert reply.usage.completion_tokens < whole.usage.completion_tokens / 2


@pytest.mark.parametrize(
    ("stops", "text", "stop"),
    [
        (["delta", "beta"], "Alpha ", "beta"),
        (["beta, gamma", "gamma"], "Alpha ", "beta, gamma"),
        (["ta, ga", "beta, gamma d"], "Alpha ", "beta, gamma d"),
        (["beta, no", "gamma"], "Alpha beta, ", "gamma"),
        ("漢字", "Alpha beta, gamma delta. ", "漢字"),
        ("Alpha", "", "Alpha"),
    ],
)
def test_the_earliest_of_several_wins(engine: Engine, stops: Any, text: str, stop: str) -> None:
    _, reply, _ = said(engine, stop=stops)
    assert (reply.text, reply.stop) == (text, stop)


def test_held_back_text_is_released(engine: Engine) -> None:
    for stop in ("omega!!", "delta. 漢字 omegb", "gamma delta? "):
        chat, reply, chunks = said(engine, stop=stop)
        assert reply.text == "".join(chunks) == TEXT == chat.messages[-1].text
        assert (reply.finish_reason, reply.stop) == ("stop", None)


def test_also_at_the_end_of_max_tokens_and_at_a_cancel(engine: Engine) -> None:
    reply = said(engine, "one two three", stop="three!", max_tokens=3)[1]
    assert (reply.text, reply.finish_reason) == ("one two three", "length")
    chat = engine.conversation()
    stream = chat.stream("x", temperature=0, stop="one two!", samplers=Dictation(engine, "one two three"))
    assert next(stream).text == "one two three"[: len(stream.turn.candidates[0].reader.content)]
    stream.close()
    assert "one two three".startswith(chat.messages[-1].text)


def test_the_end_of_the_turn_adds_nothing(engine: Engine) -> None:
    chat, reply, _ = said(engine, "Yes.")
    assert (reply.text, reply.finish_reason) == ("Yes.", "stop")
    assert reply.usage.completion_tokens == len(engine.model.vocab.tokenize("Yes.", add_special=False))
    assert chat.render("Why?").count("<|im_end|>") == engine.conversation().render("x").count("<|im_end|>") + 2


def test_an_empty_reply_is_one(engine: Engine, oracle: Oracle) -> None:
    chat, reply, chunks = said(engine, "")
    assert (reply.text, chunks, reply.finish_reason) == ("", [], "stop")
    assert reply.message == chat.messages[-1]
    assert reply.message is not None
    assert reply.message.text == ""
    assert chat.tokenize("y").tolist() == fresh(chat, engine).tokenize("y").tolist()
    prompt = chat.tokenize("y").tolist()
    assert chat.send("y", temperature=0, max_tokens=3).text == oracle.text(prompt, 3)


@pytest.mark.parametrize("stop", ["a, g", "elt", "字 o", "Alpha b"])
def test_the_turn_after_a_stop_inside_of_a_token_is_right(engine: Engine, oracle: Oracle, stop: str) -> None:
    chat, reply, _ = said(engine, stop=stop)
    other = fresh(chat, engine)
    assert chat.render("Next?") == other.render("Next?")
    prompt = chat.tokenize("Next?").tolist()
    next_reply = chat.send("Next?", temperature=0, max_tokens=4)
    assert next_reply.text == oracle.text(prompt, 4)
    assert next_reply.usage.cached_tokens >= reply.usage.prompt_tokens


def test_a_grammar_ends_cleanly(engine: Engine) -> None:
    chat = engine.conversation()
    for temperature in (0, 2):
        reply = chat.send("Is it?", grammar='root ::= "yes"', max_tokens=20, temperature=temperature)
        assert (reply.text, reply.finish_reason) == ("yes", "stop")
        assert reply.usage.completion_tokens < 4


def test_a_stop_string_and_a_transform(engine: Engine) -> None:
    """The stop is looked for in what the model wrote; the transform sees the text before it."""
    from causerie import KeywordRemover

    chat = engine.conversation(output_transform=lambda: KeywordRemover("beta"))
    reply = chat.send("x", temperature=0, samplers=Dictation(engine, TEXT), stop="delta")
    assert reply.text == "Alpha , gamma "
    assert chat.messages[-1].text == "Alpha beta, gamma "
    removed = chat.send("x", temperature=0, samplers=Dictation(engine, TEXT), stop="beta")
    assert (removed.text, removed.stop) == ("Alpha ", "beta")
