"""What the binding costs over llama.cpp itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.side_by_side.references import native_load

from causerie import llama
from causerie.llama import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).parent / "programs"
THREADS = 2


def output_of(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def model(model_path: Path) -> Iterator[llama.Model]:
    with llama.Model(model_path) as loaded:
        yield loaded


def test_decode_128_tokens_in_a_python_loop_against_llama_bench(
    compare: Callable[..., float], model_path: Path, tools_dir: Path, benchmark
) -> None:
    """Bar: 0.97 of llama-bench's tg128, less the measured cost of one sampler call per token."""
    sampled: list[float] = []
    sampler_us: list[float] = []

    def ours() -> float:
        with_sampling, without, us = map(
            float, output_of(sys.executable, PROGRAMS / "decode_loop.py", model_path, THREADS).split()
        )
        sampled.append(with_sampling)
        sampler_us.append(us)
        return without

    def reference() -> float:
        text = output_of(
            tools_dir / "llama-bench", "-m", model_path, "-p", 0, "-n", 128, "-r", 1, "-t", THREADS, "-o", "json"
        )
        return float(json.loads(text)[0]["avg_ts"])

    compare(ours, reference, unit="tokens/s", rounds=7)
    benchmark.extra_info.update(with_sampling=float(np.median(sampled)), sampler_us=float(np.median(sampler_us)))
    print(f"with greedy sampling {np.median(sampled):.1f} tokens/s; sampler call {np.median(sampler_us):.0f} us")


@pytest.fixture(scope="module")
def mixed_text() -> bytes:
    """1 MB of prose, code, CJK, emoji and numbers, from llama.cpp's own documents and templates."""
    parts = [
        (ROOT / "vendor/llama.cpp/README.md").read_bytes(),
        (ROOT / "vendor/llama.cpp/include/llama.h").read_bytes(),
        ("海はなぜ塩辛いのですか。因为河流带来盐分。👩\u200d🚀 3.14159 " * 200).encode(),
    ]
    text = b"\n".join(parts)
    return (text * (1_000_000 // len(text) + 1))[:1_000_000].decode("utf-8", "ignore").encode()


def test_tokenise_1_mb_against_the_c_call(compare: Callable[..., float], model: llama.Model, mixed_text: bytes) -> None:
    """Bar: at most 1.10 times the C call alone."""
    out = np.empty(len(mixed_text) + 16, np.int32)
    pointer = ffi.from_buffer("llama_token[]", out)
    vocab = lib.llama_model_get_vocab(model._resource._pointer)

    def ours() -> float:
        start = time.perf_counter()
        model.vocab.tokenize(mixed_text)
        return time.perf_counter() - start

    def reference() -> float:
        start = time.perf_counter()
        assert lib.llama_tokenize(vocab, mixed_text, len(mixed_text), pointer, out.size, True, False) > 0
        return time.perf_counter() - start

    compare(ours, reference, unit="s", rounds=7)


def test_logits_access(benchmark, model: llama.Model) -> None:
    """A view, whatever the vocabulary's size: microseconds, where a copy of the row takes tens."""
    with llama.Context(model, n_ctx=64, n_batch=64, n_threads=THREADS) as ctx:
        batch = llama.Batch(1)
        batch.add(1, 0, output=True)
        ctx.decode(batch)
        row = benchmark(ctx.logits)
        assert not row.flags.owndata


def test_batch_fill(benchmark) -> None:
    """512 prompt tokens into a batch."""
    batch = llama.Batch(512)
    ids = np.arange(512)

    def fill() -> None:
        batch.clear()
        batch.add_sequence(ids, 0, 0)

    benchmark(fill)


def test_call_overhead(benchmark) -> None:
    """The cheapest guarded call."""
    benchmark(lib.llama_time_us)


@pytest.mark.parametrize("module", ["causerie", "causerie.llama"])
def test_import_against_numpy(compare: Callable[..., float], module: str) -> None:
    """Bar for `import causerie`: at most 1.5 times `import numpy`."""

    def seconds(name: str) -> float:
        code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
        return float(output_of(sys.executable, "-c", code))

    compare(lambda: seconds(module), lambda: seconds("numpy"), unit="s", rounds=11)


@pytest.mark.parametrize("figure", ["load", "resident"])
def test_model_load_against_c(compare: Callable[..., float], model_path: Path, figure: str, benchmark) -> None:
    """Bars: load time within 1.05 of llama.cpp's own, resident memory within 30 MB of it."""
    column = {"load": 0, "resident": 2}[figure]

    def ours() -> float:
        return float(output_of(sys.executable, PROGRAMS / "python_load.py", model_path).split()[column])

    def reference() -> float:
        return float(output_of(native_load(), model_path).split()[column])

    compare(ours, reference, unit="s" if figure == "load" else "KiB", rounds=9)
    if figure == "resident":
        print(f"difference {(benchmark.extra_info['ours'] - benchmark.extra_info['reference']) / 1024:.1f} MiB")
