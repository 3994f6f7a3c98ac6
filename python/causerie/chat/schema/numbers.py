"""JSON numbers within bounds, as an automaton over their digits (pure Python).

Numbers are written without an exponent and with at most 15 significant digits (more only where a bound has more): every
such text is a double of its own, so that a bound holds for the number that a program reads, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from causerie.chat.schema.charset import chars

if TYPE_CHECKING:
    from causerie.chat.schema.automaton import Steps

__all__ = ["Bounds", "Numbers"]

_DIGITS = 15


@dataclass(frozen=True)
class Bounds:
    """What a number must keep to: from low to high, a multiple of `multiple`, with so many decimals at most."""

    low: Decimal | None = None
    high: Decimal | None = None
    above: bool = False
    """low itself is excluded"""
    below: bool = False
    """high itself is excluded"""
    multiple: int = 1
    decimals: int | None = None
    """None: any number of decimals; 0: an integer"""

    @property
    def free(self) -> bool:
        """Whether nothing but the number of decimals is demanded."""
        return self.low is None and self.high is None and self.multiple == 1 and self.decimals in {None, 0}

    def allow(self, value: Decimal) -> bool:
        """Whether a number keeps to it."""
        if self.low is not None and (value < self.low or (self.above and value == self.low)):
            return False
        if self.high is not None and (value > self.high or (self.below and value == self.high)):
            return False
        exact = Fraction(value)  # Decimal rounds, or refuses what has more digits than its context
        if exact % self.multiple and self.multiple != 1:
            return False
        return self.decimals is None or (exact * 10**self.decimals).denominator == 1


class _Limit(NamedTuple):
    """One end of the magnitudes of one sign."""

    whole: str
    fraction: str
    strict: bool

    @classmethod
    def of(cls, value: Decimal, *, strict: bool) -> _Limit:
        whole, _, fraction = f"{value:f}".partition(".")
        return cls(whole.lstrip("0") or "0", fraction.rstrip("0"), strict)

    def compare_whole(self, order: int, n_digits: int) -> int:
        """How a whole part of n digits compares, given how its digits compare to those at the front of ours."""
        return order if n_digits == len(self.whole) else -1 if n_digits < len(self.whole) else 1

    def compare_end(self, order: int, place: int) -> int:
        """How a number that ends behind so many decimals compares."""
        return -1 if order == 0 and self.fraction[place:] else order


@dataclass(frozen=True)
class _State:
    """How far a number has been read: its sign, its digits, and how they compare to both ends so far."""

    negative: bool
    digits: int = 0
    place: int | None = None  # decimals read; None: before the point
    low: int = 0
    high: int = 0
    rest: int = 0
    zero: bool = False  # the whole part is 0, so no digit may follow


class Numbers:
    """The texts of the JSON numbers within bounds, as an automaton."""

    start = None

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.ends = {negative: self._ends(negative=negative) for negative in (False, True)}
        sizes = [len(end.whole) for pair in self.ends.values() if pair for end in pair if end]
        self.most = max([_DIGITS, *sizes])

    def _ends(self, *, negative: bool) -> tuple[_Limit, _Limit | None] | None:
        """Lower and upper end of the magnitudes of a sign; None if there are none."""
        b = self.bounds
        low, above, high, below = b.low, b.above, b.high, b.below
        if negative:  # zero has no sign
            low, above, high, below = (None if high is None else -high), below, (None if low is None else -low), above
            if low is None or low < 0:
                low, above = Decimal(0), True
            above = above or low == 0
        elif low is None or low < 0:
            low, above = Decimal(0), False
        if high is not None and high < low:
            return None
        return _Limit.of(low, strict=above), None if high is None else _Limit.of(high, strict=below)

    def steps(self, state: _State | None) -> Steps:
        """See `Automaton`."""
        if state is None:
            found = self.steps(_State(negative=False)) if self.ends[False] else []
            return [*found, (chars("-"), _State(negative=True))] if self.ends[True] else found
        targets: dict[_State, str] = {}
        for digit in "0123456789":
            target = self._digit(state, digit)
            if target is not None:
                targets[target] = targets.get(target, "") + digit
        steps: Steps = [(chars(digits), target) for target, digits in targets.items()]
        if state.place is None and state.digits and self.bounds.decimals != 0 and state.digits < _DIGITS:
            low, high = self._whole(state)
            steps.append((chars("."), replace(state, place=0, low=low, high=high, zero=False)))
        return steps

    def _whole(self, state: _State) -> tuple[int, int]:
        ends = self.ends[state.negative]
        low, high = ends or (None, None)
        return (
            low.compare_whole(state.low, state.digits) if low else 1,
            high.compare_whole(state.high, state.digits) if high else -1,
        )

    def _digit(self, state: _State, digit: str) -> _State | None:
        ends = self.ends[state.negative]
        limit = self.most if state.place is None else _DIGITS
        full = state.place is not None and self.bounds.decimals is not None and state.place >= self.bounds.decimals
        if state.zero or ends is None or full or state.digits >= limit:
            return None
        orders = []
        for end, order in zip(ends, (state.low, state.high), strict=True):
            place = state.digits if state.place is None else state.place
            text = "" if end is None else end.whole if state.place is None else end.fraction
            other = text[place : place + 1] or ("0" if state.place is not None else digit)
            orders.append(order or (digit > other) - (digit < other))
        undecided = state.place is not None and (0 in orders or self.bounds.decimals is not None)
        read = None if state.place is None else state.place + 1 if undecided else 1
        rest = (state.rest * 10 + int(digit)) % self.bounds.multiple if state.place is None else state.rest
        return _State(
            state.negative, state.digits + 1, read, orders[0], orders[1], rest,
            zero=state.place is None and state.digits == 0 and digit == "0",
        )  # fmt: skip

    def final(self, state: _State | None) -> bool:
        """See `Automaton`."""
        if state is None or not state.digits or state.place == 0 or state.rest:
            return False
        ends = self.ends[state.negative]
        if ends is None:
            return False
        low, high = self._whole(state) if state.place is None else (state.low, state.high)
        place = state.place or 0
        low = ends[0].compare_end(low, place)
        high = -1 if ends[1] is None else ends[1].compare_end(high, place)
        return (low > 0 or (low == 0 and not ends[0].strict)) and (
            high < 0 or (high == 0 and ends[1] is not None and not ends[1].strict)
        )
