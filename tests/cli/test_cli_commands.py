"""The commands of the chat, with the real model: what each does to the conversation, and what it says if it cannot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from causerie.cli.commands import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Chat, Open

SKY, SEA = "Why is the sky blue?", "Name a sea."


def test_help_lists_every_command(chat: Chat) -> None:
    said = chat.run("/help")
    assert [line.split()[0] for line in said[:-1]] == list(COMMANDS)


def test_every_listed_command_exists_and_none_fails_on_an_empty_conversation(chat: Chat) -> None:
    for name in COMMANDS:
        said = chat.run(name)
        assert said or name == "/quit"
        assert not any("Unknown" in line for line in said)


def test_an_unknown_command_gets_a_hint(chat: Chat) -> None:
    assert chat.run("/nonsense x") == ["Unknown command /nonsense: /help lists the commands."]


def test_quit_leaves(chat: Chat) -> None:
    assert not chat.commands.run("/quit", "")
    assert not chat.commands.run("/exit", "")


# ---- what was said ----


def test_messages_are_numbered_from_one_whether_there_is_a_system_text_or_not(open_chat: Open) -> None:
    for system in (None, "Be brief."):
        chat = open_chat(system=system)
        assert chat.run("/messages") == ["Nothing was said yet."]
        chat.run("Two\nlines")
        first, second = chat.run("/messages")
        assert first == "  1 user:      Two lines"
        assert second.startswith("  2 assistant: ")


def test_rewind_takes_questions_back_with_their_answers(chat: Chat) -> None:
    for question in (SKY, SEA, SKY):
        chat.run(question)
    assert chat.run("/rewind") == [f"Took back 1 question; the last one is now: {SEA}"]
    assert chat.run("/rewind 2") == ["Took back 2 questions; none is left."]
    assert chat.contents == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/rewind 2", "Cannot take back 2 questions of 1."),
        ("/rewind 0", "Usage: /rewind [N]"),
        ("/rewind -1", "Usage: /rewind [N]"),
        ("/rewind all", "Usage: /rewind [N]"),
        ("/rewind 99999999999999999999", "Usage: /rewind [N]"),
        ("/edit", "Usage: /edit [N] TEXT"),
        ("/edit 1", "Usage: /edit [N] TEXT"),
        ("/edit 3 text", "There is no message 3: /messages lists them."),
        ("/edit 0 text", "There is no message 0: /messages lists them."),
        ("/branch 2", "There is no branch 2: /branch lists them, /fork makes one."),
        ("/branch x", "Usage: /branch [N]"),
        ("/save", "Usage: /save PATH"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(open_chat: Open, line: str, said: str) -> None:
    chat = open_chat(system="Be brief.", max_tokens=2)
    chat.run(SKY)
    before = chat.contents
    assert chat.run(line) == [said]
    assert chat.contents == before
    assert list(chat.branches.all) == [1]


def test_nothing_can_be_taken_back_or_done_anew_before_there_is_something(chat: Chat) -> None:
    assert chat.run("/rewind") == ["Cannot take back 1 question of 0."]
    assert chat.run("/regen") == ["There is no answer yet that could be given anew."]
    assert chat.run("/resume") == ["There is no answer yet that could go on."]
    assert chat.run("/edit something else") == ["There is no question yet that could be edited."]


def test_regen_gives_another_answer_in_place_of_the_last(open_chat: Open) -> None:
    chat = open_chat(temperature=1.5, seed=1)
    chat.run(SKY)
    first = chat.answer
    chat.run("/regen")
    assert chat.answer != first
    assert chat.contents == [SKY, chat.answer]


def test_regen_says_that_the_likeliest_answer_is_always_the_same(chat: Chat) -> None:
    chat.run(SKY)
    assert "[the same answer again: a higher --temperature gives others]" in chat.run("/regen")


def test_a_seed_repeats_a_conversation_with_all_its_answers(open_chat: Open) -> None:
    answers = []
    for seed in (7, 7, 8):
        chat = open_chat(temperature=1.5, seed=seed)
        said = []
        for line in (SKY, "/regen", SEA):
            chat.run(line)
            said.append(chat.answer)
        answers.append(said)
    assert answers[0] == answers[1] != answers[2]


def test_edit_asks_the_last_question_in_other_words(chat: Chat) -> None:
    chat.run(SKY)
    chat.run(SEA)
    kept = chat.contents[:2]
    chat.run("/edit Name a\nbird.")
    assert chat.contents == [*kept, "Name a\nbird.", chat.answer]


def test_edit_with_a_number_drops_what_came_behind(open_chat: Open) -> None:
    chat = open_chat(system="Be brief.")
    chat.run(SKY)
    chat.run(SEA)
    chat.run("/edit 1 Name a bird.")
    assert chat.contents == ["Be brief.", "Name a bird.", chat.answer]
    straight = open_chat(system="Be brief.")
    straight.run("Name a bird.")
    assert straight.answer == chat.answer


def test_an_edited_answer_stands_and_can_be_resumed(chat: Chat) -> None:
    chat.run(SKY)
    chat.run(SEA)
    assert "The answer is replaced" in chat.run("/edit 2 The sky is")[0]
    assert chat.contents == [SKY, "The sky is"]
    chat.run("/resume")
    assert chat.answer.startswith("...")
    assert chat.contents == [SKY, "The sky is" + chat.answer[3:]]


def test_resume_goes_on_with_a_cut_answer(open_chat: Open) -> None:
    chat, whole = open_chat(max_tokens=6), open_chat(max_tokens=12)
    assert chat.run(SKY) == ["[the answer was cut after 6 tokens (--max-tokens)]"]
    chat.run("/resume")
    whole.run(SKY)
    assert chat.contents == whole.contents


def test_resume_may_find_nothing_to_add(open_chat: Open) -> None:
    chat = open_chat(max_tokens=200)
    chat.run("Say yes.")
    assert "[the model has nothing to add]" in chat.run("/resume")


def test_system_shows_and_sets(chat: Chat) -> None:
    assert "no system text" in chat.run("/system")[0]
    chat.run("/system  Be brief. ")
    assert chat.run("/system") == ["Be brief."]


def test_a_new_system_text_keeps_what_was_said_in_this_branch_and_changes_no_other(open_chat: Open) -> None:
    chat = open_chat(system="You are a cook.")
    chat.run(SKY)
    chat.run("/fork")
    chat.run(SEA)
    said = chat.contents[1:]
    chat.run("/system You are Bob, a pirate.")
    assert chat.branches.current.number == 2
    assert chat.contents == ["You are Bob, a pirate.", *said]
    chat.run("/rewind 2")
    chat.run("Who are you?")
    fresh = open_chat(system="You are Bob, a pirate.")
    fresh.run("Who are you?")
    assert chat.answer == fresh.answer
    chat.run("/branch 1")
    assert chat.contents == ["You are a cook.", *said[:2]]
    assert chat.run("/system") == ["You are a cook."]


def test_reset_forgets_what_was_said_and_keeps_the_system_text(open_chat: Open) -> None:
    chat = open_chat(system="Be brief.")
    chat.run(SKY)
    before = chat.answer
    chat.run("/reset")
    assert chat.contents == ["Be brief."]
    chat.run(SKY)
    assert chat.answer == before


def test_save_says_where_or_why_not(chat: Chat, tmp_path: Path) -> None:
    assert chat.run(f"/save {tmp_path / 'a b.md'}") == [f"Saved to {tmp_path / 'a b.md'}"]
    for bad in (str(tmp_path), str(tmp_path / "no" / "folder.md"), "a\0b", "~nobody-of-that-name/x"):
        assert chat.run(f"/save {bad}")[0].startswith("Not saved: ")
    assert [path.name for path in tmp_path.iterdir()] == ["a b.md"]


# ---- branches ----


def test_branches_are_independent_and_share_what_they_have_in_common(chat: Chat) -> None:
    chat.run(SKY)
    trunk = chat.contents
    assert chat.run("/fork") == ["This is branch 2, a copy of branch 1; /branch 1 goes back."]
    chat.run(SEA)
    assert chat.run("/branch 1") == [f"This is branch 1: {SKY}"]
    assert chat.contents == trunk
    chat.run("Name a bird.")
    first, second = chat.run("/branch")
    assert first.split() == ["*", "1", "2", "questions", "Name", "a", "bird."]
    assert second.split() == ["2", "2", "questions", "Name", "a", "sea."]
    chat.run("/branch 2")
    assert chat.contents == [*trunk, SEA, chat.contents[-1]]


def test_branches_are_numbered_on_wherever_they_begin(chat: Chat) -> None:
    chat.run("/fork")
    chat.run("/branch 1")
    assert chat.run("/fork") == ["This is branch 3, a copy of branch 1; /branch 1 goes back."]
    assert list(chat.branches.all) == [1, 2, 3]


def test_an_answer_in_a_branch_is_that_of_a_fresh_conversation(open_chat: Open) -> None:
    chat, straight = open_chat(), open_chat()
    chat.run(SKY)
    chat.run("/fork")
    chat.run("/rewind")
    chat.run(SEA)
    straight.run(SEA)
    assert chat.answer == straight.answer


# ---- figures ----


def test_stats_tell_about_the_last_answer_and_the_cache(chat: Chat) -> None:
    assert chat.run("/stats")[0] == "There is no answer in this branch yet."
    chat.run(SKY)
    chat.run(SEA)
    said = chat.run("/stats")
    report = chat.branches.current.conversation.report
    assert report is not None
    titles = ["last answer", "its prompt", "first token", "context", "cache", "branches", "so far"]
    assert [line[:13].strip() for line in said] == titles
    assert f" {report.usage.completion_tokens} tokens in " in said[0]
    assert f" {report.usage.cached_tokens} were in the cache" in said[1]
    assert " of 1024 tokens" in said[3]


def test_cache_shows_what_the_branches_share(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert chat.run("/cache") == ["1024 cells: 0 used, 0 of them shared; 1024 free."]
    chat.run(SKY)
    chat.run("/fork")
    chat.run(SEA)
    said = chat.run("/cache")
    lanes = {line[:8]: line[10:] for line in said if line.startswith("branch")}
    assert list(lanes) == ["branch 1", "branch 2"]
    assert "=" in lanes["branch 1"]
    assert "#" not in lanes["branch 1"]
    assert "=" in lanes["branch 2"]
    assert "#" in lanes["branch 2"]
    assert all(len(line) <= 60 for line in said[:3])


def test_the_cache_names_a_branch_the_same_after_its_conversation_was_replaced(chat: Chat) -> None:
    chat.run(SKY)
    chat.run("/fork")
    for line in (SEA, "/regen", "/edit Name a bird.", "/system Be brief.", SKY):
        chat.run(line)
    names = {entry.name for entry in chat.branches.engine.cache_map().entries if entry.owned}
    assert names == {"branch 1", "branch 2"}


# ---- transcripts ----


def test_a_transcript_says_how_answers_ended(open_chat: Open, tmp_path: Path) -> None:
    chat = open_chat(system="Be brief.", max_tokens=2)
    chat.run(SKY)
    chat.run("/fork")
    chat.run(f"/save {tmp_path / 'talk.json'}")
    messages = json.loads((tmp_path / "talk.json").read_text("utf-8"))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert messages[2]["finish_reason"] == "length"
