"""Results as pictures (SVG, by matplotlib)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Data = dict[str, Any]

COLOURS = {
    "causerie": "#c0392b",
    "llama-bench": "#7f8c8d",
    "llama-batched-bench": "#7f8c8d",
    "llama-server": "#2471a3",
    "llama-cpp-python": "#d68910",
    "node-llama-cpp": "#1e8449",
    "xllamacpp": "#7d3c98",
}


def measures(data: Data, plot: str) -> list[tuple[Data, Data]]:
    """Cases and measures that belong to a picture."""
    return [(case, each) for case in data["cases"] for each in case["measures"] if each["plot"] == plot]


def line(axes: Any, name: str, xs: list[float], ys: list[float]) -> None:
    """One system's line."""
    width = 2.4 if name == results.OURS else 1.2
    axes.plot(xs, ys, label=name, color=COLOURS.get(name, "black"), linewidth=width, marker="o", markersize=3)


def throughput(data: Data, figure: Any) -> bool:
    """Output against the number of conversations, with different prompts and with a shared one."""
    kinds = [plot for plot in ("different prompts", "shared prompt") if measures(data, plot)]
    for axes, plot in zip(figure.subplots(1, len(kinds), squeeze=False)[0] if kinds else (), kinds, strict=True):
        points: dict[str, list[tuple[float, float]]] = {}
        for case, measure in measures(data, plot):
            for name in results.systems_of(case):
                if found := results.summary(results.numbers(case, measure["name"], name)):
                    points.setdefault(name, []).append((case["x"], found.median))
        for name, pairs in points.items():
            line(axes, name, *map(list, zip(*sorted(pairs), strict=True)))
        xs = sorted({case["x"] for case, _ in measures(data, plot)})
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.minorticks_off()
        axes.set(title=plot, xlabel="conversations together", ylabel="tokens/s, start to last token", ylim=(0, None))
        axes.legend(fontsize=7)
    return bool(kinds)


def turns(data: Data, figure: Any) -> bool:
    """Time to first token against the turn."""
    found = measures(data, "turns")
    if not found:
        return False
    axes = figure.subplots()
    for case, measure in found:
        for name in results.systems_of(case):
            if ys := results.rows(case, measure["name"], name):
                line(axes, name, [float(k) for k in range(1, len(ys) + 1)], ys)
    axes.set(xlabel="turn", ylabel="ms until the first token", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=7)
    return True


def latency(data: Data, figure: Any) -> bool:
    """Percentiles of the gaps between tokens while a long prompt comes in."""
    found = measures(data, "gaps")
    if not found:
        return False
    axes = figure.subplots()
    for case, measure in found:
        for name in results.systems_of(case):
            if ys := results.rows(case, measure["name"], name):
                line(axes, name, [0.0, 1.0, 2.0, 3.0, 4.0], ys)
        axes.set_title(case["name"], fontsize=9)
    axes.set_xticks(range(5), ["50", "90", "95", "99", "100"])
    axes.set(xlabel="percentile", ylabel="ms between tokens", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.legend(fontsize=7)
    return True


PLOTS: dict[str, Callable[[Data, Any], bool]] = {"throughput": throughput, "turns": turns, "latency": latency}


def write(data: Data, folder: Path, stem: str) -> list[Path]:
    """Draw all pictures that the results have figures for; returns their files. Equal results give equal bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    written = []
    with mpl.rc_context({"svg.hashsalt": "causerie", "svg.fonttype": "path", "font.family": "DejaVu Sans"}):
        for name, draw in PLOTS.items():
            figure = Figure(figsize=(9, 3.6) if name == "throughput" else (6, 3.6), layout="constrained")
            if draw(data, figure):
                path = folder / f"{stem}-{name}.svg"
                figure.savefig(path, metadata={"Date": None, "Creator": None})
                written.append(path)
    return written
