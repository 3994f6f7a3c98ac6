"""What is known of the machine, and how busy it is with other things."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .workplace import ROOT

if TYPE_CHECKING:
    from typing_extensions import Self

BUSY_CORES = 0.1
"""More than so many cores at work for others: the figures of that round are doubtful."""

FEATURES = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp", "i8mm")


def facts() -> dict[str, Any]:
    """The machine, before a run."""
    import causerie

    info = causerie.build_info()
    cpu = cpu_facts()
    with Watch() as watch:
        time.sleep(2)
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu.get("model name", platform.processor() or platform.machine()),
        "features": [name for name in FEATURES if name in cpu.get("flags", cpu.get("Features", "")).split()],
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
        "others_before": watch.others,
        "compiler": info.compiler,
        "build_type": info.build_type,
        "flags": {name: info.flags[name] for name in ("GGML_NATIVE", "GGML_OPENMP", "GGML_LTO", "GGML_CPU_REPACK")},
        "llama_commit": info.llama_commit,
        "version": info.version,
        "commit": commit(),
    }


def cpu_facts() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo; nothing elsewhere than on Linux."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


SOURCES = ("python", "native", "cmake", "vendor")


def commit() -> str:
    """The last commit that changed the package or its build, with "+" where files differ from it; "" without git."""
    words = (["log", "-1", "--format=%H"], ["status", "--porcelain", "--untracked-files=no"])
    try:
        found, changed = (
            subprocess.run(["git", *each, "--", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for each in words
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.strip() + ("+" if changed.strip() else "")


def slug(cpu: str) -> str:
    """A CPU's name as a part of a file's name."""
    words = re.sub(r"\((R|TM|tm)\)|CPU|Processor|@.*", " ", cpu)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "cpu"


@dataclass
class Watch:
    """How many cores others kept busy during a block; None where the system does not tell.

    Ours is what this process and its children (those that have ended) used; what a hypervisor took counts as others'.
    """

    others: float | None = None

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        after = self._now()
        if self._before is not None and after is not None:
            seconds, busy, ours = (b - a for a, b in zip(self._before, after, strict=True))
            self.others = round(max(0.0, busy - ours) / seconds, 3)

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        if not sys.platform.startswith("linux"):
            return None
        import resource

        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        user, nice, system, _idle, _wait, irq, softirq, steal = ticks
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy, sum(usage.ru_utime + usage.ru_stime for usage in usages)
