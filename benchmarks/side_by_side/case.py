"""One thing that is measured: a task, what is read from its figures, who does it, and what is expected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, Union

from .prompts import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .workplace import Workplace

Value: TypeAlias = Union[float, "list[float]"]
Values: TypeAlias = "dict[str, Value]"
"""What one run of one system gave: a number, or a row of numbers, for each measure."""


@dataclass(frozen=True)
class Bar:
    """What is expected: a number of causerie's own, or its ratio to another system's.

    Attributes:
        against: the other system; "": causerie's number itself.
        least, most: its bounds.
    """

    against: str = ""
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Measure:
    """A number (or a row of numbers) that is read from what a system's program printed.

    Attributes:
        name, unit: for people; together with the case's name they identify it.
        better: which direction is better.
        read: takes the printed figures and the task; None where a system has nothing of the kind.
        bars: what is expected.
        plot: which picture it belongs to; rows of numbers are for pictures only.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    read: Callable[[dict[str, Any], dict[str, Any]], Value | None]
    bars: tuple[Bar, ...] = ()
    plot: str = ""


class Reference(Protocol):
    """A program of llama.cpp's, or another way to measure that is no task."""

    @property
    def differs(self) -> str:
        """What is not as in the other systems."""

    def run(self, place: Workplace) -> Values:
        """The numbers of one run, by the names of measures."""


@dataclass(frozen=True)
class Case:
    """One thing that is measured in interleaved rounds.

    Attributes:
        group: what it belongs to.
        name: unique in the group.
        measures: what is read.
        task: what the systems' programs are told to do; empty where only references run.
        systems: those that do the task, in the order in which they take turns.
        references: others, by name.
        whole: whether replies have to reach their limit of tokens; a run in which they do not counts as failed.
        x: its place in a picture's row, such as the number of conversations.
    """

    group: str
    name: str
    measures: tuple[Measure, ...]
    task: Mapping[str, Any] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    references: Mapping[str, Reference] = field(default_factory=dict)
    whole: bool = True
    x: float | None = None

    @property
    def key(self) -> str:
        """Its name in results."""
        return f"{self.group}: {self.name}"

    @property
    def everyone(self) -> tuple[str, ...]:
        """All that take turns."""
        return (*self.systems, *self.references)


SHORTFALL = 0.03
"""The share of all tokens that may be missing as replies ended by themselves: everyone rounds sums differently, so that
greedy replies are not the same words."""


class EndedEarlyError(Exception):
    """Replies were shorter than the others': the figures cannot be compared."""


def make_task(conversations: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """A task with all its fields; see benchmarks/README.md."""
    made: dict[str, Any] = {
        "conversations": [],
        "order": "together",
        "n_ctx": 2048,
        "parallel": max(1, len(conversations)),
        "max_tokens": 128,
        "sampling": {"temperature": 0},
        "schema": None,
        "branches": [],
        "resume": None,
        "binding": None,
        "options": {},
    }
    unknown = options.keys() - made.keys()
    if unknown:
        raise TypeError(f"a task has no {sorted(unknown)}")
    made["conversations"] = [{"system": SYSTEM, **spec} for spec in conversations]
    return {**made, **options}


def require_whole(figures: Mapping[str, Any], task: Mapping[str, Any]) -> None:
    """Raise EndedEarlyError unless the replies have as many tokens as they may, but for `SHORTFALL` of them."""
    limits = [spec.get("max_tokens") or task["max_tokens"] for spec in task["conversations"]]
    asked = written = 0
    for reply in figures.get("replies", ()):
        asked += task["max_tokens"] if task["branches"] else limits[reply["conversation"]]
        written += reply["tokens"]
    if written < (1 - SHORTFALL) * asked:
        raise EndedEarlyError(f"its replies ended by themselves, after {written} of {asked} tokens")
