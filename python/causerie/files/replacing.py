"""A file's new content takes the place of the old one at once: whoever looks, or a crash, finds one or the other."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

__all__ = ["replacing", "write_all"]


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[FileIO]:
    """A new, empty file to write and read, which takes the place of `path` when the block ends well.

    It is written beside `path`, under a name of its own (`.causerie-<16 hex digits>.tmp`), which a process that is
    killed leaves behind. Through a symbolic link, the file that it names is replaced. Permission bits of an existing
    file are kept, and its owner where that is allowed; nothing else is touched.

    Args:
        path: what is replaced; its folder must exist.
        durable: have it on the disk before it takes the place, so that it survives a power failure too.

    Raises:
        OSError: the folder, the disk or the old file's permissions refused, or `path` is not a regular file; the old
            file is as it was.
    """
    target = Path(os.path.realpath(path))
    old = _replaceable(target)
    temporary = target.with_name(f".causerie-{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("x+b", buffering=0) as file:
            if old is not None:
                _take_over(file.fileno(), temporary, old)
            yield file
            if durable:
                os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(target)  # what the caller knows of
        raise
    if durable:
        _sync_folder(target.parent)


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all of it: one call of the system may write less."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _replaceable(target: Path) -> os.stat_result | None:
    """What is known of the file there is; None: there is none."""
    try:
        found = target.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if stat.S_ISLNK(found.st_mode):  # realpath ends at one only where links go round in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(target))
    if not os.access(target, os.W_OK):  # renaming over it would be allowed, and is not what was meant
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return found


def _take_over(descriptor: int, path: Path, old: os.stat_result) -> None:
    """Give a new file the owner and the permissions of the old one, before there is anything to read in it."""
    if hasattr(os, "fchown"):
        with suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    path.chmod(stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power failure, where the system lets folders be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
