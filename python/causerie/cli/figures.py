"""`/stats`: how quick the last answer was, and what the engine holds, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.cli.text import count, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.cli.branches import Branches
    from causerie.conversation import Report
    from causerie.engine import EngineStats

__all__ = ["figures"]

_ENDS = {"stop": "ended by the model", "length": "cut", "cancelled": "stopped by you", "tool_calls": "asks for tools"}


def figures(branches: Branches) -> Iterator[str]:
    """The lines of `/stats`."""
    chat = branches.current.conversation
    stats = branches.engine.stats()
    report = chat.report
    if report is None:
        yield "There is no answer in this branch yet."
    else:
        yield from _answer(report)
    yield f"context      {chat.token_count} of {count(branches.engine.n_ctx, 'token')} in use by this conversation"
    yield from _engine(stats, len(branches.all))


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f" ({per_second:.1f} tokens/s)"


def _answer(report: Report) -> Iterator[str]:
    usage, timings = report.usage, report.timings
    tokens = count(usage.completion_tokens, "token")
    yield (
        f"last answer  {tokens} in {timings.decode:.2f} s{_rate(timings.tokens_per_second)}, "
        + _ENDS[report.finish_reason]
    )
    new = usage.prompt_tokens - usage.cached_tokens
    yield (
        f"its prompt   {count(usage.prompt_tokens, 'token')}: {usage.cached_tokens} were in the cache, {new} were "
        f"evaluated in {timings.prompt:.2f} s{_rate(timings.prompt_tokens_per_second)}"
    )
    if timings.first_token is not None:
        yield f"first token  after {timings.first_token:.2f} s"


def _engine(stats: EngineStats, n_branches: int) -> Iterator[str]:
    yield (
        f"cache        {stats.cells_used} of {count(stats.cells, 'cell')} in use, {stats.cells_shared} of them shared; "
        f"{stats.hit_rate:.0%} of all prompt tokens were in it"
    )
    parked = f"; {stats.parked} parked in RAM ({size(stats.parked_bytes)})" if stats.parked else ""
    yield f"branches     {n_branches}, {stats.resident} of them in the cache{parked}"
    yield (
        f"so far       {count(stats.tokens, 'token')} evaluated, {stats.generated} of them generated, in "
        f"{count(stats.steps, 'step')} and {stats.busy_seconds:.1f} s"
    )
