"""What llama.cpp counts while a context evaluates (llama_perf_context)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from causerie.llama._lib import lib

__all__ = ["ContextPerf", "read_perf"]


@dataclass(frozen=True)
class ContextPerf:
    """llama.cpp's own counters (llama_perf_context): times in milliseconds, counts of tokens."""

    load_ms: float
    prompt_ms: float
    eval_ms: float
    n_prompt: int
    n_eval: int
    n_reused: int


def read_perf(context: Any) -> ContextPerf:
    """The counters of a llama_context."""
    p = lib.llama_perf_context(context)
    return ContextPerf(p.t_load_ms, p.t_p_eval_ms, p.t_eval_ms, p.n_p_eval, p.n_eval, p.n_reused)
