"""How many threads: physical cores, the affinity mask, and the limits of control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from causerie import doctor
from causerie.llama import _control_groups
from causerie.llama import processors as module
from causerie.llama.processors import Processors, processors

if TYPE_CHECKING:
    from pathlib import Path

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux tells")


@pytest.mark.parametrize(
    ("logical", "cores", "quota", "threads"),
    [(8, 8, None, 8), (8, 4, None, 4), (8, 4, 2.5, 2), (8, 4, 6.0, 4), (8, 4, 0.5, 1), (1, 1, None, 1)],
)
def test_one_thread_for_each_core_that_may_be_used(logical: int, cores: int, quota: float | None, threads: int) -> None:
    found = Processors(logical, cores, quota)
    assert found.threads == threads
    assert found.reason


def test_this_machine_has_some() -> None:
    found = processors()
    assert 1 <= found.threads <= found.cores <= found.logical <= (os.cpu_count() or 1)
    assert (doctor().threads, doctor().threads_reason) == (found.threads, found.reason)


@LINUX
def test_an_affinity_mask_counts() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from causerie.llama.processors import processors as p; print(p().logical, p().cores, p().threads)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert result.stdout.split() == ["1", "1", "1"], result.stderr


def files(root: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    files(tmp_path, {f"cpu{i}/topology/{name}": f"{i % 4},{i % 4 + 4}\n" for i in range(8)})
    monkeypatch.setattr(module, "_TOPOLOGY", tmp_path)
    assert module._cores(set(range(8))) == 4
    assert module._cores({0, 1, 4}) == 2
    assert module._cores({0, 9}) == 2  # one that nothing is known of


@pytest.mark.parametrize(
    ("own", "texts", "quota"),
    [
        ("0::/a/b\n", {"cpu.max": "max 100000", "a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/a\n", {"a/cpu.max": "max 100000"}, None),
        ("0::/\n", {"cpu.max": "400000 100000"}, 4.0),
        ("0::/gone\n", {}, None),
        ("3:cpu,cpuacct:/x\n0::/\n", {"cpu,cpuacct/x/cpu.cfs_quota_us": "200000",
                                       "cpu,cpuacct/x/cpu.cfs_period_us": "100000"}, 2.0),
        ("3:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, None),
        ("nonsense", {"cpu.max": "nonsense"}, None),
    ],
)  # fmt: skip
def test_control_groups_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, texts: dict[str, str], quota: float | None
) -> None:
    files(tmp_path / "cgroup", {"none": "", **texts})
    (tmp_path / "self").write_text(own)
    monkeypatch.setattr(_control_groups, "_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(_control_groups, "_OWN", tmp_path / "self")
    assert module._quota() == quota
