"""What conversations cost with several options of the engine, and against themselves; figures: docs/engine.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = Path(__file__).parent / "programs"
THREADS = 2
TOKENS = 128
PROMPT = 40
SHARED = 520


def output_of(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def ours(model_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs one measurement of ours in a process of its own."""

    def run(what: str, *options: object) -> dict[str, Any]:
        return json.loads(output_of(sys.executable, PROGRAMS / "conversations.py", what, model_path, *options))

    return run


@pytest.fixture(scope="module")
def batched_bench(model_path: Path, tools_dir: Path) -> Callable[..., dict[str, Any]]:
    """llama-batched-bench: prompts and answers of so many sequences, without sampling."""

    def run(n: int, prompt: int, *options: object) -> dict[str, Any]:
        text = output_of(
            tools_dir / "llama-batched-bench", "-m", model_path, "-c", 8192, "-b", 2048, "-ub", 512,
            "-t", THREADS, "-tb", THREADS, "-npp", prompt, "-ntg", TOKENS, "-npl", n, "--output-format", "jsonl",
            *options,
        )  # fmt: skip
        return json.loads(next(line for line in text.splitlines() if line.startswith("{")))

    return run


@pytest.mark.parametrize("depth", ["from the start", "behind the prompt"])
@pytest.mark.parametrize("sampling", ["greedy", "default"])
def test_one_conversation_against_llama_bench(
    compare: Callable[..., float],
    ours: Callable[..., Any],
    model_path: Path,
    tools_dir: Path,
    sampling: str,
    depth: str,
) -> None:
    """Bar: 0.97 of tg128, streaming, sampling included.

    Attention costs more with every token before, and a conversation has a prompt: llama-bench's own figure is lower
    behind as many tokens, which is the fair comparison.
    """
    before = PROMPT if depth == "behind the prompt" else 0

    def reference() -> float:
        text = output_of(
            tools_dir / "llama-bench", "-m", model_path, "-p", 0, "-n", TOKENS, "-d", before, "-r", 1, "-t", THREADS,
            "-o", "json",
        )  # fmt: skip
        return float(json.loads(text)[0]["avg_ts"])

    compare(lambda: ours("stream", "--sampling", sampling)["tokens_per_second"], reference, unit="tokens/s", rounds=7)


@pytest.mark.parametrize("cells", ["unified", "separate"])
@pytest.mark.parametrize("n", [1, 8, 16])
def test_together_against_batched_bench(
    compare: Callable[..., float], ours: Callable[..., Any], batched_bench: Callable[..., Any], n: int, cells: str
) -> None:
    """Bar: 1.0 of the output from start to end, with 8 and 16 conversations."""
    options = ["--separate"] if cells == "separate" else []
    compare(
        lambda: ours("together", "--n", n, *options)["tokens_per_second"],
        lambda: n * TOKENS / batched_bench(n, PROMPT)["t"],
        unit="tokens/s",
        rounds=5,
    )


@pytest.mark.parametrize("ubatch", ["default", 512])
def test_shared_prompt_against_batched_bench(
    compare: Callable[..., float], ours: Callable[..., Any], batched_bench: Callable[..., Any], ubatch: int | str
) -> None:
    """Bar: 0.97 of llama-batched-bench with a shared prompt (seconds: 1.03 of its).

    Conversations have questions of their own, for which llama-batched-bench has no option: its shared prompt is longer
    by as many tokens. It computes 512 tokens at once, the engine 48 by default, for the sake of equal logits.
    """
    options = ["--n", 8, "--shared", SHARED, *([] if ubatch == "default" else ["--ubatch", ubatch])]
    prompt = round(ours("together", *options)["evaluated_prompt"])
    compare(
        lambda: ours("together", *options)["seconds"],
        lambda: batched_bench(8, prompt, "-pps", "-kvu")["t"],
        unit="s",
        rounds=5,
    )


@pytest.mark.parametrize("n", [1, 8])
def test_a_process_of_its_own_against_the_programs(
    compare: Callable[..., float], ours: Callable[..., Any], n: int
) -> None:
    """What isolate=True costs; figures: docs/backends.md."""
    compare(
        lambda: ours("together", "--n", n, "--isolate")["tokens_per_second"],
        lambda: ours("together", "--n", n)["tokens_per_second"],
        unit="tokens/s",
        rounds=7,
    )


@pytest.mark.parametrize("n", [1, 4])
def test_gap_while_a_long_prompt_comes_in(ours: Callable[..., Any], benchmark: Any, n: int) -> None:
    """Bar: the 99th percentile at most 3 times that without it."""
    found = [ours("gaps", "--n", n, "--prompt", 4000) for _ in range(3)]
    alone = ours("gaps", "--n", n, "--prompt", 4000, "--stretch", 1e9)
    benchmark.pedantic(lambda: None)
    benchmark.extra_info.update(gaps=found, without_budget=alone)
    for each in [*found, alone]:
        print({key: round(value, 2) for key, value in each.items()})


def test_turns(ours: Callable[..., Any], benchmark: Any) -> None:
    """Each turn evaluates its own tokens only."""
    rows = ours("turns", "--n", 8, "--tokens", 100)["turns"]
    benchmark.pedantic(lambda: None)
    benchmark.extra_info.update(turns=rows)
    for row in rows:
        print(row)


def test_fork_of_2000_tokens(ours: Callable[..., Any], benchmark: Any) -> None:
    """Bar: under 1 ms, no new cells."""
    found = ours("fork", "--prompt", 1800)
    benchmark.pedantic(lambda: None)
    benchmark.extra_info.update(found)
    print(found)


def test_a_turn_of_one_of_1000_conversations(ours: Callable[..., Any], benchmark: Any) -> None:
    """Parked in RAM against evaluated again."""
    parked = ours("many", "--n", 1000, "--prompt", 200, "--parking", 16 << 30)
    again = ours("many", "--n", 1000, "--prompt", 200, "--parking", 0)
    benchmark.pedantic(lambda: None)
    benchmark.extra_info.update(parked=parked, again=again)
    print(parked, again, sep="\n")
