"""How much memory is free, asked before llama.cpp allocates: a kernel that runs out kills the process later."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from causerie.errors import OutOfMemoryError
from causerie.llama._control_groups import control_groups
from causerie.llama._lib import ffi, lib

__all__ = ["available_memory", "format_bytes", "require"]


def format_bytes(count: int) -> str:
    """A size for people: 1536 -> "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _cgroup_available() -> int | None:
    """What the tightest control group of this process leaves free (Linux); None without a limit."""
    best: int | None = None
    for folder, version in control_groups("memory"):
        if version != 2:
            continue
        try:
            limit = (folder / "memory.max").read_text().strip()
            if limit != "max":
                reclaimable = sum(
                    int(line.split()[1])
                    for line in (folder / "memory.stat").read_text().splitlines()
                    if line.split()[0] in {"inactive_file", "active_file"}
                )
                left = int(limit) - int((folder / "memory.current").read_text()) + reclaimable
                best = left if best is None else min(best, left)
        except (OSError, ValueError, IndexError):
            pass
    return best


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping or being killed; None if this system does not tell."""
    found: list[int] = []
    if sys.platform.startswith("linux"):
        try:
            lines = Path("/proc/meminfo").read_text().splitlines()
            found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        except (OSError, ValueError):
            pass
        group = _cgroup_available()
        if group is not None:
            found.append(max(group, 0))
        try:
            import resource

            limit = resource.getrlimit(resource.RLIMIT_AS)[0]
            if limit != resource.RLIM_INFINITY:
                used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                found.append(max(limit - used, 0))
        except (ImportError, OSError, ValueError):
            pass
    else:
        device = lib.ggml_backend_dev_by_type(lib.GGML_BACKEND_DEVICE_TYPE_CPU)
        if device != ffi.NULL:
            free, total = ffi.new("size_t *"), ffi.new("size_t *")
            lib.ggml_backend_dev_memory(device, free, total)
            if free[0]:
                found.append(int(free[0]))
    return min(found) if found else None


def require(what: str, needed: int, advice: str) -> None:
    """Raise `OutOfMemoryError` if `needed` bytes are more than what is free."""
    available = available_memory()
    if available is not None and needed > available:
        raise OutOfMemoryError(
            f"{what} needs {format_bytes(needed)}, but only {format_bytes(available)} of memory are free; {advice}",
            needed=needed,
            available=available,
        )
