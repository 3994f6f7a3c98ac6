"""Parking on disk: in a private folder that goes with its engine, or after a crash with the next one."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from engine_oracle import check_slots

from causerie.engine import TokenEngine
from causerie.engine._parking import Parking
from causerie.engine._parking_folder import ParkingFolder
from causerie.llama import Chooser, Model

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def ids(n: int, seed: int = 0) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randint(10, 120) for _ in range(n)]


def generate(engine: TokenEngine, sequence: Any, prompt: list[int]) -> Any:
    generation = engine.generate(sequence, prompt, chooser=Chooser(), max_tokens=4)
    engine.wait(generation)
    assert generation.error is None
    return generation


@pytest.mark.parametrize("ram", [0, 100_000])
def test_who_finds_no_room_in_ram_comes_back_from_disk(tiny: Model, tmp_path: Path, ram: int) -> None:
    options: dict[str, Any] = {"max_resident": 1, "n_threads": 1, "n_ctx": 256}
    with (
        TokenEngine(tiny, parking_bytes=ram, parking_folder=tmp_path, **options) as engine,
        TokenEngine(tiny, parking_bytes=0, **options) as other,
    ):
        sequences = [engine.sequence() for _ in range(5)]
        targets = [generate(engine, s, ids(50, n)).target for n, s in enumerate(sequences)]
        stats = engine.stats()
        assert stats.parked == 4
        assert stats.parked_disk_bytes > 0
        for sequence, target in zip(sequences, targets, strict=True):
            again = generate(engine, sequence, [*target, 7])
            assert again.cached == len(target) - 1
            assert again.tokens == generate(other, other.sequence(), [*target, 7]).tokens
        check_slots(engine, idle=True)
        for sequence in sequences:
            engine.close_sequence(sequence)
        engine.stats()
        (folder,) = tmp_path.iterdir()
        assert names(folder) == ["lock"]
        if sys.platform != "win32":
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert names(tmp_path) == []


def test_the_folder_is_made_and_goes_with_an_engine_that_is_dropped(tiny: Model, tmp_path: Path) -> None:
    engine = TokenEngine(tiny, parking_folder=tmp_path / "a" / "b", n_ctx=256)
    assert len(names(tmp_path / "a" / "b")) == 1
    del engine
    assert names(tmp_path / "a" / "b") == []


def test_a_folder_that_cannot_be_made_is_an_os_error(tiny: Model, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        TokenEngine(tiny, parking_folder=tmp_path / "file")
    with pytest.raises(ValueError, match="parking_disk_bytes"):
        TokenEngine(tiny, parking_folder=tmp_path, parking_disk_bytes=-1)
    assert names(tmp_path) == ["file"]


CRASH = """
import os, signal, sys
from pathlib import Path
from causerie.engine._parking_folder import ParkingFolder
folder = ParkingFolder(sys.argv[1])
folder.write([1, 2], bytes(1000))
Path(folder.path, ".causerie-0123456789abcdef.tmp").touch()
if len(sys.argv) > 2:
    Path(folder.path, "mine").touch()
print(folder.path.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def crashed(folder: Path, *more: str) -> str:
    done = subprocess.run([sys.executable, "-c", CRASH, folder, *more], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_what_a_crash_left_is_removed_at_the_next_start_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "causerie-parking-file").write_text("somebody's")
    (tmp_path / "causerie-parking-folder").mkdir()
    (tmp_path / "causerie-parking-folder" / "1.parked").write_text("somebody's")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "lock").touch()
    (tmp_path / "target" / "1.parked").touch()
    (tmp_path / "causerie-parking-link").symlink_to("target")
    (tmp_path / "other").touch()
    before = names(tmp_path)
    alive = ParkingFolder(tmp_path)
    alive.write([1], b"1")
    left = crashed(tmp_path)
    with_more = crashed(tmp_path, "more")
    assert left not in names(tmp_path)  # the second one has removed it
    assert with_more in names(tmp_path)
    newer = ParkingFolder(tmp_path)
    assert names(tmp_path) == sorted([*before, alive.path.name, newer.path.name, with_more])
    assert names(tmp_path / with_more) == ["mine"]
    assert names(alive.path) == ["0.parked", "lock"]
    assert names(tmp_path / "target") == ["1.parked", "lock"]
    alive.close()
    newer.close()
    newer.close()
    assert names(tmp_path) == sorted([*before, with_more])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork")
def test_a_forked_child_removes_nothing(tmp_path: Path) -> None:
    folder = ParkingFolder(tmp_path)
    child = os.fork()
    if not child:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert names(folder.path) == ["lock"]
    folder.close()


def test_a_damaged_or_missing_file_is_a_dropped_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parking = Parking(0, ParkingFolder(tmp_path), 1000)
    states = [parking.keep([n], bytes([n] * 100)) for n in range(3)]
    paths = sorted(tmp_path.glob("*/*.parked"))
    assert len(paths) == 3
    paths[0].unlink()
    raw = bytearray(paths[1].read_bytes())
    raw[-1] ^= 1
    paths[1].write_bytes(raw)
    found = [parking.read(state) for state in states if state is not None]
    assert found == [None, None, bytes([2] * 100)]
    assert (len(parking), parking.disk_used) == (1, 100)
    assert "evaluated again" in caplog.text
    del found
    parking.clear()
    assert names(tmp_path) == []


def test_a_full_disk_is_a_dropped_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    parking = Parking(150, ParkingFolder(tmp_path), 1000)
    monkeypatch.setattr("causerie.engine._parking_folder.write_container", full)
    first, second = parking.keep([1], bytes(100)), parking.keep([2], bytes(100))
    assert first is not None
    assert second is not None
    assert (first.kept, second.kept) == (False, True)
    assert parking.keep([3], bytes(200)) is None
    assert (parking.used, parking.disk_used) == (100, 0)
    parking.clear()


def test_disk_has_a_budget_too(tmp_path: Path) -> None:
    parking = Parking(100, ParkingFolder(tmp_path), 250)
    states = [parking.keep([n], bytes(100)) for n in range(5)]
    assert [state is not None and state.kept for state in states] == [False, False, True, True, True]
    assert (parking.used, parking.disk_used) == (100, 200)
    assert parking.keep([9], bytes(251)) is None
    parking.clear()
    assert (parking.used, parking.disk_used, len(parking)) == (0, 0, 0)
