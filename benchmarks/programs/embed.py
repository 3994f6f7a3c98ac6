"""Texts per second that become embeddings (mean of the tokens), with causerie's primitives or llama-cpp-python.

Usage: embed.py causerie|llama-cpp-python MODEL THREADS. Prints one line of JSON: `rate`, and the `first` embedding.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = [
    f"Text {i}: the sea is salty, as rivers carry minerals from rocks to it, and water leaves it." for i in range(64)
]
N_BATCH = 512


def with_causerie(path: str, threads: int) -> Callable[[], list[Any]]:
    from causerie import llama

    model = llama.Model(path)
    context = llama.Context(
        model, n_ctx=N_BATCH, n_batch=N_BATCH, n_ubatch=N_BATCH, n_seq_max=N_BATCH // 8, kv_unified=True,
        embeddings=True, pooling="mean", n_threads=threads,
    )  # fmt: skip
    batch = llama.Batch(N_BATCH)

    def evaluated(count: int) -> list[Any]:
        context.memory.clear(data=False)
        context.decode(batch)
        batch.clear()
        return [context.embeddings_seq(seq).copy() for seq in range(count)]

    def embed() -> list[Any]:
        found: list[Any] = []
        count = 0
        for text in TEXTS:
            tokens = model.vocab.tokenize(text)
            if len(batch) + len(tokens) > N_BATCH:
                found += evaluated(count)
                count = 0
            batch.add_sequence(tokens, 0, count)
            count += 1
        return found + evaluated(count)

    return embed


def with_llama_cpp_python(path: str, threads: int) -> Callable[[], list[Any]]:
    import llama_cpp

    llm = llama_cpp.Llama(
        path, embedding=True, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN, n_ctx=N_BATCH, n_batch=N_BATCH,
        n_threads=threads, n_threads_batch=threads, verbose=False,
    )  # fmt: skip
    return lambda: llm.embed(TEXTS)


def main() -> None:
    system, path, threads = sys.argv[1:]
    embed = {"causerie": with_causerie, "llama-cpp-python": with_llama_cpp_python}[system](path, int(threads))
    embed()
    start = time.perf_counter()
    found = embed()
    seconds = time.perf_counter() - start
    print(json.dumps({"rate": len(TEXTS) / seconds, "first": np.asarray(found[0], np.float64).tolist()}))


main()
