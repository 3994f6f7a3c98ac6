"""A private folder for parked states, removed when its engine is closed, or by the next one after a crash."""

from __future__ import annotations

import os
import re
import stat
import sys
import weakref
from array import array
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from causerie.errors import StateError
from causerie.files import Container, write_container

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ParkingFolder"]

_PREFIX = "causerie-parking-"
_LOCK = "lock"
# All that is ever written into such a folder, and so all that is removed from one.
_OWN = re.compile(r"lock|[0-9]+\.parked|\.causerie-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 10


class ParkingFolder:
    """A folder of its own below another one, for as long as it is used. Others of ended processes are removed first.

    Args:
        root: where; made if it is missing. Nothing in it is touched but folders that were made here.

    Raises:
        OSError: no folder can be made there.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        folder = Path(root)
        folder.mkdir(parents=True, exist_ok=True)
        for entry in sorted(folder.glob(f"{_PREFIX}*")):
            with suppress(OSError):  # it is somebody else's, or they are at it
                _remove_abandoned(entry)
        self.path, lock = _made(folder)
        self._numbers = count()
        self._finalizer = weakref.finalize(self, _give_up, self.path, lock, os.getpid())

    def _file(self, number: int) -> Path:
        return self.path / f"{number}.parked"

    def write(self, ids: Sequence[int], data: bytes | memoryview) -> int:
        """Write a state; gives the number of its file.

        Raises:
            OSError: the disk refused; nothing is left there.
        """
        number = next(self._numbers)
        write_container(self._file(number), {"tokens": array("i", ids), "cache": data}, durable=False)
        return number

    def read(self, number: int, ids: Sequence[int]) -> memoryview:
        """The state in a file, checked, in the mapped file.

        Raises:
            OSError, StateError: it is not there any more, or was changed.
        """
        with Container(self._file(number)) as container:
            if container.read("tokens", most=0) != array("i", ids).tobytes():
                raise StateError("a parked state is that of another sequence")
            return container.view("cache", most=0)

    def remove(self, number: int) -> None:
        """Remove a file; missing ones do not matter."""
        with suppress(OSError):
            self._file(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        self._finalizer()


def _made(root: Path) -> tuple[Path, int]:
    """A new folder and the descriptor of its lock, which is held until it is closed, or this process ends."""
    for _ in range(_ATTEMPTS):
        path = root / f"{_PREFIX}{os.urandom(8).hex()}"
        path.mkdir(mode=0o700)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if _locked(lock) and _is(path / _LOCK, lock):
            return path, lock
        with suppress(OSError):  # whoever removes what was abandoned took it for that
            _remove(path, lock)
    raise OSError(f"no folder could be made in {root}")


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _locked(descriptor: int) -> bool:
    """Whether the lock was free, and is ours now."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(path: Path) -> None:
    """Remove a folder of our own whose process has ended. A folder without a lock is being made, or is not ours."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "geteuid") and found.st_uid != os.geteuid()):
        return
    lock = os.open(path / _LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    if _locked(lock):
        _remove(path, lock)
    else:
        os.close(lock)


def _remove(path: Path, lock: int) -> None:
    """Remove what was written there, the lock last, and the folder if nothing else is in it."""
    names = [name for name in os.listdir(path) if _OWN.fullmatch(name) and name != _LOCK]  # noqa: PTH208 - names
    for name in names:
        (path / name).unlink(missing_ok=True)
    if sys.platform == "win32":  # what is open cannot be removed there
        os.close(lock)
        (path / _LOCK).unlink(missing_ok=True)
    else:
        (path / _LOCK).unlink(missing_ok=True)
        os.close(lock)
    path.rmdir()


def _give_up(path: Path, lock: int, process: int) -> None:
    if os.getpid() == process:  # a child of os.fork has no say
        with suppress(OSError):
            _remove(path, lock)
