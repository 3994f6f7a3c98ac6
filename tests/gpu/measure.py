"""Conversations on one device beside llama-bench on the same one, in turn; prints a table and writes a JSON object."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import causerie
from causerie import models
from causerie.llama import devices

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "programs" / "conversations.py"


def output_of(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def llama_bench(model: str, device: str, tokens: int) -> float:
    """Tokens per second of llama.cpp's own loop, without sampling."""
    where = ["-ngl", 0] if device == "CPU" else ["-ngl", 99, "-dev", device]
    tool = Path(os.environ["CAUSERIE_TOOLS_DIR"]) / "llama-bench"
    found = json.loads(output_of(tool, "-m", model, "-p", 0, "-n", tokens, "-r", 1, *where, "-o", "json"))
    return float(found[0]["avg_ts"])


def ours(what: str, model: str, device: str, tokens: int, *options: object) -> float:
    """Tokens per second of conversations, sampling included."""
    command = [sys.executable, PROGRAM, what, model, "--device", device, "--tokens", tokens, *options]
    return float(json.loads(output_of(*command))["tokens_per_second"])


def main() -> None:
    """Measure in rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model = str(models.resolve(args.model))
    card = next(device for device in devices() if device.name == args.device)
    systems = {
        "llama-bench, one sequence": lambda: llama_bench(model, args.device, args.tokens),
        "one conversation": lambda: ours("stream", model, args.device, args.tokens),
        "8 conversations": lambda: ours("together", model, args.device, args.tokens, "--n", 8),
        "32 conversations": lambda: ours("together", model, args.device, args.tokens, "--n", 32),
        "8 conversations, isolate=True": lambda: ours(
            "together", model, args.device, args.tokens, "--n", 8, "--isolate"
        ),
    }
    rounds = [{name: measure() for name, measure in systems.items()} for _ in range(args.rounds)]
    facts = {
        "device": args.device,
        "card": card.description,
        "memory": card.memory_total,
        "model": Path(model).name,
        "tokens": args.tokens,
        "llama_commit": causerie.build_info().llama_commit,
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rounds": rounds,
    }
    if args.out:
        args.out.write_text(json.dumps(facts, indent=2) + "\n")
    print(f"{card.description} ({args.device}), {Path(model).name}, {args.tokens} tokens, {args.rounds} rounds in turn")
    first = next(iter(systems))
    for name in systems:
        values = [each[name] for each in rounds]
        ratio = statistics.median(each[name] / each[first] for each in rounds)
        print(
            f"{name:32} {statistics.median(values):9.1f} tokens/s ({min(values):.1f} to {max(values):.1f}), x{ratio:.2f}"
        )


if __name__ == "__main__":
    main()
