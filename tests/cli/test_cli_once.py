"""One question, one answer: what goes where, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from cli_command import COMMAND
from lora_files import write_lora_for

from causerie.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

SHORT = ("--temperature", "0", "--max-tokens", "8")
# The prompt begins the thinking, so that a model which was never trained to think does, and does not end it.
THINKS = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and not enable_thinking %}
</think>

{% endif %}{% endif %}"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")


def test_only_the_answer_goes_to_stdout(run: Run) -> None:
    result = run("chat", "Why is the sky blue?", *SHORT)
    assert result.returncode == 0
    assert result.stdout.lower().startswith("the sky")
    assert result.stdout.endswith("\n")
    assert result.stderr in {"", "causerie: note: the answer was cut after 8 tokens (--max-tokens)\n"}


def test_the_question_may_come_on_stdin(run: Run) -> None:
    piped = run("chat", *SHORT, input="Why is the sky\nblue?\n")
    given = run("chat", "Why is the sky\nblue?", *SHORT)
    assert piped.returncode == given.returncode == 0
    assert piped.stdout == given.stdout


def test_a_seed_repeats_an_answer(run: Run) -> None:
    first, second, other = (
        run("chat", "Invent a name.", "--max-tokens", "12", "--temperature", "1.5", "--seed", seed).stdout
        for seed in ("5", "5", "6")
    )
    assert first == second != other


def test_the_system_text_changes_the_answer(run: Run) -> None:
    plain = run("chat", "Who are you?", *SHORT).stdout
    assert run("chat", "Who are you?", "--system", "You are Bob, a pirate.", *SHORT).stdout != plain


def test_a_template_of_ones_own(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n", "utf-8")  # no question
    answers = {run("chat", question, "--template", str(file), *SHORT).stdout for question in ("Why?", "Where?")}
    assert len(answers) == 1
    assert answers.pop().strip()


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), (b"\xff", "is not UTF-8"), (b"{% if %}", "mine.jinja")]
)
def test_a_template_that_cannot_be_used(run: Run, tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "mine.jinja"
    if content is not None:
        file.write_bytes(content)
    result = run("chat", "Why?", "--template", str(file))
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_lora_adapters(run: Run, tmp_path: Path, smollm2_path: Path) -> None:
    file = write_lora_for(smollm2_path, tmp_path / "style.gguf", strength=0.2, rank=8, most=20)
    question = ("chat", "Why is the sea salty?", *SHORT)
    whole, half = run(*question, "--lora", str(file)).stdout, run(*question, "--lora-scaled", f"{file}:0.5").stdout
    assert len({run(*question).stdout, whole, half}) == 3
    for wrong, code in (
        (("--lora", str(tmp_path / "none.gguf")), 1),
        (("--lora-scaled", str(file)), 2),
    ):
        result = run(*question, *wrong)
        assert result.returncode == code
        assert "Traceback" not in result.stderr
        assert wrong[1] in result.stderr
    result = run(*question, "--lora-scaled", f"{file}:1e30")
    assert (result.returncode, result.stderr) == (
        1, "causerie: error: the logits hold NaN or infinity: there is nothing to choose from\n",
    )  # fmt: skip


def test_an_answer_may_think_so_long(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "thinks.jinja"
    file.write_text(THINKS, "utf-8")
    free, short = (
        run("chat", "Is 7 prime?", "--template", str(file), "--temperature", "0", "--max-tokens", "24", *more)
        for more in ((), ("--thinking-budget", "2"))
    )
    assert free.stdout == ""  # it only thinks, and that is no answer
    assert short.stdout.strip()
    thought = short.stderr.splitlines()[0]
    assert 0 < len(thought) < len(free.stderr.strip())
    assert free.stderr.startswith(thought.strip()[:3])


def test_an_argument_that_is_not_utf8_is_no_traceback(run: Run) -> None:
    result = run("chat", os.fsdecode(b"Say \xff hello"), *SHORT)
    assert result.returncode == 0
    assert result.stdout.strip()


def test_a_terminal_that_knows_few_characters_gets_replacements(run: Run) -> None:
    question = "Repeat: žluťoučký kůň"
    result = run("chat", question, *SHORT, env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0


@pytest.mark.parametrize("stdin", ["", " \n"])
def test_no_question_is_wrong_usage(run: Run, stdin: str) -> None:
    result = run("chat", input=stdin)
    assert result.returncode == 2
    assert "the prompt is empty" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chat", "x", "--model", "./missing.gguf"], "no model file at"),
        (["chat", "word " * 400, "--n-ctx", "64"], "shorten it"),
        (["models", "path", "nonsense"], "unknown model"),
        (["models", "remove", "nonsense"], "not cached"),
    ],
)
def test_an_error_is_one_line(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("causerie: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_a_file_that_is_no_model_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_text("hello")
    result = run("chat", "x", "--model", "no.gguf")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


def test_debug_shows_the_traceback(run: Run) -> None:
    result = run("chat", "x", "--model", "./missing.gguf", env={"CAUSERIE_DEBUG": "1"})
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_verbose_shows_the_log_on_stderr(run: Run) -> None:
    result = run("chat", "Hi", *SHORT, "--verbose")
    assert "causerie.cli: Reply(" in result.stderr
    assert "causerie.llama: " in result.stderr
    assert "causerie.llama: " not in result.stdout


def test_verbose_leaves_logging_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("causerie")
    before = (logger.level, list(logger.handlers))
    assert app.main(["-v", "models"]) == 0
    assert (logger.level, logger.handlers) == before


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Run `causerie ARGUMENTS` meanwhile, with pipes for stdout and stderr."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*COMMAND, *arguments], env=environment, cwd=tmp_path, **pipes)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


STORY = ("chat", "Tell me a very long story.", "--temperature", "0", "--max-tokens", "2000")


@posix
def test_the_answer_streams(start: Start) -> None:
    process = start(*STORY)
    first = os.read(process.stdout.fileno(), 10)
    assert first
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=400)


@posix
def test_ctrl_c_keeps_what_was_said_and_ends_with_130(start: Start) -> None:
    process = start(*STORY)
    first = os.read(process.stdout.fileno(), 100)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=400)
    assert process.returncode == 130
    assert len(first + rest) > len(first) > 0
    assert (first + rest).endswith(b"\n")
    assert errors == b""


@posix
def test_ctrl_c_while_the_program_starts_is_silent_too(environment: dict[str, str]) -> None:
    code = "import sys, signal, os; from causerie.cli import main, models\n"
    code += "def interrupted(_): os.kill(os.getpid(), signal.SIGINT)\n"
    code += "models.resolve_model = interrupted; sys.exit(main(['chat', 'x']))"
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"")


@posix
def test_a_reader_that_goes_away_is_no_error(start: Start) -> None:
    process = start(*STORY)
    os.read(process.stdout.fileno(), 5)
    process.stdout.close()
    assert process.wait(timeout=400) == 141
    assert process.stderr.read() == b""


@posix
def test_a_reader_that_was_never_there_is_no_error(start: Start) -> None:
    process = start("doctor")
    process.stdout.close()
    assert process.wait(timeout=400) == 141
    assert process.stderr.read() == b""
