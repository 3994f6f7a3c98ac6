"""The chat in a real terminal: answers that Ctrl-C stops, commands, and how to leave."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from cli_command import COMMAND

pexpect = pytest.importorskip("pexpect", reason="pexpect does not run here")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals of POSIX"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

ENTER, ALT_ENTER, CTRL_C, CTRL_D = "\r", "\x1b\r", "\x03", "\x04"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """A chat in a pseudo-terminal."""

    def __init__(self, child: pexpect.spawn) -> None:
        self.child = child

    def wait(self, pattern: str) -> str:
        """Wait for a pattern; returns the plain text up to its end."""
        self.child.expect(pattern)
        return _ESCAPES.sub("", self.child.before + self.child.after)

    def ready(self) -> str:
        """Wait for the prompt; returns the plain text before it."""
        # prompt_toolkit turns bracketed paste on when it starts to read.
        return self.wait(r"\x1b\[\?2004h.*?\x1b\[\?25h")  # and shows the cursor when it has drawn

    def enter(self, text: str) -> str:
        """Enter a line; returns what is printed until the next prompt."""
        self.child.send(text + ENTER)
        self.wait(r"\x1b\[\?2004l")
        return self.ready()

    def interrupt(self) -> None:
        """What the terminal's driver does for Ctrl-C while nobody edits a line."""
        self.child.send(CTRL_C)

    def end(self) -> int:
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(environment: dict[str, str], tmp_path: Path) -> Iterator[Open]:
    children = []

    def open_(*options: str, max_tokens: int = 8) -> Terminal:
        child = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], "chat", "--temperature", "0", "--max-tokens", str(max_tokens), *options],
            env=environment,
            cwd=str(tmp_path),
            encoding="utf-8",
            timeout=400,
            dimensions=(40, 120),
        )
        children.append(child)
        return Terminal(child)

    yield open_
    for child in children:
        child.close(force=True)


def saved(terminal: Terminal, tmp_path: Path) -> list[dict[str, str]]:
    terminal.enter("/save talk.json")
    return json.loads((tmp_path / "talk.json").read_text("utf-8"))["messages"]


def test_a_conversation_from_the_first_question_to_the_last_line(terminal: Open, tmp_path: Path) -> None:
    chat = terminal("--system", "You are helpful.")
    assert "smollm2, 4096 tokens of context" in chat.ready()
    assert "sky" in chat.enter("Why is the sky blue?")
    assert "Unknown command /nonsense: /help lists" in chat.enter("/nonsense")
    assert "/save PATH" in chat.enter("/help")
    chat.enter("first line" + ALT_ENTER + "second line")
    assert [m["role"] for m in saved(chat, tmp_path)] == ["system", "user", "assistant", "user", "assistant"]
    assert saved(chat, tmp_path)[3]["content"] == "first line\nsecond line"
    chat.enter("/system You are a pirate.")
    assert "You are a pirate." in chat.enter("/system")
    chat.enter("/reset")
    assert saved(chat, tmp_path) == [{"role": "system", "content": "You are a pirate."}]
    assert f"Saved to {tmp_path}/talk.md" in chat.enter("/save talk.md")
    assert (tmp_path / "talk.md").read_text("utf-8").startswith("# Conversation with smollm2")
    chat.child.send(CTRL_D)
    assert chat.end() == 0


def test_ctrl_c_stops_the_answer_and_the_next_question_works(terminal: Open, tmp_path: Path) -> None:
    chat = terminal(max_tokens=400)
    chat.ready()
    chat.child.send("Tell me a very long story." + ENTER)
    chat.wait(r"\x1b\[\?2004l")
    chat.wait("[a-z]+ [a-z]+ [a-z]+ ")
    chat.interrupt()
    assert "[stopped]" in chat.ready()
    assert "[stopped]" not in chat.enter("Why is the sky blue? Answer with one word.")
    messages = saved(chat, tmp_path)
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    assert messages[1]["finish_reason"] == "cancelled"
    assert messages[1]["content"]
    chat.child.send("/quit" + ENTER)
    assert chat.end() == 0


def test_ctrl_c_at_the_prompt_ends_nothing(terminal: Open) -> None:
    chat = terminal()
    chat.ready()
    chat.child.send(CTRL_C)
    assert "Ctrl-D or /quit leaves." in chat.ready()
    chat.child.send("half a quest" + CTRL_C)
    assert "sky" in chat.enter("Why is the sky blue?")
    chat.child.send(CTRL_D)
    assert chat.end() == 0


