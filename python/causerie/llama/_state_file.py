"""Files of saved state: replaced as a whole or not at all, and read without trusting them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from causerie.errors import StateError
from causerie.files.replacing import replacing, write_all
from causerie.llama import _state_format as form

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["read", "write"]


def write(path: str | os.PathLike[str], data: Buffer) -> None:
    """Let `path` hold `data`. Whoever looks, or a crash at any moment, finds the old content or the new one.

    Raises:
        OSError: the folder or the disk refused.
    """
    with replacing(path) as file:
        write_all(file, memoryview(data))


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
