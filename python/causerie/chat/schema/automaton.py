"""Regular languages: expressions, and deterministic automata made of them, intersected and complemented (pure Python).

An automaton tells the start, the steps from a state (sets of characters that do not overlap, each with the next state),
and which states accept. Expressions become automata by their derivatives (Brzozowski 1964): a state is the expression
that the rest of the text must match.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from causerie.chat.schema.charset import ANY, CharSet, complement, intersect, partition, union

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EMPTY", "Automaton", "Both", "Complement", "Expression", "Length", "Matching", "Symbol",
    "accepts", "either", "repeated", "sequence", "text_of",
]  # fmt: skip

State = Hashable
Steps = list[tuple[CharSet, Any]]


class Automaton(Protocol):
    """A deterministic automaton over characters."""

    @property
    def start(self) -> State:
        """The state before the first character."""

    def steps(self, state: Any) -> Steps:
        """Where which characters lead."""

    def final(self, state: Any) -> bool:
        """Whether the text may end here."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """One character of a set."""

    ranges: CharSet


@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class _Either:
    options: frozenset[Expression]


@dataclass(frozen=True, slots=True)
class _Repeat:
    item: Expression
    low: int
    high: int | None


Expression = Symbol | _Sequence | _Either | _Repeat
EMPTY = _Sequence(())


def sequence(items: Iterable[Expression]) -> Expression:
    """One after the other."""
    flat: list[Expression] = []
    for item in items:
        flat.extend(item.items if isinstance(item, _Sequence) else (item,))
    return flat[0] if len(flat) == 1 else _Sequence(tuple(flat))


def either(options: Iterable[Expression]) -> Expression:
    """One of several."""
    flat: set[Expression] = set()
    for option in options:
        flat |= option.options if isinstance(option, _Either) else {option}
    return next(iter(flat)) if len(flat) == 1 else _Either(frozenset(flat))


def repeated(item: Expression, low: int, high: int | None) -> Expression:
    """The item from low to high times; high None: any number."""
    if high == 0 or item == EMPTY:
        return EMPTY
    if (low, high) == (1, 1):
        return item
    return _Repeat(item, 0 if _nullable(item) else low, high)


def text_of(text: str) -> Expression:
    """Exactly this text."""
    return sequence(Symbol(((ord(c), ord(c)),)) for c in text)


def _nullable(node: Expression) -> bool:
    if isinstance(node, _Sequence):
        return all(map(_nullable, node.items))
    if isinstance(node, _Either):
        return any(map(_nullable, node.options))
    return isinstance(node, _Repeat) and (node.low == 0 or _nullable(node.item))


def _derivatives(node: Expression) -> list[tuple[CharSet, Expression]]:
    if isinstance(node, Symbol):
        return [(node.ranges, EMPTY)] if node.ranges else []
    if isinstance(node, _Either):
        return _merged([step for option in node.options for step in _derivatives(option)])
    if isinstance(node, _Repeat):
        high = None if node.high is None else node.high - 1
        rest = repeated(node.item, max(0, node.low - 1), high)
        return [(ranges, sequence((then, rest))) for ranges, then in _derivatives(node.item)]
    found = []
    for index, item in enumerate(node.items):
        found += [(ranges, sequence((then, *node.items[index + 1 :]))) for ranges, then in _derivatives(item)]
        if not _nullable(item):
            break
    return _merged(found)


def _merged(steps: list[tuple[CharSet, Expression]]) -> list[tuple[CharSet, Expression]]:
    if len(steps) < 2:
        return steps
    targets: dict[Expression, list[CharSet]] = {}
    for ranges, members in partition(ranges for ranges, _ in steps):
        targets.setdefault(either(steps[i][1] for i in members), []).append(ranges)
    return [(union(parts), target) for target, parts in targets.items()]


@dataclass(frozen=True)
class Matching:
    """What an expression matches as a whole."""

    start: Expression

    def steps(self, state: Expression) -> Steps:
        """See `Automaton`."""
        return _derivatives(state)

    def final(self, state: Expression) -> bool:
        """See `Automaton`."""
        return _nullable(state)


@dataclass(frozen=True)
class Length:
    """Texts of so many characters."""

    low: int
    high: int | None
    start: int = 0

    def steps(self, state: int) -> Steps:
        """See `Automaton`."""
        if self.high is None:
            return [(ANY, min(state + 1, self.low))]
        return [(ANY, state + 1)] if state < self.high else []

    def final(self, state: int) -> bool:
        """See `Automaton`."""
        return state >= self.low and (self.high is None or state <= self.high)


@dataclass(frozen=True)
class Complement:
    """All texts that another automaton does not accept."""

    other: Automaton

    @property
    def start(self) -> State:
        """See `Automaton`."""
        return self.other.start

    def steps(self, state: Any) -> Steps:
        """See `Automaton`; None: whatever follows."""
        if state is None:
            return [(ANY, None)]
        found = self.other.steps(state)
        rest = complement(union(ranges for ranges, _ in found))
        return [*found, (rest, None)] if rest else found

    def final(self, state: Any) -> bool:
        """See `Automaton`."""
        return state is None or not self.other.final(state)


@dataclass(frozen=True)
class Both:
    """What all of several automata accept."""

    members: tuple[Automaton, ...]

    @property
    def start(self) -> State:
        """See `Automaton`."""
        return tuple(member.start for member in self.members)

    def steps(self, state: Any) -> Steps:
        """See `Automaton`."""
        found: Steps = []
        for chosen in product(*(m.steps(s) for m, s in zip(self.members, state, strict=True))):
            common = ANY
            for ranges, _ in chosen:
                common = intersect(common, ranges)
            if common:
                found.append((common, tuple(target for _, target in chosen)))
        return found

    def final(self, state: Any) -> bool:
        """See `Automaton`."""
        return all(m.final(s) for m, s in zip(self.members, state, strict=True))


def accepts(automaton: Automaton, text: str) -> bool:
    """Whether the automaton accepts the text."""
    state: Any = automaton.start
    for char in text:
        code = ord(char)
        for ranges, target in automaton.steps(state):
            if any(low <= code <= high for low, high in ranges):
                state = target
                break
        else:
            return False
    return automaton.final(state)
