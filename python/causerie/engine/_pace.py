"""How much of the waiting prompts goes into one step, so that running answers do not wait long for it."""

from __future__ import annotations

__all__ = ["Pace"]

_WEIGHT = 0.2  # of the newest measurement
_UNNOTICED = 1 / 30  # seconds: text that moves on as often as this seems to flow
_UNWATCHED = 0.2
_MOST_TIMES = 8
_FIRST = 16  # prompt tokens beside running answers, before anything was measured


class Pace:
    """Learns what a step costs on this machine, and how many prompt tokens keep it short.

    Args:
        most: tokens in one step.
        stretch: the longest step with prompt tokens, as a multiple of one without.
    """

    def __init__(self, most: int, stretch: float) -> None:
        self._most = most
        self._stretch = stretch
        self._row_seconds: dict[int, float] = {}
        self._token_seconds = 0.0

    def budget(self, rows: int) -> int:
        """Prompt tokens for the next step beside so many rows that generate; at least 1."""
        room = max(1, self._most - rows)
        if not rows:
            return room
        alone = self._alone(rows)
        if not alone or not self._token_seconds:
            return min(room, _FIRST)
        return max(1, min(room, int((self._stretch - 1) * alone / self._token_seconds)))

    def within(self, seconds: float) -> int:
        """Prompt tokens that take about so long by themselves; at least 1."""
        return max(1, int(seconds / self._token_seconds)) if self._token_seconds else _FIRST

    def times(self, rows: int, *, watched: bool) -> int:
        """How many steps of these rows may be run in one go.

        Together they take no longer than an eye notices where somebody reads along; otherwise not so long that Ctrl-C
        seems to have no effect. Newcomers do not wait for them (`Step.hurry`).
        """
        alone = self._row_seconds.get(rows, 0.0)
        return max(1, min(_MOST_TIMES, int((_UNNOTICED if watched else _UNWATCHED) / alone))) if alone else 1

    def _alone(self, rows: int) -> float:
        """Seconds of a step with these rows and no prompt; of the nearest number of rows that was measured."""
        if rows in self._row_seconds:
            return self._row_seconds[rows]
        if not self._row_seconds:
            return 0.0
        nearest = min(self._row_seconds, key=lambda n: abs(n - rows))
        return self._row_seconds[nearest] * max(1.0, rows / nearest)

    def measured(self, rows: int, tokens: int, seconds: float) -> None:
        """One step took so long, with so many generating rows and prompt tokens; one with neither tells nothing."""
        if not tokens:
            if rows:
                self._row_seconds[rows] = _mean(self._row_seconds.get(rows, 0.0), seconds)
            return
        alone = self._alone(rows) if rows else 0.0
        if seconds > alone and (rows == 0 or alone):
            self._token_seconds = _mean(self._token_seconds, (seconds - alone) / tokens)


def _mean(old: float, new: float) -> float:
    return new if not old else (1 - _WEIGHT) * old + _WEIGHT * new
