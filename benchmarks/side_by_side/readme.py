"""The README's section: the newest results, between two markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import results, table
from .workplace import ROOT

if TYPE_CHECKING:
    from pathlib import Path

Data = dict[str, Any]

RESULTS = ROOT / "benchmarks" / "results"
BEGIN = "<!-- benchmarks: written by `make bench`, not by hand -->"
END = "<!-- /benchmarks -->"
PICTURES = {
    "throughput": "Output of all conversations together against their number",
    "turns": "Time to first token, turn by turn",
    "latency": "Gaps between tokens while a long prompt comes in",
}


def newest(folder: Path = RESULTS) -> Path | None:
    """Of the results that have all that has bars, those that ended last; None if there are none."""
    found = [(results.read(path), path) for path in folder.glob("*.json")]
    return max(((data["finished"], path) for data, path in found if data["complete"]), default=(None, None))[1]


def section(path: Path | None, root: Path = ROOT) -> str:
    """What stands between the markers; `path`: the results, None if there are none."""
    if path is None:
        return "No run has been recorded yet: `make bench` makes one."
    data = results.read(path)
    base = path.with_suffix("").relative_to(root).as_posix()
    lines = [*table.facts(data), "", *table.bars_table(data), ""]
    shown = [name for name in PICTURES if (root / f"{base}-{name}.svg").exists()]
    lines += [line for name in shown for line in (f"![{PICTURES[name]}]({base}-{name}.svg)", "")]
    missing = [f"{name} ({reason})" for name, reason in sorted(data["missing"].items())]
    if missing:
        lines += [f"Missing: {'; '.join(missing)}.", ""]
    lines.append(
        f"All figures, what differs between the systems, and the limits of the machine: [{base}.md]({base}.md)."
    )
    return "\n".join(lines)


def replaced(text: str, content: str) -> str:
    """A text with other content between its markers.

    Raises:
        ValueError: it has no markers.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no section between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def update(readme: Path = ROOT / "README.md", folder: Path = RESULTS) -> bool:
    """Write the newest results into the README; returns whether that changed it."""
    text = readme.read_text()
    made = replaced(text, section(newest(folder), readme.parent))
    if made != text:
        readme.write_text(made)
    return made != text
