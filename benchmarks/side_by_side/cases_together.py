"""What is measured of many conversations, and of long ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import reading
from .case import Bar, Case, Measure, make_task
from .prompts import ALONE_TOKENS, QUESTION_TOKENS, question, text_of
from .references import BatchedBench
from .sizes import ALL, BATCHED, NODE, OURS, PYTHON, SERVER, XLLAMA, Sizes, at_least, output

if TYPE_CHECKING:
    from collections.abc import Iterator


def together(sizes: Sizes) -> Iterator[Case]:
    """Many at the same moment, with prompts of their own or with one in common."""
    bars = {
        (8, False): at_least(llama_batched_bench=1.0, llama_server=1.05, xllamacpp=1.05, node_llama_cpp=2.5),
        (16, False): at_least(llama_server=1.05, xllamacpp=1.05),
        (8, True): at_least(llama_batched_bench=0.97, llama_server=2.2, llama_cpp_python=1.55),
    }
    for shared in (False, True):
        for n in sizes.together:
            system = {"system": text_of(sizes.shared)} if shared else {}
            each = QUESTION_TOKENS + sizes.tokens + 64 + (sizes.shared + 64 if shared else 0)
            n_ctx = 256 * -(-n * each // 256)
            measure = output(bars.get((n, shared), ()), plot="shared prompt" if shared else "different prompts")
            prompt = sizes.shared + n * ALONE_TOKENS if shared else QUESTION_TOKENS
            alone_too = (PYTHON,) if n <= 8 else ()  # one after another: more only takes longer
            yield Case(
                "together",
                f"{n} with {'one prompt of ' + str(sizes.shared) + ' tokens' if shared else 'different prompts'}",
                (measure,),
                make_task([{**system, "turns": [question(i)]} for i in range(n)], max_tokens=sizes.tokens, n_ctx=n_ctx),
                (OURS, SERVER, XLLAMA, NODE, *alone_too),
                {BATCHED: BatchedBench(measure.name, n, prompt, sizes.tokens, max(n_ctx, 2048), shared)},
                x=n,
            )


def turns(sizes: Sizes) -> Iterator[Case]:
    """Time to first token, turn by turn: does a turn cost what is new in it?"""
    yield Case(
        "turns",
        f"{sizes.turns} turns",
        (
            Measure("time to first token", "ms", "lower", reading.first_tokens, plot="turns"),
            Measure(
                f"time to first token, turn {sizes.turns} over turn 2",
                "times",
                "lower",
                reading.growth,
                (Bar(PYTHON, most=1.0),),
            ),
        ),
        make_task([{"turns": [question(i) for i in range(sizes.turns)]}], max_tokens=sizes.tokens // 2, n_ctx=4096),
        ALL,
        whole=False,
    )


def branches(sizes: Sizes) -> Iterator[Case]:
    """A fork, and several answers behind one beginning."""
    n = sizes.branches
    measure = output()
    yield Case(
        "branches",
        f"{n} branches behind {sizes.shared} tokens, each with a question",
        (
            measure,
            Measure("branching itself", "ms", "lower", lambda f, _: 1e3 * f["branch"] if "branch" in f else None),
        ),
        make_task(
            [{"system": text_of(sizes.shared), "turns": [question(0)], "max_tokens": sizes.tokens // 2}],
            branches=[question(i) for i in range(1, n + 1)],
            max_tokens=sizes.tokens,
            parallel=n,
            n_ctx=256 * -(-n * (sizes.shared + 4 * QUESTION_TOKENS + 2 * sizes.tokens) // 256),
        ),
        ALL,
        whole=False,  # greedy answers to a second question may end early, some of them for all systems
    )


def parking(sizes: Sizes) -> Iterator[Case]:
    """Conversations that take turns and do not fit into the context together."""
    texts = [f"{text_of(200)} Your number is {i}." for i in range(sizes.many)]
    yield Case(
        "parking",
        f"second turns of {sizes.many} conversations, with room for 4",
        (Measure("time to first token, median", "ms", "lower", reading.later_first_token),),
        make_task(
            [{"system": text, "turns": [question(i), "And now?"], "max_tokens": 8} for i, text in enumerate(texts)],
            order="in turn",
            parallel=4,
            n_ctx=2048,
        ),
        ALL,
        whole=False,
    )


def saving(sizes: Sizes) -> Iterator[Case]:
    """Saving a conversation, and going on with it in a system that knows nothing."""
    yield Case(
        "saving",
        f"a conversation of {sizes.saved:,} tokens",
        (
            Measure("saving", "ms", "lower", lambda f, _: 1e3 * f["save"]),
            Measure("loading", "ms", "lower", lambda f, _: 1e3 * f["restore"]),
            Measure("from the file to the first token", "ms", "lower", lambda f, _: 1e3 * f["resumed_first_token"]),
            Measure("file", "MB", "lower", lambda f, _: f["saved_bytes"] / 1e6),
        ),
        make_task(
            [{"system": text_of(sizes.saved), "turns": [question(0)]}],
            max_tokens=8,
            resume="Where was I?",
            n_ctx=sizes.saved + 2048,
        ),
        ALL,
        whole=False,
    )


def latency(sizes: Sizes) -> Iterator[Case]:
    """What those who are being answered notice of a long prompt that comes in."""
    running = [{"turns": [question(i)], "max_tokens": sizes.running_tokens} for i in range(sizes.running)]
    late = {"system": text_of(sizes.long_prompt), "turns": ["Hello"], "after_tokens": 16, "max_tokens": 1}
    # Where a server divides its context, the newcomer's part has to hold its prompt.
    n_ctx = (sizes.running + 1) * 256 * -(-(sizes.long_prompt + 256) // 256)
    yield Case(
        "latency",
        f"{sizes.running} answers while a prompt of {sizes.long_prompt:,} tokens comes in",
        (
            Measure("gaps between tokens", "ms", "lower", reading.gap_percentiles, plot="gaps"),
            Measure("gap between tokens, 99th percentile", "ms", "lower", reading.worst_gap),
            Measure("the newcomer's first token", "s", "lower", reading.late_first_token),
        ),
        make_task([*running, late], n_ctx=n_ctx),
        (OURS, SERVER, XLLAMA, NODE),
        whole=False,
    )
