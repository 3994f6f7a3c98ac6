"""One measurement of conversations in a process of its own; prints a JSON object. Usage: see `main`."""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import causerie

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS = (
    "the sea", "an old clock", "a lighthouse", "winter", "a lost dog", "the moon", "a train", "bread",
    "a violin", "the desert", "a garden", "a map", "the harbour", "a letter", "a mountain", "rain",
)  # fmt: skip
WARM_TOKENS = 8
SENTENCE = "You are a careful storyteller who likes long, detailed stories with many turns and plain words. "


def question(i: int) -> str:
    """About 40 tokens with the template around it; its greedy answer is longer than 128 tokens."""
    return f"Write a very long and detailed story about {TOPICS[i % len(TOPICS)]}, number {i}. Begin at once."


def system(tokens: int) -> str:
    """A system text of about so many tokens."""
    return SENTENCE * max(1, round(tokens / 17))


def engine(args: argparse.Namespace, **options: object) -> causerie.Engine:
    """The engine that is measured."""
    chosen = {"n_ctx": 8192, "n_ubatch": args.ubatch, "isolate": args.isolate, "n_threads": args.threads, **options}
    if args.device:
        chosen |= {"devices": [args.device], "strict": True}
    return causerie.Engine(args.model, **chosen)


def stream(args: argparse.Namespace) -> dict[str, float]:
    """Tokens per second of one conversation, from the first chunk to the last one."""
    options = {"temperature": 0} if args.sampling == "greedy" else {"seed": 1}
    with engine(args, n_ctx=1024) as e:
        e.conversation().send("Hello", max_tokens=4)
        chat = e.conversation()
        times = [time.perf_counter() for _ in chat.stream(question(0), max_tokens=args.tokens, **options)]
        usage = chat.report.usage
        assert usage.completion_tokens == args.tokens, usage
        return {"tokens_per_second": (usage.completion_tokens - 1) / (times[-1] - times[0])}


def chat(args: argparse.Namespace) -> dict[str, float]:
    """Tokens per second of a conversation's replies, from its first question to its last token."""
    with engine(args, **{"n_threads": None, "n_ctx": 2048, **json.loads(args.options)}) as e:
        e.conversation().send("Hello", max_tokens=4)
        chat = e.conversation(system(args.shared) if args.shared else None)
        begun = time.perf_counter()
        counts = [
            chat.send(question(i), max_tokens=args.tokens, temperature=0).usage.completion_tokens for i in range(args.n)
        ]
        return {"tokens_per_second": sum(counts) / (time.perf_counter() - begun)}


def together(args: argparse.Namespace) -> dict[str, float]:
    """Seconds from the start of n conversations to their last token."""
    text = system(args.shared) if args.shared else None
    with engine(args, max_resident=args.n + 2, kv_unified=not args.separate) as e:
        e.conversation().send("Hello", max_tokens=4)
        chats = [e.conversation(text) for _ in range(args.n)]
        before = e.stats()
        gate = threading.Barrier(args.n + 1)

        def run(i: int) -> int:
            gate.wait()
            return chats[i].send(question(i), max_tokens=args.tokens, temperature=0).usage.completion_tokens

        with ThreadPoolExecutor(args.n) as pool:
            futures = [pool.submit(run, i) for i in range(args.n)]
            gate.wait()
            start = time.perf_counter()
            counts = [future.result() for future in futures]
            seconds = time.perf_counter() - start
        assert counts == [args.tokens] * args.n, counts
        after = e.stats()
        return {
            "seconds": seconds,
            "tokens_per_second": args.n * args.tokens / seconds,
            "steps": after.steps - before.steps,
            "evaluated": after.tokens - before.tokens,
            "evaluated_prompt": (after.prompt_tokens - after.cached_tokens)
            - (before.prompt_tokens - before.cached_tokens),
        }


def gaps(args: argparse.Namespace) -> dict[str, float]:
    """The gaps between tokens of running conversations, without and with a long prompt coming in."""
    with engine(args, n_ctx=8192, stretch=args.stretch) as e:
        e.conversation().send("Hello", max_tokens=4)
        alone, _ = gaps_while(e, args.n, lambda: time.sleep(3))
        with_prompt, seconds = gaps_while(
            e, args.n, lambda: e.conversation(system(args.prompt)).send("Hello", max_tokens=1)
        )

    def p99(values: list[float]) -> float:
        return sorted(values)[int(0.99 * (len(values) - 1))]

    return {
        "alone_ms": 1e3 * p99(alone),
        "with_ms": 1e3 * p99(with_prompt),
        "alone_median_ms": 1e3 * statistics.median(alone),
        "with_median_ms": 1e3 * statistics.median(with_prompt),
        "ratio": p99(with_prompt) / p99(alone),
        "prompt_seconds": seconds,
        "tokens_meanwhile": len(with_prompt),
    }


