"""A conversation as a file for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from causerie import Message
from causerie.conversation import export as module

if TYPE_CHECKING:
    from pathlib import Path

    from causerie import Conversation, Engine


@pytest.fixture
def chat(engine: Engine) -> Conversation:
    examples = [("`a` <b>?", "```\n<b>\n```")]
    return engine.conversation("Be brief.", examples=examples, name="A <talk>")


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("talk.md", None, "# A \\<talk\\>\n\n## System\n\n> Be brief.\n"),
        ("talk.MARKDOWN", None, "# A "),
        ("talk.html", None, "<!DOCTYPE html>"),
        ("talk.htm", None, "<!DOCTYPE html>"),
        ("talk", "html", "<!DOCTYPE html>"),
        ("talk.html", "markdown", "# A "),
    ],
)
def test_the_name_or_the_caller_tells_the_format(
    chat: Conversation, tmp_path: Path, name: str, kind: Any, expected: str
) -> None:
    chat.export(tmp_path / name, kind)
    chat.export(str(tmp_path / name), format=kind)  # over the old one
    assert (tmp_path / name).read_text("utf-8").startswith(expected)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_is_said_is_in_it(chat: Conversation, tmp_path: Path) -> None:
    for name, expected in (
        ("a.md", "> `a` &lt;b>?\n\n## Assistant\n\n> ```\n> <b>\n> ```\n"),
        ("a.html", "<pre><code>&lt;b&gt;</code></pre>"),
    ):
        chat.export(tmp_path / name)
        assert expected in (tmp_path / name).read_text("utf-8")


def test_wrong_formats_write_nothing(chat: Conversation, tmp_path: Path) -> None:
    for name, kind in (("talk", None), ("talk.pdf", None), ("talk.md", "pdf")):
        with pytest.raises(ValueError, match="format"):
            chat.export(tmp_path / name, kind)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_file(chat: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "talk.md"
    path.write_text("old")
    monkeypatch.setattr(module, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        chat.export(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["talk.md"]
    with pytest.raises(FileNotFoundError):
        chat.export(tmp_path / "nowhere" / "talk.md")


def test_a_closed_one_can_still_be_written(chat: Conversation, tmp_path: Path) -> None:
    chat.close()
    chat.export(tmp_path / "a.md")
    assert "Be brief." in (tmp_path / "a.md").read_text()


def test_json_makes_the_same_conversation(chat: Conversation, engine: Engine) -> None:
    chat.add_user("Hi 👩‍🚀")
    text = chat.to_json()
    assert json.loads(text)[0] == {"role": "system", "content": "Be brief."}
    assert json.loads(chat.to_json(indent=2)) == json.loads(text)
    again = engine.conversation(messages=Message.list_from_json(text))
    assert again.messages == chat.messages
    assert again.tokenize().tolist() == chat.tokenize().tolist()
