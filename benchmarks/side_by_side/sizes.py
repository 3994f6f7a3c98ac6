"""Who takes part, how large everything is, and what several groups measure."""

from __future__ import annotations

from dataclasses import dataclass

from . import reading
from .case import Bar, Measure

OURS = "causerie"
SERVER, PYTHON, NODE, XLLAMA = "llama-server", "llama-cpp-python", "node-llama-cpp", "xllamacpp"
ALL = (OURS, SERVER, PYTHON, NODE, XLLAMA)
BENCH, BATCHED, C = "llama-bench", "llama-batched-bench", "llama.cpp in C"
SYSTEMS = (*ALL, BENCH, BATCHED, C, "numpy")


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    tokens: int = 128
    depths: tuple[int, ...] = (0, 1000, 4000)
    together: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    shared: int = 500
    turns: int = 16
    branches: int = 8
    many: int = 24
    saved: int = 4000
    long_prompt: int = 2000
    running: int = 4
    running_tokens: int = 400
    text: int = 1_000_000


QUICK = Sizes(
    tokens=12, depths=(0, 200), together=(1, 2), shared=100, turns=3, branches=2, many=3, saved=200, long_prompt=200,
    running=2, running_tokens=40, text=20_000,
)  # fmt: skip


def output(bars: tuple[Bar, ...] = (), plot: str = "") -> Measure:
    """Throughput of all that run together."""
    return Measure("output, start to last token", "tokens/s", "higher", reading.output_rate, bars, plot)


def at_least(**ratios: float) -> tuple[Bar, ...]:
    """Bars for ratios to others; names as Python can write them."""
    return tuple(Bar(name.replace("_", "-"), least=ratio) for name, ratio in ratios.items())
