"""What saving and loading a conversation costs, in turn with copying as many bytes; prints a JSON object."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import causerie

if TYPE_CHECKING:
    from collections.abc import Callable

SENTENCE = "You are a careful storyteller who likes long, detailed stories with many turns and plain words. "
TOKENS_OF_IT = 19
QUESTION = "Where was I?"


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write(path: Path, data: bytes) -> None:
    """A new file that is on the disk before it takes the place of the old one, and whose name is then: as `save`."""
    beside = path.with_suffix(".tmp")
    with beside.open("wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def beside_copying(args: argparse.Namespace, path: Path) -> dict[str, float]:
    """Rounds of: write as many bytes, save, read as many bytes, load. Medians."""
    times: dict[str, list[float]] = {name: [] for name in ("write", "save", "read", "load", "snapshot", "restore")}
    plain = path.with_name("plain")
    with causerie.Engine(args.model, n_ctx=2 * args.tokens + 1024, n_threads=args.threads) as engine:
        chat = engine.conversation(SENTENCE * (args.tokens // TOKENS_OF_IT))
        chat.send("Begin.", max_tokens=2, temperature=0)
        chat.save(path)
        data = path.read_bytes()
        made: list[causerie.Conversation] = []
        snapshots: list[causerie.Snapshot] = []
        for _ in range(args.rounds):
            times["write"].append(timed(lambda: write(plain, data)))
            times["save"].append(timed(lambda: chat.save(path)))
            times["read"].append(timed(plain.read_bytes))
            times["load"].append(timed(lambda: made.append(engine.load_conversation(path, cache="require"))))
            made.pop().close()
            times["snapshot"].append(timed(lambda: snapshots.append(chat.snapshot())))
            times["restore"].append(timed(lambda: made.append(engine.restore(snapshots.pop()))))
            made.pop().close()
        ratios = [
            (save + load) / (wrote + read)
            for wrote, save, read, load in zip(times["write"], times["save"], times["read"], times["load"], strict=True)
        ]
        found = {name: statistics.median(values) for name, values in times.items()}
        return {
            "tokens": chat.token_count, "bytes": len(data), **found, "ratio": statistics.median(ratios),
            "lowest_ratio": min(ratios), "highest_ratio": max(ratios),
        }  # fmt: skip


def first_token(args: argparse.Namespace, path: Path, cache: Literal["require", "ignore"]) -> float:
    """Seconds from opening the file to the first token of the next reply, in an engine that knows nothing of it."""
    with causerie.Engine(args.model, n_ctx=args.tokens + 1024, n_threads=args.threads) as engine:
        engine.conversation().send("Hello", max_tokens=2)
        return timed(lambda: engine.load_conversation(path, cache=cache).send(QUESTION, max_tokens=1, temperature=0))


def main() -> None:
    """Both comparisons."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--resumes", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder, "chat.causerie")
        found = beside_copying(args, path)
        pairs = [(first_token(args, path, "ignore"), first_token(args, path, "require")) for _ in range(args.resumes)]
    again, resumed = (statistics.median(side) for side in zip(*pairs, strict=True))
    faster = statistics.median(a / b for a, b in pairs)
    print(json.dumps({**found, "evaluated_again": again, "resumed": resumed, "times_faster": faster}))


if __name__ == "__main__":
    main()
