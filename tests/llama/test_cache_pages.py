"""Cells that hold nothing yet keep no memory (Linux)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from causerie.llama import Batch, Context, Model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux alone")

TAKEN = """
import sys
from causerie.llama import Batch, Context, Model

def taken():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))

def evaluate(context, n):
    for begin in range(0, n, 64):
        batch = Batch(64)
        batch.add_sequence(list(range(1000, 1064)), begin, 0)
        context.decode(batch)

with Model(sys.argv[1], devices="cpu") as model:
    before = taken()
    with Context(model, n_ctx=16384, n_ubatch=64, n_batch=64, n_threads=1, flash_attn="enabled") as context:
        print(taken() - before)
        evaluate(context, 64)
        few = taken()
        context.memory.clear()
        evaluate(context, 2048)
        print(taken() - few)
        context.memory.clear()
        print(taken() - few)
"""


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text(),
    reason="the kernel takes memory in pages of 2 MiB here, which are more than the cells that are used",
)
def test_only_cells_that_are_used_take_memory(smollm2_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", TAKEN, str(smollm2_path)], capture_output=True, text=True, check=True, timeout=500
    )
    new, used, cleared = (int(line) / 2**20 for line in run.stdout.split())
    cell = 30 * 2 * 3 * 64 * 2 / 2**20  # layers, keys and values, heads, numbers, bytes
    assert new < 0.25 * 16384 * cell
    assert 0.9 * 2048 * cell < used < 1.5 * 2048 * cell
    assert cleared < 0.1 * 2048 * cell


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "falcon-h1-dense", "mamba-dense"])
def test_what_is_computed_stays_the_same(tiny_models: dict[str, Path], name: str) -> None:
    def logits(context: Context) -> np.ndarray:
        batch = Batch(16)
        batch.add_sequence(list(range(3, 19)), 0, 0, output_last=True)
        context.decode(batch)
        return context.logits(-1).copy()

    with Model(tiny_models[name], devices="cpu") as model, Context(model, n_ctx=4096, n_threads=1) as context:
        first = logits(context)
        context.memory.clear()
        assert context.memory.seq_pos_max(0) == -1
        again = logits(context)
        np.testing.assert_array_equal(again, first)
