"""The control groups that this process is in (Linux)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["control_groups"]

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def control_groups(kind: str) -> Iterator[tuple[Path, int]]:
    """Folders that limit this process, its own group's first, then those above; and the version of their files.

    Args:
        kind: which limits, "cpu" or "memory"; in version 1 each kind has folders of its own.
    """
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        kinds, _, path = line.partition(":")[2].partition(":")
        if not kinds:
            yield from ((folder, 2) for folder in _upwards(_ROOT, path))
        elif kind in kinds.split(","):
            root = _ROOT / kinds
            yield from ((folder, 1) for folder in _upwards(root if root.is_dir() else _ROOT / kind, path))


def _upwards(root: Path, path: str) -> Iterator[Path]:
    group = root / path.strip("/")
    for folder in (group, *group.parents):
        yield folder
        if folder == root:
            return
