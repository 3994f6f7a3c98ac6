"""A context computes with threads of its own, which end with it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from causerie import build_info
from causerie.llama import Batch, Context

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causerie.llama import Model

pytestmark = [
    pytest.mark.several_threads,
    pytest.mark.skipif(build_info().flags["GGML_OPENMP"] == "ON", reason="OpenMP does the work in this build"),
    pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc"),
]


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir())) - threading.active_count()


def logits_after(context: Context, position: int) -> NDArray[np.float32]:
    batch = Batch(1)
    batch.add(5, position, output=True)
    context.decode(batch)
    return context.logits().copy()


def test_they_live_as_long_as_the_context(model: Model) -> None:
    before = native_threads()
    with Context(model, n_ctx=64, n_batch=64, n_threads=3) as context:
        assert native_threads() == before + 2  # the one that calls is the third
        logits_after(context, 0)
        with Context(model, n_ctx=64, n_batch=64, n_threads=2):
            assert native_threads() == before + 3
        assert native_threads() == before + 2
    assert native_threads() == before


def test_they_are_as_many_as_asked_for(model: Model) -> None:
    before = native_threads()
    with Context(model, n_ctx=64, n_batch=64, n_threads=1) as context:
        assert native_threads() == before
        alone = logits_after(context, 0)
        known = 0
        for count in (4, 2, 1):
            context.set_n_threads(count)
            # ggml tells those that it computed with before to pause, when it first computes with the new ones.
            assert native_threads() == before + known + count - 1
            context.memory.clear()
            assert np.allclose(logits_after(context, 0), alone, atol=1e-4)
            assert native_threads() == before + count - 1
            known = count - 1
        context.set_n_threads(2)
        context.set_n_threads(1, 3)  # never computed with two
        context.memory.clear()
        logits_after(context, 0)
        assert native_threads() == before + 2
    assert native_threads() == before


def test_they_end_with_a_context_that_never_computed_with_them(model: Model) -> None:
    before = native_threads()
    with Context(model, n_ctx=64, n_batch=64, n_threads=3) as context:
        logits_after(context, 0)
        for count in (2, 4, 3):
            context.set_n_threads(count)
    assert native_threads() == before


def test_any_thread_uses_the_same_ones(model: Model) -> None:
    with Context(model, n_ctx=64, n_batch=64, n_threads=2) as context:
        count = native_threads()
        for position in range(4):
            thread = threading.Thread(target=logits_after, args=(context, position))
            thread.start()
            thread.join()
        deadline = time.monotonic() + 60
        while native_threads() != count and time.monotonic() < deadline:
            time.sleep(0.01)  # a thread that was joined is still on its way out
        assert native_threads() == count


def test_those_of_a_context_that_nobody_holds_end(model: Model) -> None:
    before = native_threads()
    context = Context(model, n_ctx=64, n_batch=64, n_threads=3)
    assert native_threads() == before + 2
    del context
    assert native_threads() == before
