"""Files of saved state: replaced as a whole or not at all, and read without trusting them."""

from __future__ import annotations

import os
from pathlib import Path

from causerie.errors import StateError
from causerie.llama import _state_format as form

__all__ = ["read", "write"]


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Let `path` hold `data`. Whoever looks, or a crash at any moment, finds the old content or the new one.

    Raises:
        OSError: the folder or the disk refused.
    """
    target = Path(os.path.realpath(path))  # through a link, to the file that it names
    temporary = target.with_name(f".causerie-{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power failure, where the system lets folders be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


def read(path: str | os.PathLike[str]) -> bytearray:
    """A state file's content, read only if its first bytes say that it is one, of this length.

    Raises:
        OSError: it cannot be read.
        StateError: it is not a saved state, or it is truncated.
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - any os.PathLike
        prefix = file.read(form.PREFIX_SIZE)
        expected, found = form.announced_size(prefix), os.fstat(file.fileno()).st_size
        if found != expected:
            raise StateError(f"{os.fspath(path)} holds {found} bytes where {expected} are announced: it is truncated")
        data = bytearray(expected)
        data[: len(prefix)] = prefix
        view = memoryview(data)[len(prefix) :]
        while view:
            count = file.readinto(view)
            if not count:
                raise StateError(f"{os.fspath(path)} ended while it was being read")
            view = view[count:]
    return data
