"""Answers in the chat: how they are stopped, how they fail, and what becomes of a conversation that no longer fits."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from causerie.cli.replies import overflow_text
from causerie.conversation import Conversation
from causerie.errors import ContextOverflowError, DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Chat, Open

SKY, STORY = "Why is the sky blue?", "Tell me a very long story."
SHIPS = "Tell me more about the sea and about all the ships that sail on it, please."


def interrupt_after(chat: Chat, pieces: int) -> None:
    """Press Ctrl-C when so many pieces of the next answer have come."""

    def press(_: str) -> None:
        if len(chat.written) == pieces:
            signal.raise_signal(signal.SIGINT)

    chat.on_piece = press


def cancelled_at_once(name: str) -> Callable[..., Any]:
    """A method of a conversation that begins an answer, with a Ctrl-C before the first token."""
    begin = getattr(Conversation, name)

    def begin_and_cancel(self: Conversation, *args: object, **options: object) -> object:
        stream = begin(self, *args, **options)
        self.cancel()
        return stream

    return begin_and_cancel


def failing(self: Conversation, *content: str, **_: object) -> None:
    """As an answer that fails in the middle: the question is in the history."""
    if content:
        self.add_user(content[0])
    raise DecodeError("failed", code=-3)


def test_an_answer_is_printed_as_it_comes_and_joins_the_conversation(chat: Chat) -> None:
    chat.run("  Why is the sky blue? ")
    assert len(chat.written) > 2
    assert chat.contents == [SKY, chat.answer]


def test_ctrl_c_stops_the_answer_keeps_what_was_said_and_the_next_question_works(open_chat: Open) -> None:
    chat = open_chat(max_tokens=200)
    interrupt_after(chat, 5)
    assert chat.run(STORY) == [" [stopped]"]
    assert 5 <= len(chat.written) < 20
    assert chat.contents == [STORY, chat.answer]
    assert chat.branches.transcript()[-1].finish_reason == "cancelled"
    chat.on_piece = lambda _: None
    assert "[stopped]" not in chat.run(SKY)
    assert chat.contents[2:] == [SKY, chat.answer]


def test_ctrl_c_does_nothing_else_afterwards(open_chat: Open) -> None:
    chat = open_chat(max_tokens=50)
    before = signal.getsignal(signal.SIGINT)
    interrupt_after(chat, 2)
    chat.run(STORY)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_the_middle_of_regen_keeps_the_new_beginning_in_place_of_the_old_answer(open_chat: Open) -> None:
    chat = open_chat(max_tokens=200, temperature=1.5, seed=3)
    interrupt_after(chat, 8)
    chat.run(STORY)
    old = chat.answer
    interrupt_after(chat, 4)
    assert chat.run("/regen") == [" [stopped]"]
    assert chat.answer != old
    assert chat.contents == [STORY, chat.answer]
    interrupt_after(chat, 9)
    chat.run("Go on.")
    assert chat.contents[2:] == ["Go on.", chat.answer]


def test_stopped_before_it_began_a_question_is_withdrawn(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    chat.run(SKY)
    before = chat.contents
    monkeypatch.setattr(Conversation, "stream", cancelled_at_once("stream"))
    assert chat.run(STORY) == ["[stopped before the answer began: the question is withdrawn]"]
    assert chat.contents == before


@pytest.mark.parametrize(("line", "method"), [("/regen", "stream_regenerate"), ("/edit 1 Hello", "stream_respond")])
def test_stopped_before_it_began_a_change_is_none(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, line: str, method: str
) -> None:
    chat.run(SKY)
    before = chat.contents
    with monkeypatch.context() as patch:
        patch.setattr(Conversation, method, cancelled_at_once(method))
        (said,) = chat.run(line)
    assert said.startswith("[stopped before the answer began: ")
    assert chat.contents == before
    chat.run(line)
    assert chat.contents[1] == chat.answer


@pytest.mark.parametrize(
    ("line", "method"),
    [
        (STORY, "stream"),
        ("/regen", "stream_regenerate"),
        ("/edit 1 Hello", "stream_respond"),
        ("/resume", "stream_resume"),
    ],
)
def test_an_answer_that_fails_leaves_the_conversation_as_it_was(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, line: str, method: str
) -> None:
    chat.run(SKY)
    before = chat.contents
    with monkeypatch.context() as patch:
        patch.setattr(Conversation, method, failing)
        with pytest.raises(DecodeError):
            chat.run(line)
    assert chat.contents == before
    chat.run("Go on.")
    assert chat.contents == [*before, "Go on.", chat.answer]


def test_an_output_that_cannot_be_written_stops_the_answer(open_chat: Open) -> None:
    chat = open_chat(max_tokens=500)

    def fail(_: str) -> None:
        raise BrokenPipeError

    chat.on_piece = fail
    with pytest.raises(BrokenPipeError):
        chat.run(STORY)
    assert not any(thread.name == "causerie answer" for thread in threading.enumerate())


# ---- conversations that no longer fit ----


def test_a_question_that_cannot_fit_is_refused_and_changes_nothing(open_chat: Open) -> None:
    for overflow in ("error", "trim"):
        chat = open_chat(n_ctx=256, overflow=overflow)
        with pytest.raises(ContextOverflowError) as caught:
            chat.run("word " * 400)
        assert caught.value.kind == "too_long"
        assert overflow_text(caught.value).endswith("shorten it, or use a larger --n-ctx")
        assert chat.contents == []


def test_a_conversation_that_grew_too_long_is_refused_where_that_was_asked_for(open_chat: Open) -> None:
    chat = open_chat(n_ctx=256, max_tokens=60)
    with pytest.raises(ContextOverflowError) as caught:
        all(chat.run(SHIPS) is not None for _ in range(12))
    assert caught.value.kind == "full"
    assert "use --overflow trim" in overflow_text(caught.value)
    assert chat.contents[-1] != SHIPS
    chat.run("/reset")
    chat.run(SKY)
    assert chat.contents == [SKY, chat.answer]


def test_the_oldest_questions_make_room_and_transcripts_still_have_them(open_chat: Open) -> None:
    chat = open_chat(n_ctx=256, max_tokens=30, overflow="trim", system="Be brief.")
    everything = ["Be brief."]
    dropped = []
    for number in range(8):
        said = chat.run(f"{SHIPS} {number}")
        everything += [f"{SHIPS} {number}", chat.answer]
        dropped += [line for line in said if "dropped" in line]
    assert (
        dropped[0].startswith("[the context is full: the oldest question was dropped") or "questions were" in dropped[0]
    )
    assert chat.contents[0] == "Be brief."
    assert len(chat.contents) < len(everything)
    assert [entry.content for entry in chat.branches.transcript()] == [text.strip() for text in everything]
    assert "older messages had to make room" in chat.run("/messages")[0]
    chat.run("/fork")
    assert [entry.content for entry in chat.branches.transcript()] == [text.strip() for text in everything]
    chat.run("/reset")
    assert [entry.content for entry in chat.branches.transcript()] == ["Be brief."]


def test_an_answer_that_fills_the_context_says_so(open_chat: Open) -> None:
    chat = open_chat(n_ctx=256, max_tokens=-1)
    said = chat.run("Write the words of this text again. " * 25)
    conversation = chat.branches.current.conversation
    report = conversation.report
    assert report is not None
    if report.finish_reason == "length":
        assert said == ["[the answer was cut: the context of 256 tokens is full (--n-ctx)]"]
