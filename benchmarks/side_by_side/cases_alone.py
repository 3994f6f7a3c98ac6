"""What is measured of one conversation, of the start, and of single calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import reading
from .case import Bar, Case, Measure, make_task
from .prompts import ALONE_TOKENS, QUESTION_TOKENS, SAMPLED, SCHEMA, question, text_of
from .references import Import, LlamaBench, NativeLoad
from .sizes import ALL, BENCH, OURS, PYTHON, XLLAMA, C, Sizes, at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
            Measure(
                "resident",
                "MiB",
                "lower",
                lambda f, _: f["resident"] and f["resident"] / 2**20,
                (Bar(PYTHON, most=0.8),),
            ),
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
