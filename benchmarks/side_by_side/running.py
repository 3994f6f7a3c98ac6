"""Has all systems do a case in turn (A B C A B C ...), and records every round as soon as it is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import results
from .case import EndedEarlyError, require_whole
from .machine import Watch
from .workplace import FailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .case import Case, Values
    from .workplace import Workplace

Data = dict[str, Any]


def measured(case: Case, name: str, place: Workplace) -> tuple[Values, Data]:
    """One run of one system: its numbers, and what it tells about itself.

    Raises:
        FailedError, EndedEarlyError: there are none.
    """
    if name in case.references:
        return case.references[name].run(place), {}
    figures = place.figures_of(name, case.task)
    if case.whole:
        require_whole(figures, case.task)
    read = {measure.name: measure.read(figures, dict(case.task)) for measure in case.measures}
    return {name: value for name, value in read.items() if value is not None}, figures.get("about", {})


class Run:
    """Measures cases into results.

    Args:
        place: where things are.
        data: results that are added to.
        save: called after each round.
        rounds: how many each case is to have.
        skip: systems that do not take part.
        deadline: `time.monotonic()` after which no round begins that is expected to end behind it.
    """

    def __init__(
        self,
        place: Workplace,
        data: Data,
        save: Callable[[], None],
        *,
        rounds: int,
        skip: Collection[str] = (),
        deadline: float = float("inf"),
    ) -> None:
        self.place, self.data, self.save = place, data, save
        self.rounds, self.skip, self.deadline = rounds, skip, deadline
        self.known = {f"{case['group']}: {case['name']}": case for case in data["cases"]}

    def left(self, case: Case) -> int:
        """Rounds that a case still lacks."""
        known = self.known.get(case.key)
        return self.rounds if known is None else max(0, self.rounds - len(known["rounds"]))

    def all(self, cases: list[Case]) -> int:
        """Measure what is missing; returns how many cases lack rounds because of the deadline."""
        for number, case in enumerate(cases):
            if self.left(case) and not self.one(case):
                return sum(bool(self.left(other)) for other in cases[number:])
        return 0

    def one(self, case: Case) -> bool:
        """The rounds that a case lacks; False if there is no time for them."""
        kept = self.known.get(case.key)
        if kept is None:
            kept = results.described(case)
        print(f"{case.key}", flush=True)
        while len(kept["rounds"]) < self.rounds:
            if time.monotonic() + self.expected(kept) > self.deadline:
                print("  no time left for another round", flush=True)
                return False
            kept["rounds"].append(self.round(case, kept))
            if case.key not in self.known:
                self.known[case.key] = kept
                self.data["cases"].append(kept)
            self.save()
        return True

    @staticmethod
    def expected(kept: Data) -> float:
        """Seconds that one more round takes, as far as is known."""
        return max((each["seconds"] for each in kept["rounds"]), default=0.0)

    def round(self, case: Case, kept: Data) -> Data:
        """One run of each system. What fails once does not take part again."""
        values: dict[str, Values] = {}
        begun = time.monotonic()
        with Watch() as watch:
            for name in case.everyone:
                if name not in self.skip and name not in kept["failed"]:
                    self.turn(case, name, kept, values)
        return {"seconds": round(time.monotonic() - begun, 1), "others": watch.others, "values": values}

    def turn(self, case: Case, name: str, kept: Data, values: dict[str, Values]) -> None:
        """One run of one system, into `values`."""
        try:
            values[name], about = measured(case, name, self.place)
        except (FailedError, EndedEarlyError) as error:
            kept["failed"][name] = str(error)
            print(f"  {name}: {error}", flush=True)
            return
        self.data["systems"].setdefault(name, {}).update({key: told for key, told in about.items() if told})
        shown = (f"{measure} {value:.4g}" for measure, value in values[name].items() if isinstance(value, float))
        print(f"  {name}: {', '.join(shown)}", flush=True)
