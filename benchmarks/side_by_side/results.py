"""What was measured, as plain data: one JSON schema for recording, merging and showing."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .case import Case, Measure

SCHEMA = "causerie-benchmark/1"
OURS = "causerie"

Data = dict[str, Any]


class SchemaError(ValueError):
    """A file does not hold results of this schema."""


def empty(settings: Data, machine: Data) -> Data:
    """Results of a run that begins."""
    return {
        "schema": SCHEMA,
        "started": machine["time"],
        "finished": machine["time"],
        "complete": False,  # whether all that has bars is there
        "unmeasured": [],
        "settings": settings,
        "machine": machine,
        "systems": {},
        "missing": {},
        "limits": {},
        "cases": [],
    }


def check(data: Data) -> Data:
    """The same, if it is what its schema says.

    Raises:
        SchemaError: it is not; says where.
    """

    def require(condition: object, where: str) -> None:
        if not condition:
            raise SchemaError(f"not results of {SCHEMA}: {where}")

    require(isinstance(data, dict) and data.get("schema") == SCHEMA, "schema")
    for name in ("settings", "machine", "systems", "missing", "limits"):
        require(isinstance(data.get(name), dict), name)
    for case in data["cases"]:
        where = f"case {case.get('group')}: {case.get('name')}"
        require(isinstance(case.get("rounds"), list), where)
        require(isinstance(case.get("failed"), dict), where)
        for measure in case["measures"]:
            require({"name", "unit", "better", "bars", "plot"} <= measure.keys(), where)
            require(measure["better"] in {"higher", "lower"}, where)
        names = {measure["name"] for measure in case["measures"]}
        for each in case["rounds"]:
            require(set().union(*each["values"].values()) <= names, where)
    return data


def read(path: Path) -> Data:
    """Results from a file.

    Raises:
        OSError, SchemaError: it cannot be read, or holds something else.
    """
    try:
        return check(json.loads(path.read_text()))
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{path.name}: {error!r}") from error


def write(path: Path, data: Data) -> None:
    """Replace the file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
        json.dump(check(data), file, indent=1)
        file.write("\n")
    made = Path(file.name)
    made.chmod(0o644)
    made.replace(path)


def described(case: Case) -> Data:
    """A case without what only a run needs."""

    def measure(each: Measure) -> Data:
        bars = [{"against": bar.against, "least": bar.least, "most": bar.most} for bar in each.bars]
        return {"name": each.name, "unit": each.unit, "better": each.better, "bars": bars, "plot": each.plot}

    return {
        "group": case.group,
        "name": case.name,
        "x": case.x,
        "measures": [measure(each) for each in case.measures],
        "differs": {name: each.differs for name, each in case.references.items() if each.differs},
        "failed": {},
        "rounds": [],
    }


@dataclass(frozen=True)
class Summary:
    """Numbers of one system in one measure: median, least and most of the rounds."""

    median: float
    least: float
    most: float


def numbers(case: Data, measure: str, system: str) -> list[float]:
    """One number for each round in which the system took part."""
    found = (each["values"].get(system, {}).get(measure) for each in case["rounds"])
    return [value for value in found if isinstance(value, (int, float))]


def rows(case: Data, measure: str, system: str) -> list[float]:
    """The medians of a measure that is a row of numbers, place by place."""
    found = (each["values"].get(system, {}).get(measure) for each in case["rounds"])
    lists = [value for value in found if isinstance(value, list)]
    return [statistics.median(values) for values in zip(*lists, strict=True)] if lists else []


def summary(values: list[float]) -> Summary | None:
    """None of no values."""
    return Summary(statistics.median(values), min(values), max(values)) if values else None


def ratio(case: Data, measure: str, other: str) -> Summary | None:
    """Ours over another system's: only numbers of the same round are compared."""
    pairs = []
    for each in case["rounds"]:
        ours, theirs = (each["values"].get(name, {}).get(measure) for name in (OURS, other))
        if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)) and theirs:
            pairs.append(ours / theirs)
    return summary(pairs)


def systems_of(case: Data) -> list[str]:
    """All that took part, in their order."""
    return list(dict.fromkeys(name for each in case["rounds"] for name in each["values"]))


def bars(data: Data) -> list[Data]:
    """Each bar with what was measured: `found` is a Summary or None, `reached` a bool or None."""
    made = []
    for case in data["cases"]:
        for measure in case["measures"]:
            for bar in measure["bars"]:
                name = measure["name"]
                found = ratio(case, name, bar["against"]) if bar["against"] else summary(numbers(case, name, OURS))
                reached = None
                if found is not None:
                    above = bar["least"] is None or found.median >= bar["least"]
                    below = bar["most"] is None or found.median <= bar["most"]
                    reached = above and below
                made.append({"case": case, "measure": measure, "bar": bar, "found": found, "reached": reached})
    return made
