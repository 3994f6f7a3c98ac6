"""Decode 128 tokens greedily over the primitives; prints tokens per second with sampling, without it, and its cost."""

import sys
import time

from causerie import llama

N = 128


def main(path: str, threads: int) -> None:
    with (
        llama.Model(path) as model,
        llama.Context(model, n_ctx=512, n_batch=512, n_threads=threads) as ctx,
        llama.Sampler.greedy() as sampler,
    ):
        batch = llama.Batch(8)
        for repetition in range(2):  # the first warms up, as llama-bench does
            ctx.memory.clear()
            token, sampling = model.vocab.bos or 0, 0.0
            start = time.perf_counter()
            for pos in range(N):
                batch.clear()
                batch.add(token, pos, output=True)
                ctx.decode(batch)
                before = time.perf_counter()
                token = sampler.sample(ctx)
                sampling += time.perf_counter() - before
            total = time.perf_counter() - start
            if repetition:
                print(N / total, N / (total - sampling), sampling / N * 1e6)


main(sys.argv[1], int(sys.argv[2]))
