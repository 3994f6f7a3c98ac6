"""Results as Markdown."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from . import limits, results
from .machine import BUSY_CORES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .results import Summary

Data = dict[str, Any]
OURS = results.OURS


def number(value: float) -> str:
    """Three digits that count, and no fewer than a whole number has."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(found: Summary) -> str:
    """A median, with the range of the rounds."""
    if found.least == found.most:
        return number(found.median)
    return f"{number(found.median)} ({number(found.least)} to {number(found.most)})"


def markdown_table(head: list[str], lines: Iterable[list[str]]) -> list[str]:
    """Lines of a table."""
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]


def report(data: Data) -> str:
    """Everything."""
    lines = ["# causerie side by side", "", *facts(data), ""]
    if data.get("unmeasured"):
        lines += [f"Not measured in this run: {'; '.join(data['unmeasured'])}.", ""]
    lines += ["## What was expected", "", *bars_table(data), ""]
    for group, cases in groupby(data["cases"], key=lambda case: case["group"]):
        lines += [f"## {group[0].upper()}{group[1:]}", "", *group_table(list(cases)), ""]
    lines += ["## Limits of the machine", "", *limits_table(data), ""]
    lines += ["## Systems", "", *systems_list(data), ""]
    return "\n".join(lines)


def facts(data: Data) -> list[str]:
    """The machine, and how the run went."""
    machine, settings = data["machine"], data["settings"]
    flags = " ".join(f"{name}={value}" for name, value in machine["flags"].items())
    features = " ".join(machine["features"]) or "no features known"
    cores = f"{machine['cores']} cores, {settings['threads']} threads used"
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GiB"
    commit = machine["commit"][:9] or "an unknown commit"
    built = f"{machine['compiler']}, {machine['build_type']}, {flags}"
    rounds = f"{settings['rounds']} rounds, everyone in turn in each; medians, the range of the rounds in brackets"
    lines = [
        f"{machine['time'][:10]}, {machine['cpu']} ({features}), {cores}, {memory}, {machine['system']}.",
        f"causerie {machine['version']} at {commit}, llama.cpp {machine['llama_commit'][:9]}, {built}.",
        f"Model {settings['model']}. {rounds if settings['rounds'] > 1 else 'One round'}.",
    ]
    if settings["quick"]:
        lines.append("**A quick run: it shows that everything works, and no figures to go by.**")
    lines += busy_warning(data)
    return [line for each in lines for line in (each, "")][:-1]


def busy_warning(data: Data) -> list[str]:
    """Says so where others used the machine."""
    busy = busy_rounds(data)
    before = data["machine"]["others_before"] or 0.0
    if not busy and before <= BUSY_CORES:
        return []
    rounds = sum(len(case["rounds"]) for case in data["cases"])
    how = f"{before:.1f} cores before the run, and more than {BUSY_CORES} in {busy} of {rounds} rounds"
    return [f"**The machine was busy with other things: {how}. These figures are not to be relied on.**"]


def busy_rounds(data: Data) -> int:
    """Rounds in which others used the machine."""
    return sum((each["others"] or 0.0) > BUSY_CORES for case in data["cases"] for each in case["rounds"])


def bars_table(data: Data) -> list[str]:
    """Bars, with what was measured."""
    lines = []
    for each in results.bars(data):
        bar, found = each["bar"], each["found"]
        against = bar["against"]
        ends = {"at least": bar["least"], "at most": bar["most"]}
        bounds = [f"{word} {end:.3g}" for word, end in ends.items() if end is not None]
        if found is None:
            reason = data["missing"].get(against) or each["case"]["failed"].get(against or OURS) or "not measured"
            shown, verdict = "none", reason
        else:
            shown, verdict = spread(found), "reached" if each["reached"] else "**missed**"
        what = f"{each['case']['group']}, {each['case']['name']}: {each['measure']['name']}"
        lines.append([what, against or "none: causerie's own", ", ".join(bounds), shown, verdict])
    return markdown_table(["what", "causerie over", "bar", "measured", ""], lines) if lines else ["None."]


def group_table(cases: list[Data]) -> list[str]:
    """A group: one line for each measure, one column for each system; in brackets causerie over it."""
    systems = list(
        dict.fromkeys([OURS, *(name for case in cases for name in (*results.systems_of(case), *case["failed"]))])
    )
    lines = []
    notes: dict[str, None] = {}
    for case in cases:
        for measure in case["measures"]:
            if not any(results.numbers(case, measure["name"], system) for system in systems):
                continue
            cells = [cell(case, measure["name"], system) for system in systems]
            arrow = "more" if measure["better"] == "higher" else "less"
            lines.append([f"{case['name']}: {measure['name']}", f"{measure['unit']}, {arrow} is better", *cells])
        notes.update(dict.fromkeys(f"- {name}: {why}." for name, why in (*case["differs"].items(), *failures(case))))
    head = ["", "unit", *(name if name == OURS else f"{name} (causerie over it)" for name in systems)]
    return [*markdown_table(head, lines), "", *notes] if notes else markdown_table(head, lines)


def failures(case: Data) -> list[tuple[str, str]]:
    """Who did not do a case, and why."""
    return [(f'{name} did not do "{case["name"]}"', why) for name, why in case["failed"].items()]


def cell(case: Data, measure: str, system: str) -> str:
    """One system's median, with causerie's ratio to it."""
    found = results.summary(results.numbers(case, measure, system))
    if found is None:
        return "-"
    if system == OURS:
        return spread(found)
    ratio = results.ratio(case, measure, system)
    return number(found.median) if ratio is None else f"{number(found.median)} ({ratio.median:.2f})"


def limits_table(data: Data) -> list[str]:
    """Floors, and how many of them everyone takes."""
    found = data["limits"]
    if "probe" not in found:
        return [f"Not measured: {found.get('missing', 'this part of the run was not done')}."]
    probe, model = found["probe"], found["model"]
    reading = f"read {number(probe['read_model'])} GB/s of as many bytes as the model has"
    memory = f"{number(probe['read_memory'])} GB/s of 512 MB"
    computing = f"{number(probe['f32'])} G/s in f32 and {number(probe['int8'])} G/s in int8 ({probe['int8_by']})"
    weights = f"{number(model['bytes'] / 1e6)} MB of weights"
    cache = f"{number(model['cache_bytes'] / 1e3)} kB for each token before it"
    operations = f"{number(2 * model['parameters'] / 1e9)} G operations"
    lines = [
        f"{data['settings']['threads']} threads {reading}, {memory}, and multiply and add {computing}.",
        "",
        f"A token reads {weights} and {cache}; a token of a prompt takes {operations}.",
        "",
    ]
    near = limits.nearness(data)
    systems = list(dict.fromkeys(name for each in near for name in each["systems"]))
    rows = []
    for each in near:
        took = [each["systems"].get(name) for name in systems]
        rows.append([each["what"], f"{each['floor_ms']:.3g} ms", *(f"{t['floors']:.2f}" if t else "-" for t in took)])
    return [*lines, *markdown_table(["time, in floors", "floor", *systems], rows)] if rows else lines


def systems_list(data: Data) -> list[str]:
    """What ran, what differs, what is missing."""
    lines = []
    for name, about in sorted(data["systems"].items()):
        told = ", ".join(
            f"{key.replace('_', ' ')} {value}" for key, value in about.items() if value and key != "differs"
        )
        differs = f" What differs: {about['differs']}." if about.get("differs") else ""
        lines.append(f"- **{name}**: {told or 'built with causerie'}.{differs}")
    lines += [f"- **{name}** is missing: {reason}." for name, reason in sorted(data["missing"].items())]
    return lines
