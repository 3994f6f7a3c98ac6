"""Allocations that a device denied, as llama.cpp tells of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from causerie.llama import _denied, devices
from causerie.llama._denied import denied, out_of_memory

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
