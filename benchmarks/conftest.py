"""What every benchmark needs: the model, llama.cpp's own programs, and fair comparison."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.side_by_side.workplace import Workplace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def model_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    from causerie import models

    return models.resolve("smollm2")


@pytest.fixture(scope="session")
def place(model_path: Path) -> Workplace:
    """The model, two threads, and what runs programs."""
    return Workplace(model_path, threads=2)


@pytest.fixture(scope="session")
def tools_dir(place: Workplace) -> Path:
    """Folder with llama.cpp's own programs (`make bench-tools`)."""
    return place.tools


@pytest.fixture
def compare(request: pytest.FixtureRequest, benchmark: Any) -> Callable[..., float]:
    """Run two measurements in turn (A B A B ...), report medians and the ratio ours/reference.

    Both return one number per call. Machines drift: only numbers of one interleaved run are compared.
    """

    def run(
        ours: Callable[[], float], reference: Callable[[], float], *, unit: str, rounds: int = 5, warmup: int = 1
    ) -> float:
        for _ in range(warmup):
            ours()
            reference()
        pairs: list[tuple[float, float]] = []

        def one_round() -> None:
            pairs.append((ours(), reference()))

        benchmark.pedantic(one_round, rounds=rounds, iterations=1, warmup_rounds=0)
        ours_median = statistics.median(a for a, _ in pairs)
        reference_median = statistics.median(b for _, b in pairs)
        ratio = statistics.median(a / b for a, b in pairs)
        benchmark.extra_info.update(ours=ours_median, reference=reference_median, unit=unit, ratio=ratio, pairs=pairs)
        print(
            f"\n{request.node.name}: ours {ours_median:.4g} {unit}, reference {reference_median:.4g} {unit}, "
            f"median ratio {ratio:.3f} (pairs {min(a / b for a, b in pairs):.3f} to {max(a / b for a, b in pairs):.3f})"
        )
        return ratio

    return run
