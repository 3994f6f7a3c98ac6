"""How many threads to compute with: one for each physical core that this process may use."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from causerie.llama._control_groups import control_groups
from causerie.llama._lib import lib

__all__ = ["Processors", "processors"]

_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Processors:
    """What this process may compute with.

    Attributes:
        logical: processors that it may run on, by its affinity mask.
        cores: physical cores among them: two threads on one core take turns in its arithmetic units.
        quota: processors' worth of time that its control groups allow; None: no limit.
    """

    logical: int
    cores: int
    quota: float | None

    @property
    def threads(self) -> int:
        """Threads to compute with."""
        return max(1, self.cores if self.quota is None else min(self.cores, math.floor(self.quota)))

    @property
    def reason(self) -> str:
        """Why so many."""
        if self.quota is not None and math.floor(self.quota) < self.cores:
            return f"the control group allows {self.quota:g} processors' time"
        if self.cores < self.logical:
            return f"{self.cores} physical cores ({self.logical} logical processors) may be used"
        return f"{self.cores} cores may be used"


def processors() -> Processors:
    """What this process may compute with now."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    if sys.platform.startswith("linux"):
        return Processors(len(allowed), _cores(allowed), _quota())
    counted = lib.causerie_physical_cores()
    return Processors(len(allowed), min(counted, len(allowed)) if counted > 0 else len(allowed), None)


def _cores(allowed: set[int]) -> int:
    """Physical cores of which at least one logical processor is allowed."""
    found = set()
    for number in allowed:
        folder = _TOPOLOGY / f"cpu{number}" / "topology"
        for name in ("core_cpus_list", "thread_siblings_list"):
            try:
                found.add((folder / name).read_text().strip())
            except OSError:
                continue
            break
        else:
            found.add(str(number))
    return max(1, len(found))


def _quota() -> float | None:
    """The least that a control group of this process, or one above it, allows."""
    found = []
    for folder, version in control_groups("cpu"):
        try:
            limit = _limit(folder) if version == 2 else _old_limit(folder)
        except (OSError, ValueError, ZeroDivisionError):
            limit = None
        if limit is not None:
            found.append(limit)
    return min(found, default=None)


def _limit(folder: Path) -> float | None:
    quota, period = (folder / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def _old_limit(folder: Path) -> float | None:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())
