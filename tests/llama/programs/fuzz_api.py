"""Drives random call sequences over the low-level API; whatever happens, each call gives a result or a typed exception.

    python fuzz_api.py FIRST_SEED COUNT VOCAB_GGUF MODEL_GGUF...

One seed is one sequence. Prints the seed before each sequence, so that the last line of a process that died names it.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import CauserieError
from causerie.llama import Batch, Context, Model, Sampler
from causerie.llama.control_vector import ControlVector
from causerie.llama.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = (CauserieError, ValueError, TypeError, IndexError, OSError, MemoryError)
WILD: list[Any] = [
    -1,
    -2,
    0,
    1,
    2,
    3,
    7,
    255,
    256,
    2**31 - 1,
    -(2**31),
    2**31,
    2**40,
    0.5,
    -0.0,
    float("nan"),
    float("inf"),
    None,
    "",
    "x",
    b"",
    True,
    [],
    (),
]
TEXTS = ["", "a", "The sea is salty.", "<|im_start|>", "\x00", "é" * 50, "👩‍🚀", "\ud800", "a b\n" * 100, b"\xff\xfe"]
GRAMMARS = [
    'root ::= "yes" | "no"',
    "root ::= [a-z]+",
    "root ::=",
    "root ::= root",
    "x ::= y",
    'root ::= ("a" | "b"){2,5}',
    "[",
    "",
]


class Sequence:
    """One random sequence: a few objects, and calls on them until the steps are used up."""

    def __init__(self, seed: int, vocab_file: str, models: list[str]) -> None:
        self.r = random.Random(seed)
        self.vocab_file = vocab_file
        self.files = models
        self.models: list[Model] = []
        self.contexts: list[Context] = []
        self.batches: list[Batch] = []
        self.samplers: list[Sampler] = []
        self.blobs: list[bytes] = [b"", b"junk" * 10]
        self.views: list[Any] = []
        self.outcomes: Counter[str] = Counter()

    def pick(self, pool: list[Any]) -> Any:
        if not pool:
            raise ValueError("nothing there yet")
        return self.r.choice(pool)

    def small(self, high: int = 8) -> Any:
        """Mostly a sensible small int, now and then anything."""
        return self.r.choice(WILD) if self.r.random() < 0.12 else self.r.randrange(high)

    def new_model(self) -> None:
        if len(self.models) < 3:
            wild = self.r.random() < 0.1
            self.models.append(
                Model(self.vocab_file, vocab_only=True)
                if wild
                else Model(self.pick(self.files), check_tensors=self.r.random() < 0.2)
            )

    def new_context(self) -> None:
        if len(self.contexts) > 5:
            self.contexts.pop(self.r.randrange(len(self.contexts))).close()
        r = self.r
        self.contexts.append(
            Context(
                self.pick(self.models), n_ctx=r.choice([0, 32, 64, 128, 256]), n_batch=r.choice([1, 8, 32, 64]),
                n_ubatch=r.choice([1, 8, 32, 64]), n_seq_max=r.choice([1, 1, 2, 4, self.small()]),
                kv_unified=r.random() < 0.5, embeddings=r.random() < 0.2, n_threads=1,
                pooling=r.choice(["unspecified", "none", "mean", "last", "cls", "rank"]),
                attention=r.choice(["unspecified", "unspecified", "causal", "non_causal"]),
                flash_attn=r.choice(["auto", "disabled", "enabled"]), swa_full=r.random() < 0.5,
                type_k=r.choice(["f16", "f32", "q8_0", "q4_0"]), type_v=r.choice(["f16", "f32", "q8_0"]),
            )
        )  # fmt: skip

    def new_batch(self) -> None:
        self.batches.append(
            Batch(self.r.choice([1, 8, 64, self.small()]), n_seq_max=self.r.choice([1, 2, self.small()]))
        )

    def fill(self) -> None:
        batch = self.pick(self.batches)
        if self.r.random() < 0.7:
            batch.clear()
        ctx = self.contexts[-1] if self.contexts else None
        seq = self.small(2)
        pos = (
            ctx.memory.seq_pos_max(seq) + 1
            if ctx is not None and not ctx.closed and self.r.random() < 0.8
            else self.small(40)
        )
        if self.r.random() < 0.5:
            tokens = [self.r.randrange(128) for _ in range(self.r.randrange(1, 20))]
            batch.add_sequence(tokens, pos, seq, output_last=self.r.random() < 0.8)
        else:
            for i in range(self.r.randrange(1, 6)):
                seqs = (seq,) if self.r.random() < 0.8 else (seq, self.small(3))
                batch.add(self.small(128), pos + i, seqs, output=self.r.random() < 0.5)
        if self.r.random() < 0.05:
            batch.seq_id[0, 0] = self.r.choice([-1, 5, 300, 2**31 - 1])
        if self.r.random() < 0.05:
            batch.token[0] = self.r.choice([-1, 127, 128, 2**31 - 1])
        if self.r.random() < 0.05:
            batch.n_seq_id[0] = self.r.choice([-1, 0, 2, 100])

    def evaluate(self) -> None:
        ctx, batch = self.pick(self.contexts), self.pick(self.batches)
        if self.r.random() < 0.05:
            threading.Timer(self.r.random() * 0.01, ctx.cancel).start()
        (ctx.encode if self.r.random() < 0.1 else ctx.decode)(batch)

    def read(self) -> None:
        ctx = self.pick(self.contexts)
        call = self.r.choice([ctx.logits, ctx.logits, ctx.embeddings, ctx.embeddings_seq])
        view = call(self.small() if self.r.random() < 0.5 or call == ctx.embeddings_seq else -1)
        float(view.sum())
        if self.r.random() < 0.3:
            self.views.append(view)
        if len(self.views) > 3:
            self.views.clear()

    def remember(self) -> None:
        memory = self.pick(self.contexts).memory
        pos = lambda: self.r.choice([-1, -1, 0, 1, 3, 10, self.small(64)])  # noqa: E731
        name = self.r.choice(
            ["clear", "seq_rm", "seq_cp", "seq_keep", "seq_add", "seq_div", "seq_pos_min", "seq_pos_max"]
        )
        arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
            "clear": lambda: (self.r.random() < 0.5,),
            "seq_rm": lambda: (self.r.choice([-1, 0, 1, self.small()]), pos(), pos()),
            "seq_cp": lambda: (self.small(3), self.small(3), pos(), pos()),
            "seq_add": lambda: (self.small(2), pos(), pos(), self.r.choice([-1, 1, 5, -50, 2**31 - 1, self.small()])),
            "seq_div": lambda: (self.small(2), pos(), pos(), self.r.choice([1, 2, 3, 0, self.small()])),
        }
        getattr(memory, name)(*arguments.get(name, lambda: (self.small(3),))())

    def new_sampler(self) -> None:
        vocab = self.pick(self.models).vocab
        r, x = self.r, self.r.choice([0.0, 0.1, 0.5, 0.9, 1.0, 2.0, -1.0, float("nan"), float("inf")])
        make: list[Callable[[], Sampler]] = [
            Sampler.greedy, lambda: Sampler.dist(self.small()), lambda: Sampler.top_k(self.small(200)),
            lambda: Sampler.top_p(x), lambda: Sampler.min_p(x), lambda: Sampler.typical(x),
            lambda: Sampler.temperature(x), lambda: Sampler.temperature_dynamic(x, 0.2, exponent=x),
            lambda: Sampler.xtc(x, 0.1, seed=1), lambda: Sampler.top_n_sigma(x),
            lambda: Sampler.mirostat(vocab, seed=self.small()), lambda: Sampler.mirostat_v2(x, 0.1),
            lambda: Sampler.adaptive_p(x), lambda: Sampler.penalties(vocab, last_n=self.small(64), repeat=x),
            lambda: Sampler.dry(vocab, multiplier=x), lambda: Sampler.logit_bias(vocab, {self.small(130): x}),
            lambda: Sampler.infill(vocab), lambda: Sampler.grammar(vocab, r.choice(GRAMMARS)),
            lambda: Sampler.grammar_lazy(vocab, r.choice(GRAMMARS), trigger_patterns=[r.choice(["a", "[", "(x+)+y"])]),
            lambda: Sampler.custom(lambda candidates: r.choice([None, 1, -5, "x"])),
            lambda: Sampler.chain([self.samplers.pop(r.randrange(len(self.samplers))) for _ in range(min(len(self.samplers), 3))] + [Sampler.dist(1)]),
        ]  # fmt: skip
        self.samplers.append(r.choice(make)())
        del self.samplers[:-8]

    def sample(self) -> None:
        sampler = self.pick(self.samplers)
        name = self.r.choice(["sample", "sample", "accept", "apply", "reset", "clone", "name", "close"])
        if name == "sample":
            sampler.sample(self.pick(self.contexts), self.r.choice([-1, -1, self.small()]))
        elif name == "accept":
            sampler.accept(self.small(128))
        elif name == "apply":
            logits = (
                np.random.default_rng(self.r.randrange(99))
                .normal(size=self.r.choice([128, 128, 1, 0]))
                .astype(np.float32)
            )
            if self.r.random() < 0.1 and logits.size:
                logits[0] = self.r.choice([np.nan, np.inf, -np.inf])
            sampler.apply(logits)
        elif name == "clone":
            self.samplers.append(sampler.clone())
        elif name == "name":
            _ = sampler.name, repr(sampler)
        elif self.r.random() < 0.5 or name == "reset":
            getattr(sampler, name)()

    def state(self) -> None:
        state = self.pick(self.contexts).state
        which = self.r.randrange(4)
        if which == 0:
            self.blobs.append(state.get())
        elif which == 1:
            self.blobs.append(state.seq_get(self.small(2), partial=self.r.random() < 0.2))
        else:
            blob = self.pick(self.blobs)
            if blob and self.r.random() < 0.3:
                damaged = bytearray(blob)
                damaged[self.r.randrange(len(damaged))] ^= 1 << self.r.randrange(8)
                blob = bytes(damaged[: self.r.choice([len(damaged), self.r.randrange(len(damaged))])])
            state.set(blob) if which == 2 else state.seq_set(self.small(2), blob)
        del self.blobs[2:-4]

    def words(self) -> None:
        vocab = self.pick(self.models).vocab
        name = self.r.choice(["tokenize", "detokenize", "piece", "text", "score", "attributes", "is_eog", "is_control"])
        if name == "tokenize":
            vocab.tokenize(self.r.choice(TEXTS), self.r.random() < 0.5, self.r.random() < 0.5)
        elif name == "detokenize":
            vocab.detokenize([self.small(130) for _ in range(self.r.randrange(6))], special=self.r.random() < 0.5)
        else:
            getattr(vocab, name)(self.small(130))

    def settings(self) -> None:
        ctx = self.pick(self.contexts)
        self.r.choice([
            lambda: ctx.set_n_threads(self.small(3)), lambda: ctx.set_embeddings(self.r.random() < 0.5),
            lambda: ctx.set_causal_attn(self.r.random() < 0.7), ctx.perf, ctx.perf_reset, ctx.synchronize, ctx.cancel,
            lambda: ctx.set_control_vector(None), lambda: ctx.set_adapters([]),
            lambda: ctx.set_control_vector(ControlVector(np.zeros((self.r.randrange(4), self.r.randrange(300)), np.float32))),
        ])()  # fmt: skip

    def template(self) -> None:
        source = self.r.choice(
            ["{{ messages[0].content }}", "{% for m in messages %}{{ m.role }}{% endfor %}", "{{", "{% x %}", ""]
        )
        messages = self.r.choice(
            [[], [{"role": "user", "content": "x"}], [{"role": "?"}], [{}], [{"role": "user", "content": 5}]]
        )
        Template(source).render(messages)

    def close_something(self) -> None:
        pool = self.r.choice([self.models, self.contexts, self.contexts, self.samplers])
        thing = self.pick(pool)
        thing.close()
        if self.r.random() < 0.7:
            pool.remove(thing)

    def drop_something(self) -> None:
        pool = self.r.choice([self.models, self.contexts, self.samplers, self.batches, self.views])
        if pool:
            pool.pop(self.r.randrange(len(pool)))
        if self.r.random() < 0.2:
            gc.collect()

    def run(self, steps: int) -> None:
        for start in (
            self.new_model,
            self.new_context,
            self.new_context,
            self.new_context,
            self.new_batch,
            self.new_sampler,
        ):
            self.attempt(start)
        calls = {
            self.new_model: 1, self.new_context: 2, self.new_batch: 1, self.fill: 14, self.evaluate: 14, self.read: 6,
            self.remember: 8, self.new_sampler: 6, self.sample: 10, self.state: 5, self.words: 4, self.settings: 2,
            self.template: 1, self.close_something: 1, self.drop_something: 1,
        }  # fmt: skip
        for call in self.r.choices(list(calls), list(calls.values()), k=steps):
            self.attempt(call)

    def attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
            self.outcomes["ok"] += 1
        except ALLOWED as error:
            self.outcomes[type(error).__name__] += 1


def main() -> None:
    first, count, vocab_file, *models = sys.argv[1:]
    total: Counter[str] = Counter()
    for seed in range(int(first), int(first) + int(count)):
        print("seed", seed, flush=True)
        sequence = Sequence(seed, vocab_file, models)
        sequence.run(80)
        gc.collect()  # what a failed call left in cycles holds native memory, which the collector cannot see
        total += sequence.outcomes
    print("done", dict(total))


main()
