"""Numbers from the figures that a system's program prints (replies with the times of their pieces)."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

Figures = dict[str, Any]


def output_rate(figures: Figures, _task: Figures) -> float:
    """Tokens per second from the start until the last token of all."""
    replies = figures["replies"]
    return float(sum(reply["tokens"] for reply in replies) / max(reply["times"][-1] for reply in replies))


def decode_rate(figures: Figures, _task: Figures) -> float:
    """Tokens per second of the last reply, from its first token to its last one."""
    return 1 / token_time(figures["replies"][-1])


def token_time(reply: Figures) -> float:
    """Seconds per token of one reply, from its first token to its last one."""
    return float((reply["times"][-1] - reply["times"][0]) / (reply["tokens"] - 1))


def first_token(figures: Figures, _task: Figures) -> float:
    """Milliseconds until the first token of the first reply."""
    return first_token_ms(figures["replies"][0])


def first_token_ms(reply: Figures) -> float:
    """Milliseconds from asking until the first token."""
    return float(1e3 * (reply["times"][0] - reply["asked"]))


def first_tokens(figures: Figures, _task: Figures) -> list[float]:
    """Milliseconds until the first token, turn by turn."""
    return [first_token_ms(reply) for reply in figures["replies"]]


def growth(figures: Figures, _task: Figures) -> float:
    """The last turn's time to first token over the second turn's."""
    times = first_tokens(figures, {})
    return times[-1] / times[1]


def later_first_token(figures: Figures, _task: Figures) -> float:
    """Median milliseconds until the first token of second turns."""
    return statistics.median(first_token_ms(reply) for reply in figures["replies"] if reply["turn"] == 1)


def constrained_over_free(figures: Figures, _task: Figures) -> float:
    """Time per token of the second turn, which has a schema, over that of the first, which has none."""
    free, constrained = figures["replies"]
    return token_time(constrained) / token_time(free)


def gaps(figures: Figures, task: Figures) -> tuple[list[float], list[float]]:
    """Milliseconds between tokens of the conversations that run: before the late one comes, and until its first token.

    Gaps of all of them together, in ascending order.
    """
    late = {i for i, spec in enumerate(task["conversations"]) if spec.get("after_tokens")}
    (newcomer,) = (reply for reply in figures["replies"] if reply["conversation"] in late)
    alone, beside = [], []
    for reply in figures["replies"]:
        if reply["conversation"] in late:
            continue
        for before, after in pairwise(reply["times"][2:]):
            if after <= newcomer["asked"]:
                alone.append(1e3 * (after - before))
            elif before < newcomer["times"][0]:
                beside.append(1e3 * (after - before))
    return sorted(alone), sorted(beside)


def percentile(ordered: list[float], share: float) -> float:
    """Of values in ascending order."""
    return ordered[round(share * (len(ordered) - 1))]


def gap_percentiles(figures: Figures, task: Figures) -> list[float]:
    """Percentiles 50, 90, 95, 99 and 100 of the gaps while the long prompt comes in."""
    _, beside = gaps(figures, task)
    return [percentile(beside, share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)]


def worst_gap(figures: Figures, task: Figures) -> float:
    """The 99th percentile of the gaps while the long prompt comes in."""
    return percentile(gaps(figures, task)[1], 0.99)


def late_first_token(figures: Figures, task: Figures) -> float:
    """Seconds until the first token of the conversation that came late."""
    late = {i for i, spec in enumerate(task["conversations"]) if spec.get("after_tokens")}
    (newcomer,) = (reply for reply in figures["replies"] if reply["conversation"] in late)
    return first_token_ms(newcomer) / 1e3