def gaps_while(e: causerie.Engine, n: int, work: Callable[[], object]) -> tuple[list[float], float]:
    """The gaps between tokens of n conversations while something else is done, and how long that took."""
    started, stop = threading.Barrier(n + 1), threading.Event()

    def read(i: int) -> list[float]:
        times = []
        for k, _ in enumerate(e.conversation().stream(question(i), max_tokens=3000 // n, temperature=0)):
            if k == WARM_TOKENS:
                started.wait()
            times.append(time.perf_counter())
            if stop.is_set():
                break
        return [b - a for a, b in pairwise(times[WARM_TOKENS:])]

    with ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(read, i) for i in range(n)]
        started.wait()
        begun = time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        stop.set()
        return [gap for future in futures for gap in future.result()], seconds


def turns(args: argparse.Namespace) -> dict[str, object]:
    """Evaluated tokens and time to first token, turn by turn."""
    with engine(args) as e:
        chat = e.conversation()
        rows = []
        for turn in range(args.n):
            before = chat.token_count
            reply = chat.send(question(turn), max_tokens=args.tokens)
            usage = reply.usage
            rows.append(
                {
                    "history": before,
                    "evaluated": usage.prompt_tokens - usage.cached_tokens,
                    "first_token_ms": 1e3 * (reply.timings.first_token or 0.0),
                }
            )
        return {"turns": rows}


def fork(args: argparse.Namespace) -> dict[str, float]:
    """Milliseconds and new cells of a fork."""
    with engine(args) as e:
        chat = e.conversation(system(args.prompt))
        chat.send("Hello", max_tokens=4)
        times = []
        used = e.stats().cells_used
        for _ in range(11):
            begun = time.perf_counter()
            branch = chat.fork()
            times.append(time.perf_counter() - begun)
            cells = e.stats().cells_used - used
            branch.close()
        return {"tokens": chat.token_count, "ms": 1e3 * statistics.median(times), "new_cells": cells}


def many(args: argparse.Namespace) -> dict[str, float]:
    """One more turn for each of many live conversations that do not fit into the context together."""
    with engine(args, parking_bytes=args.parking) as e:
        chats = [e.conversation(f"{system(args.prompt)} Your number is {i}.") for i in range(args.n)]
        for i, chat in enumerate(chats):
            chat.add_user(f"My number is {i}.")
            chat.add_assistant(f"I see, {i}. " + SENTENCE * 4)
            chat.prefill()
        before = e.stats()
        times, cached, prompt = [], 0, 0
        for chat in chats[: args.turns]:
            begun = time.perf_counter()
            usage = chat.send("And now?", max_tokens=1, temperature=0).usage
            times.append(time.perf_counter() - begun)
            cached += usage.cached_tokens
            prompt += usage.prompt_tokens
        after = e.stats()
        return {
            "turn_ms": 1e3 * statistics.median(times),
            "cached_share": cached / prompt,
            "prompt_tokens": prompt / args.turns,
            "restorations": after.restorations - before.restorations,
            "parked_mb": after.parked_bytes / 1e6,
        }


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["stream", "chat", "together", "gaps", "turns", "fork", "many"])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--sampling", choices=["greedy", "default"], default="greedy")
    parser.add_argument("--shared", type=int, default=0, help="tokens of a common system text")
    parser.add_argument("--separate", action="store_true", help="cells are not unified")
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--ubatch", type=int, help="most tokens computed at once; none: the default")
    parser.add_argument("--stretch", type=float, default=2.2)
    parser.add_argument("--parking", type=int, default=1 << 30)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--device", help="by ggml's name; none: the default")
    parser.add_argument("--options", default="{}", help="chat: of the engine, as JSON")
    parser.add_argument("--isolate", action="store_true", help="the model in a helper process")
    args = parser.parse_args()
    print(json.dumps(globals()[args.what](args)))


if __name__ == "__main__":
    main()