def test_tab_completes_a_command(terminal: Open) -> None:
    chat = terminal()
    chat.ready()
    chat.child.send("/hel\t")
    chat.wait("/hel")
    chat.wait("p")
    assert "/save PATH" in chat.enter("")


def test_pasted_lines_are_one_question(terminal: Open, tmp_path: Path) -> None:
    chat = terminal()
    chat.ready()
    chat.enter("\x1b[200~one\ntwo\nthree\x1b[201~")
    assert saved(chat, tmp_path)[0]["content"] == "one\ntwo\nthree"


def test_ctrl_c_stops_regen_and_the_program_goes_on(terminal: Open, tmp_path: Path) -> None:
    chat = terminal("--temperature", "1", "--seed", "1", max_tokens=400)
    chat.ready()
    for line in ("Tell me a very long story.", "/regen"):
        chat.child.send(line + ENTER)
        chat.wait(r"\x1b\[\?2004l")
        chat.wait("[a-z]+ [a-z]+ [a-z]+ ")
        chat.interrupt()
        assert "[stopped]" in chat.ready()
    messages = saved(chat, tmp_path)
    assert [m["role"] for m in messages] == ["user", "assistant"]
    assert messages[1]["finish_reason"] == "cancelled"


def test_branches_are_taken_and_left_by_their_numbers(terminal: Open, tmp_path: Path) -> None:
    chat = terminal()
    assert "\n>" in chat.ready()
    chat.enter("Why is the sky blue?")
    trunk = saved(chat, tmp_path)
    said = chat.enter("/fork")
    assert "This is branch 2, a copy of branch 1" in said
    assert "\n2>" in said
    chat.enter("And the sea?")
    chat.enter("/edit What about lakes?")
    assert [m["content"] for m in saved(chat, tmp_path)][2] == "What about lakes?"
    assert "branch 2  ====" in chat.enter("/cache")
    assert "\n1>" in chat.enter("/branch 1")
    assert saved(chat, tmp_path) == trunk
    assert "There is no branch 3" in chat.enter("/branch 3")
    assert "tokens/s" in chat.enter("/stats")
    assert "Took back 1 question" in chat.enter("/rewind")
    assert "Cannot take back 1 question of 0." in chat.enter("/rewind")
    assert "There is no answer yet" in chat.enter("/regen")
    chat.child.send("/quit" + ENTER)
    assert chat.end() == 0


def test_the_oldest_questions_make_room_for_new_ones(terminal: Open) -> None:
    chat = terminal("--n-ctx", "256", max_tokens=60)
    chat.ready()
    for _ in range(8):
        if "dropped" in (told := chat.enter("Tell me more about the sea and about all the ships on it, please.")):
            break
    assert "[the context is full: the oldest " in told


def test_a_full_context_is_told_and_reset_helps(terminal: Open) -> None:
    chat = terminal("--n-ctx", "256", "--overflow", "error", max_tokens=60)
    chat.ready()
    told = ""
    for _ in range(12):
        told = chat.enter("Tell me more about the sea and about all the ships that sail on it, please.")
        if "/reset" in told:
            break
    assert "(/reset starts over)" in told
    chat.enter("/reset")
    assert "sky" in chat.enter("Why is the sky blue?")


def test_inputs_are_kept_in_a_private_file(terminal: Open, tmp_path: Path) -> None:
    chat = terminal()
    chat.ready()
    chat.enter("/help me")
    chat.child.send(CTRL_D)
    assert chat.end() == 0
    history = tmp_path / "data" / "causerie" / "history"
    assert "+/help me" in history.read_text("utf-8")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    again = terminal()
    again.ready()
    again.child.send("\x1b[A")
    again.wait("/help me")
    again.child.send(ENTER)
    assert "/save PATH" in again.ready()


def test_without_prompt_toolkit_it_says_what_to_install(environment: dict[str, str], tmp_path: Path) -> None:
    code = "import sys; sys.modules['prompt_toolkit'] = None; from causerie.cli import main; sys.exit(main(['chat']))"
    child = pexpect.spawn(sys.executable, ["-c", code], env=environment, encoding="utf-8", timeout=300)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert child.before.count("\n") == 1
    assert 'pip install "causerie[cli]"' in child.before


def test_a_terminal_for_stdin_alone_is_read_to_its_end(environment: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [*COMMAND, "chat", "--temperature", "0", "--max-tokens", "8"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    os.write(ours, b"Why is the sky blue?\n\x04")
    out, _ = process.communicate(timeout=400)
    os.close(ours)
    assert process.returncode == 0
    assert out.lower().startswith(b"the sky")
