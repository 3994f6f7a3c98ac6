"""Command line of the side-by-side benchmark: `python -m benchmarks.side_by_side --help`, from the top folder."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import cases, limits, machine, peers, plots, readme, results, table
from .running import Run
from .workplace import ROOT, Workplace

if TYPE_CHECKING:
    from .case import Case

QUICK_FOLDER = ROOT / ".benchmarks" / "quick"


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="side_by_side", description="causerie beside llama.cpp and other libraries")
    parser.add_argument("--rounds", type=int, help="of each case (default: 5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything work? Written elsewhere")
    parser.add_argument("--groups", nargs="+", metavar="GROUP", help="only these (names may be shortened)")
    parser.add_argument("--cases", metavar="TEXT", help="only cases with this text in their name")
    parser.add_argument("--bars", action="store_true", help="only cases of which something is expected")
    parser.add_argument("--systems", nargs="+", metavar="NAME", help="only these (causerie is always there)")
    parser.add_argument("--minutes", type=float, help="begin no round that would end later; the same command goes on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="smollm2", help="an alias or a path")
    parser.add_argument("--out", type=Path, help="file to write, or to go on with (default: by date and CPU)")
    parser.add_argument("--fresh", action="store_true", help="begin anew where the file exists")
    parser.add_argument("--no-install", action="store_true", help="peers that are not installed are missing")
    parser.add_argument("--install", action="store_true", help="install the peers, and measure nothing")
    parser.add_argument("--retry-peers", action="store_true", help="install again what failed before")
    parser.add_argument("--list", action="store_true", help="list the cases, and measure nothing")
    parser.add_argument("--report", type=Path, metavar="JSON", help="write report, pictures and README of results")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, or only report; returns the exit status."""
    args = parsed(arguments)
    if args.report:
        print(reported(args.report))
        return 0
    if args.install:
        place = Workplace(Path(args.model), args.threads)
        there, missing = peers.find_all(place, install=True, retry=args.retry_peers)
        print(*there, *(f"{name} is missing: {reason}" for name, reason in missing.items()), sep="\n")
        return 0
    sizes = cases.QUICK if args.quick else cases.Sizes()
    chosen = [case for case in cases.all_cases(sizes) if is_chosen(case, args)]
    if args.list or not chosen:
        print("\n".join(case.key for case in chosen) or "no such case")
        return 0 if chosen else 2
    return measured(args, sizes, chosen)


def is_chosen(case: Case, args: argparse.Namespace) -> bool:
    """Whether a case was asked for."""
    in_group = not args.groups or any(case.group.startswith(name) for name in args.groups)
    return in_group and (has_bars(case) or not args.bars) and (args.cases or "") in case.name


def has_bars(case: Case) -> bool:
    """Whether something is expected of a case."""
    return any(measure.bars for measure in case.measures)


def measured(args: argparse.Namespace, sizes: cases.Sizes, chosen: list[Case]) -> int:
    """Measure the chosen cases into a file, and report."""
    from causerie import models

    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    place = Workplace(models.resolve(args.model), args.threads)
    place.installed, missing = peers.find_all(place, install=not args.no_install, retry=args.retry_peers)
    unwanted = {name for name in cases.SYSTEMS if args.systems and name not in {cases.OURS, *args.systems}}
    facts = machine.facts()
    rounds = args.rounds or (1 if args.quick else 5)
    settings = {"model": place.model.name, "threads": args.threads, "quick": args.quick, "rounds": rounds}
    path = args.out or default_path(facts, quick=args.quick)
    data = opened(path, settings, facts, fresh=args.fresh or (args.quick and not args.out))
    data["systems"] = {**peers.described(place.installed), **data["systems"]}
    data["missing"] = missing
    if not data["limits"]:
        data["limits"] = limits.measure(place, sizes)

    def save() -> None:
        data["finished"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        results.write(path, data)

    run = Run(place, data, save, rounds=rounds, skip={*missing, *unwanted}, deadline=deadline)
    left = run.all(chosen)
    everything = cases.all_cases(sizes)
    data["cases"].sort(key=order(everything))
    unmeasured = [case for case in everything if run.left(case)]
    data["unmeasured"] = [case.key for case in unmeasured]
    data["complete"] = not any(map(has_bars, unmeasured))
    save()
    print(f"\n{reported(path)}\nwritten: {path}")
    if left:
        print(f"{left} of {len(chosen)} cases lack rounds: the same command goes on")
    return 0


def order(all_cases: list[Case]) -> Any:
    """Sorts cases in the order in which they are shown, whatever order they were measured in."""
    places = {case.key: place for place, case in enumerate(all_cases)}
    return lambda case: places.get(f"{case['group']}: {case['name']}", len(places))


def default_path(facts: dict[str, Any], *, quick: bool) -> Path:
    """Where results go: by date and CPU."""
    folder = QUICK_FOLDER if quick else readme.RESULTS
    return folder / f"{facts['time'][:10]}-{machine.slug(facts['cpu'])}.json"


def opened(path: Path, settings: dict[str, Any], facts: dict[str, Any], *, fresh: bool) -> dict[str, Any]:
    """The results that are gone on with, or new ones.

    Raises:
        SystemExit: what is there was measured in another way, or of another commit.
    """
    if fresh or not path.exists():
        return results.empty(settings, facts)
    data = results.read(path)
    for name, before, now in (
        *((name, data["settings"].get(name), value) for name, value in settings.items()),
        *((name, data["machine"].get(name), facts[name]) for name in ("cpu", "commit", "llama_commit", "flags")),
    ):
        if before != now:
            raise SystemExit(
                f"{path} was measured with {name} {before!r}, not {now!r}: --fresh begins anew, --out elsewhere"
            )
    return data


def reported(path: Path) -> str:
    """Write the report and the pictures beside results, and the README if they are in the folder for it."""
    data = results.read(path)
    text = table.report(data)
    path.with_suffix(".md").write_text(text)
    plots.write(data, path.parent, path.stem)
    if path.resolve().parent == readme.RESULTS:
        readme.update()
    return text


if __name__ == "__main__":
    sys.exit(main())
