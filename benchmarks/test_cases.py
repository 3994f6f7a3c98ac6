"""Every case of the side-by-side report, one by one: causerie beside llama.cpp's own programs, and peers where wanted.

`CAUSERIE_BENCH_PEERS=1` adds the peers that `make bench` has installed, `CAUSERIE_BENCH_QUICK=1` makes everything tiny.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.side_by_side import cases, peers, results, table
from benchmarks.side_by_side.running import Run

if TYPE_CHECKING:
    from benchmarks.side_by_side.case import Case
    from benchmarks.side_by_side.workplace import Workplace

QUICK = bool(os.environ.get("CAUSERIE_BENCH_QUICK"))
pytestmark = pytest.mark.timeout(7200)

ROUNDS = 1 if QUICK else 5
CASES = cases.all_cases(cases.QUICK if QUICK else cases.Sizes())


@pytest.fixture(scope="module")
def missing(place: Workplace) -> dict[str, str]:
    """Why systems are left out; the others are in `place`."""
    place.installed, missing = peers.find_all(place, install=False, retry=False)
    if not os.environ.get("CAUSERIE_BENCH_PEERS"):
        missing |= dict.fromkeys(peers.PEERS, "peers are left out")
    return missing


@pytest.mark.parametrize("case", CASES, ids=[case.key for case in CASES])
def test_case(case: Case, place: Workplace, missing: dict[str, str], benchmark: Any) -> None:
    """One case, in interleaved rounds; the medians and ratios are printed, and kept with pytest-benchmark's figures."""
    data = results.empty({"rounds": ROUNDS}, {"time": ""})
    run = Run(place, data, lambda: None, rounds=ROUNDS, skip=missing)
    benchmark.pedantic(run.one, args=(case,), rounds=1, iterations=1)
    (measured,) = data["cases"]
    assert cases.OURS not in measured["failed"], measured["failed"]
    benchmark.group = case.group
    benchmark.extra_info.update(measured)
    print("", *table.group_table([measured]), *table.bars_table(data), sep="\n")
