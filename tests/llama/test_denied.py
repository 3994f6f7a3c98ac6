"""Allocations that a device denied, as llama.cpp tells of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from causerie.llama import _denied, devices
from causerie.llama._denied import denied, out_of_memory

if TYPE_CHECKING:
    from pathlib import Path

LOG = (
    "ggml_backend_alloc_ctx_tensors_from_buft: failed to allocate {} buffer of size 3145728; failed to allocate buffer"
)


@pytest.mark.parametrize(
    "log",
    [
        LOG.format("CUDA0"),
        "unable to allocate CPU buffer",
        "cudaMalloc failed: out of memory",
        "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    ],
)
def test_words_for_it(log: str) -> None:
    assert out_of_memory(log)
    assert not out_of_memory("tensor blk.0.attn_q.weight is missing")


def test_of_the_cpu_the_whole_is_told() -> None:
    error = denied("loading", LOG.format("CPU"), 5 << 20)
    assert error.needed == 5 << 20
    assert (error.available or 0) > 0
    assert "loading" in str(error)


def test_of_a_device_what_was_denied_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = replace(devices()[0], name="GPU7", kind="gpu", memory_free=2 << 20)
    monkeypatch.setattr(_denied, "devices", lambda: [gpu])
    error = denied("loading", LOG.format("CPU"), 5 << 20)  # the name of its buffers
    assert (error.needed, error.available) == (3145728, 2 << 20)
    assert "3.0 MiB at once were denied by GPU7, 2.0 MiB of whose memory are free" in str(error)
    assert "n_gpu_layers" in str(error)


def test_of_another_machines_device_nothing_is_known_but_the_size() -> None:
    error = denied("loading", LOG.format("RPC0[127.0.0.1:50052]"), 5 << 20)
    assert (error.needed, error.available) == (3145728, None)
    assert "denied by RPC0[127.0.0.1:50052];" in str(error)


def test_without_a_size_there_is_none() -> None:
    assert denied("creating", "failed to allocate buffer for kv cache").needed is None


def test_of_the_cpu_alone_the_size_is_told() -> None:
    error = denied(
        "evaluating", "failed to allocate buffer of size 4096; failed to allocate output buffer of size 9.00 MiB"
    )
    assert error.needed == 4096
    assert (error.available or 0) > 0


LIMITED = """
import resource, sys
from causerie import OutOfMemoryError
from causerie.llama import Batch, Context, Model

def evaluate(context, every):
    batch = Batch(512)
    for i in range(512):
        batch.add(1000 + i, i, [0], output=every or i == 511)
    context.decode(batch)
    return context.logits(511).tolist()

with Model(sys.argv[1]) as model, Context(model, n_ctx=512, n_batch=512, n_ubatch=512, n_threads=1) as context:
    want = evaluate(context, False)
    context.memory.clear()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20), resource.RLIM_INFINITY))
    try:
        evaluate(context, True)  # 96 MiB of logits
    except OutOfMemoryError as error:
        print(error.needed, error.available > 0, str(error).startswith("decode: failed"))
    print(context.memory.seq_pos_max(0), evaluate(context, False) == want)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own memory, as Linux can")
def test_an_evaluation_that_was_denied_memory_leaves_a_context_that_works(smollm2_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(smollm2_path)], check=True, capture_output=True, text=True
    )
    assert result.stdout.splitlines() == [f"{512 * 49152 * 4} True True", "-1 True"]
