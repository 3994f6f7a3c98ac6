"""All that is measured, group by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import reading
from .case import Bar, Case, Measure, make_task
from .prompts import ALONE_TOKENS, QUESTION_TOKENS, SAMPLED, SCHEMA, question, text_of
from .references import BatchedBench, Import, LlamaBench, NativeLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS = "causerie"
SERVER, PYTHON, NODE, XLLAMA = "llama-server", "llama-cpp-python", "node-llama-cpp", "xllamacpp"
ALL = (OURS, SERVER, PYTHON, NODE, XLLAMA)
BENCH, BATCHED, C = "llama-bench", "llama-batched-bench", "llama.cpp in C"
SYSTEMS = (*ALL, BENCH, BATCHED, C, "numpy")


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    tokens: int = 128
    depths: tuple[int, ...] = (0, 1000, 4000)
    together: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    shared: int = 500
    turns: int = 16
    branches: int = 8
    many: int = 24
    saved: int = 4000
    long_prompt: int = 2000
    running: int = 4
    running_tokens: int = 400
    text: int = 1_000_000


QUICK = Sizes(
    tokens=12, depths=(0, 200), together=(1, 2), shared=100, turns=3, branches=2, many=3, saved=200, long_prompt=200,
    running=2, running_tokens=40, text=20_000,
)  # fmt: skip


def output(bars: tuple[Bar, ...] = (), plot: str = "") -> Measure:
    """Throughput of all that run together."""
    return Measure("output, start to last token", "tokens/s", "higher", reading.output_rate, bars, plot)


def at_least(**ratios: float) -> tuple[Bar, ...]:
    """Bars for ratios to others; names as Python can write them."""
    return tuple(Bar(name.replace("_", "-"), least=ratio) for name, ratio in ratios.items())


def one_conversation(sizes: Sizes) -> Iterator[Case]:
    """Decoding of one conversation, and the time until its first token, at several depths."""
    n = sizes.tokens
    for sampling, bars in (
        ({"temperature": 0}, at_least(llama_bench=0.97, llama_cpp_python=1.08, node_llama_cpp=2.5)),
        (SAMPLED, at_least(llama_bench=0.97, llama_cpp_python=1.08)),
    ):
        measure = Measure("decoding, streamed", "tokens/s", "higher", reading.decode_rate, bars)
        # Attention costs more with every token before: behind as many as the conversation has.
        yield Case(
            "one conversation",
            "greedy" if sampling is not SAMPLED else "sampled (top-k, top-p, min-p, temperature)",
            (measure,),
            make_task([{"turns": [question(0)]}], sampling=sampling, max_tokens=n),
            ALL,
            {BENCH: LlamaBench(measure.name, tokens=n, depth=QUESTION_TOKENS)},
        )
    for depth in sizes.depths:
        if not depth:
            continue
        measure = Measure("decoding, streamed", "tokens/s", "higher", reading.decode_rate)
        first = Measure("time to first token", "ms", "lower", reading.first_token)
        yield Case(
            "one conversation",
            f"greedy, behind {depth:,} tokens",
            (measure, first),
            make_task(
                [{"system": text_of(depth), "turns": [question(0)]}], max_tokens=n, n_ctx=2048 * (1 + depth // 1000)
            ),
            ALL,
            {BENCH: LlamaBench(measure.name, tokens=n, depth=depth + ALONE_TOKENS)},
        )
    first = Measure("time to first token", "ms", "lower", reading.first_token)
    yield Case(
        "one conversation",
        f"prompt of {sizes.shared + ALONE_TOKENS} tokens",
        (first,),
        make_task([{"system": text_of(sizes.shared), "turns": [question(0)]}], max_tokens=2),
        ALL,
        {BENCH: LlamaBench(first.name, prompt=sizes.shared + ALONE_TOKENS)},
    )


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
            each = QUESTION_TOKENS + sizes.tokens + 16 + (sizes.shared + 64 if shared else 0)
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
            [{"system": text_of(sizes.shared), "turns": [question(0)], "max_tokens": 8}],
            branches=[question(i) for i in range(1, n + 1)],
            max_tokens=sizes.tokens,
            parallel=n,
            n_ctx=256 * -(-n * (sizes.shared + 3 * QUESTION_TOKENS + sizes.tokens) // 256),
        ),
        ALL,
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


def structured(sizes: Sizes) -> Iterator[Case]:
    """What it costs to follow a JSON schema."""
    own = Bar(most=1.25)
    yield Case(
        "structured output",
        "an array of objects by a JSON schema, beside free text",
        (
            Measure(
                "time per token, constrained over free", "times", "lower", reading.constrained_over_free,
                (own, Bar(PYTHON, most=1.0)),
            ),
            Measure("decoding, constrained", "tokens/s", "higher", reading.decode_rate),
        ),
        make_task([{"turns": [question(0), "List sailors as JSON."]}], schema=SCHEMA, max_tokens=sizes.tokens),
        ALL,
    )  # fmt: skip


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


def starting(sizes: Sizes) -> Iterator[Case]:
    """Import, loading, memory."""
    numpy = Import("numpy", "import numpy")
    alone = {OURS: "import causerie", PYTHON: "import llama_cpp", XLLAMA: "import xllamacpp"}
    used = {OURS: "from causerie import Engine", PYTHON: "from llama_cpp import Llama", XLLAMA: alone[XLLAMA]}
    for name, statements in (("the module alone", alone), ("what conversations need", used)):
        yield Case(
            "start",
            f"import of {name}",
            (
                Measure(
                    "import", "ms", "lower", lambda f, _: f["import"], (Bar("numpy", most=1.5),) * (statements is alone)
                ),
            ),
            references={
                **{system: Import(system, statement) for system, statement in statements.items()},
                "numpy": numpy,
            },
        )
    yield Case(
        "start",
        "a model, a context of 2,048 tokens and one reply",
        (
            Measure("model loaded", "s", "lower", lambda f, _: f["load"]),
            Measure("resident", "MiB", "lower", lambda f, _: f["resident"] / 2**20, (Bar(PYTHON, most=0.8),)),
        ),
        make_task([{"turns": [question(0)]}], max_tokens=min(16, sizes.tokens)),
        ALL,
        {C: NativeLoad(2048)},
    )


BINDING = {
    "tokenize": ("tokenise {mb:g} MB of mixed text", 1e3, "ms"),
    "detokenize": ("turn it back into text", 1e3, "ms"),
    "fill_512": ("fill a batch with 512 tokens", 1e6, "us"),
    "logits": ("get at the logits of a token", 1e6, "us"),
    "sample": ("sample a token (top-k, top-p, min-p, temperature)", 1e6, "us"),
    "template": ("apply the chat template to 21 messages", 1e6, "us"),
    "parse": ("read a reply", 1e6, "us"),
    "call": ("the cheapest call", 1e9, "ns"),
}


def binding(sizes: Sizes) -> Iterator[Case]:
    """Single calls of the primitives."""
    text = (
        "The sea is wide; ships = 3.14159 * 2. 海はなぜ塩辛いのですか。因为河流带来盐分。👩‍🚀\n\tif (x) { return 1; }\n"
    )
    text *= sizes.text // len(text.encode()) + 1

    def read(name: str, factor: float) -> Callable[[dict[str, Any], dict[str, Any]], float | None]:
        def of(figures: dict[str, Any], _task: dict[str, Any]) -> float | None:
            found = figures["binding"].get(name)
            return None if found is None else factor * float(found)

        return of

    yield Case(
        "binding",
        "single calls",
        tuple(
            Measure(what.format(mb=sizes.text / 1e6), unit, "lower", read(name, factor))
            for name, (what, factor, unit) in BINDING.items()
        ),
        make_task([], binding={"text": text}),
        (OURS, PYTHON),
    )


GROUPS = (binding, one_conversation, together, turns, branches, parking, saving, structured, latency, starting)


def all_cases(sizes: Sizes) -> list[Case]:
    """Everything, in the order in which it is measured and shown."""
    return [case for group in GROUPS for case in group(sizes)]
