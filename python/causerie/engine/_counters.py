"""What the engine has done so far."""

from __future__ import annotations

from collections import deque

__all__ = ["Counters"]

_RECENT = 256  # steps that rates are computed from


class Counters:
    """Written by whoever leads the engine."""

    def __init__(self) -> None:
        self.steps = 0
        self.tokens = 0
        self.generated = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.preempted = 0
        self.largest_step = 0
        self.busy_seconds = 0.0
        self._recent: deque[tuple[int, int, float]] = deque(maxlen=_RECENT)

    def step(self, *, rows: int, tokens: int, seconds: float) -> None:
        """One evaluation of so many tokens, of which so many rows continued an answer."""
        self.steps += 1
        self.tokens += tokens
        self.busy_seconds += seconds
        self.largest_step = max(self.largest_step, tokens)
        self._recent.append((rows, tokens, seconds))

    def rates(self) -> tuple[float, float, float]:
        """Of the last steps: generated tokens per second, prompt tokens per second, mean tokens in a step."""
        recent = list(self._recent)
        seconds = sum(entry[2] for entry in recent)
        if not seconds:
            return 0.0, 0.0, 0.0
        rows, tokens = sum(entry[0] for entry in recent), sum(entry[1] for entry in recent)
        return rows / seconds, (tokens - rows) / seconds, tokens / len(recent)
