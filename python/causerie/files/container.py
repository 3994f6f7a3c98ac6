"""The file format: named sections of bytes, with a table that says where each lies and a checksum of every byte.

Little endian. docs/saving.md describes it byte by byte:

| bytes | what |
|---|---|
| 16 | magic |
| 4, 4, 8 | format version, number of sections, length of the file |
| 32 | checksum of the above and the table |
| 80 each | table: name, offset, stored length, length, compression, checksum of the stored bytes |
| sections | each at the next multiple of 64, zeros between them |

A checksum is XXH3 with 128 bits (and zeros behind), which takes as long as reading the bytes; SHA-256 in version 1. It
finds damage, not malice.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from causerie.errors import StateError
from causerie.files.compression import deflated, inflated
from causerie.files.replacing import replacing, write_all

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from io import FileIO

    from typing_extensions import Buffer, Self

__all__ = ["Container", "write_container"]

VERSION = 2
_OLDEST = 1
_MAGIC = b"\x89causerie\r\n\x1a\n\0\0\0"  # a transfer as text would change it
_PLAIN = struct.Struct("<16sIIQ")
_DIGEST = 32
_ENTRY = struct.Struct("<16sQQQ8s32s")
_START = _PLAIN.size + _DIGEST
_ALIGN = 64
_MOST_SECTIONS = 16


class Entry(NamedTuple):
    """One line of the table."""

    name: str
    offset: int
    stored: int
    length: int
    compression: str
    digest: bytes


def _digest(version: int, data: bytes | memoryview) -> bytes:
    """The checksum of some bytes as a version has it."""
    if version == _OLDEST:
        import hashlib  # OpenSSL is some 4 MB, which other versions do without

        return hashlib.sha256(data).digest()
    from causerie.llama.checksum import checksum  # which loads the extension module

    return checksum(data).ljust(_DIGEST, b"\0")


def _aligned(offset: int) -> int:
    return offset + -offset % _ALIGN


def _field(text: str, size: int) -> bytes:
    raw = text.encode("ascii")
    if not raw.isalnum() or len(raw) > size:
        raise ValueError(f"a name has 1 to {size} letters and digits, unlike {text!r}")
    return raw.ljust(size, b"\0")


# ---- writing ----


def write_container(
    path: str | os.PathLike[str],
    sections: Mapping[str, Buffer],
    *,
    compress: Collection[str] = (),
    durable: bool = True,
) -> None:
    """Write a file of sections, which replaces an old one only when it is whole (`replacing`).

    Args:
        path: where to.
        sections: contiguous bytes by name (ASCII, at most 16 bytes); written from where they lie, without a copy.
        compress: names of those to compress.
        durable: as for `replacing`.

    Raises:
        OSError: as `replacing`; the old file is as it was.
    """
    table = _START + _ENTRY.size * len(sections)
    with replacing(path, durable=durable) as file:
        entries, offset = [], _aligned(table)
        for name, data in sections.items():
            file.seek(offset)
            entry = _write_section(file, name, memoryview(data).cast("B"), offset, compress=name in compress)
            entries.append(entry)
            offset = _aligned(entry.offset + entry.stored)
        end = entries[-1].offset + entries[-1].stored if entries else table
        file.truncate(end)
        plain = _PLAIN.pack(_MAGIC, VERSION, len(entries), end)
        packed = b"".join(_packed(entry) for entry in entries)
        file.seek(0)
        write_all(file, plain + _digest(VERSION, plain + packed) + packed)


def _write_section(file: FileIO, name: str, data: memoryview, offset: int, *, compress: bool) -> Entry:
    if not compress:
        write_all(file, data)
        return Entry(name, offset, len(data), len(data), "none", _digest(VERSION, data))
    for piece in deflated(data):
        write_all(file, piece)
    end = file.tell()
    with (
        mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as whole,
        memoryview(whole) as view,
        view[offset:] as stored,
    ):
        return Entry(name, offset, len(stored), len(data), "zlib", _digest(VERSION, stored))


def _packed(entry: Entry) -> bytes:
    name, compression = _field(entry.name, 16), _field(entry.compression, 8)
    return _ENTRY.pack(name, entry.offset, entry.stored, entry.length, compression, entry.digest)


# ---- reading ----


class Container:
    """A file of sections that is open for reading: mapped, not read, and checked before anything of it is given out.

    Use it in a `with` block; what `view` gave may not be used behind it.

    Args:
        path: where from.

    Raises:
        OSError: it cannot be read.
        StateError: it is no such file, of another version, truncated or damaged; `.expected`, `.found`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        with open(_regular(path), "rb", buffering=0) as file:  # noqa: PTH123 - any os.PathLike
            size = os.fstat(file.fileno()).st_size
            self._check_start(file, size)
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        self._whole = memoryview(self._map)
        try:
            self._entries = self._table()
        except BaseException:
            self.close()
            raise

    def _check_start(self, file: IO[bytes], size: int) -> None:
        start = file.read(_PLAIN.size)
        if len(start) < _PLAIN.size or not start.startswith(_MAGIC):
            raise StateError(
                f"{self.path} is not a file of saved state", path=self.path, expected=_MAGIC, found=start[: len(_MAGIC)]
            )
        _, version, count, length = _PLAIN.unpack(start)
        if not _OLDEST <= version <= VERSION:
            raise StateError(
                f"{self.path} has format version {version}, this version of causerie reads {_OLDEST} to {VERSION}",
                path=self.path, expected=VERSION, found=version,
            )  # fmt: skip
        if length != size:
            what = "truncated" if size < length else "followed by something else"
            raise StateError(
                f"{self.path} is {what}: {size} bytes where {length} are announced",
                path=self.path, expected=length, found=size,
            )  # fmt: skip
        if count > _MOST_SECTIONS or _START + count * _ENTRY.size > size:
            raise self._damaged(f"it announces {count} sections")

    def _damaged(self, what: str) -> StateError:
        return StateError(f"{self.path} is damaged: {what}", path=self.path)

    def _table(self) -> dict[str, Entry]:
        _, self._version, count, _ = _PLAIN.unpack_from(self._whole)
        end = _START + count * _ENTRY.size
        checked = bytes(self._whole[: _PLAIN.size]) + bytes(self._whole[_START:end])
        if _digest(self._version, checked) != self._whole[_PLAIN.size : _START]:
            raise self._damaged("the checksum of its table is wrong")
        entries: dict[str, Entry] = {}
        for fields in _ENTRY.iter_unpack(self._whole[_START:end]):
            name, offset, stored, length, compression, section = fields
            entry = Entry(_text(name), offset, stored, length, _text(compression), section)
            known = entry.compression in {"none", "zlib"}
            if not known or not entry.name or entry.name in entries or offset != _aligned(end):
                raise self._damaged("its table makes no sense")
            if any(self._whole[end : min(offset, len(self._whole))]):
                raise self._damaged("there is something between its sections")
            end = offset + stored
            if end > len(self._whole) or (entry.compression == "none" and length != stored):
                raise self._damaged("its table makes no sense")
            entries[entry.name] = entry
        if end != len(self._whole):
            raise self._damaged("its table makes no sense")
        return entries

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sections, in order."""
        return tuple(self._entries)

    def length(self, name: str) -> int:
        """Bytes of a section, as they were before they were compressed."""
        return self._entries[name].length

    def view(self, name: str, *, most: int) -> memoryview:
        """A section, checked; in the mapped file where it is not compressed.

        Args:
            name: which one.
            most: more bytes are refused before they take memory, if they are compressed.

        Raises:
            StateError: it is missing, damaged, or larger.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise self._damaged(f"it has no section {name!r}")
        stored = self._whole[entry.offset : entry.offset + entry.stored]
        if _digest(self._version, stored) != entry.digest:
            raise self._damaged(f"the checksum of its section {name!r} is wrong")
        if entry.compression == "none":
            return stored
        if entry.length > most:
            raise self._damaged(f"its section {name!r} announces {entry.length} bytes, more than {most}")
        return memoryview(inflated(stored, entry.length)).toreadonly()

    def read(self, name: str, *, most: int) -> bytes:
        """A copy of a section, checked, as `view` gives it."""
        return bytes(self.view(name, most=most))

    def close(self) -> None:
        """Give up the file. Idempotent."""
        with suppress(BufferError):  # who still holds a view keeps the mapping, and it goes with the last one
            self._whole.release()
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _regular(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The path, unless opening it would wait for somebody to write."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - any os.PathLike
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StateError(f"{os.fspath(path)} is not a regular file", path=os.fspath(path))
    return path


def _text(field: bytes) -> str:
    """A name of a table; "" if it is none."""
    raw = field.rstrip(b"\0")
    return raw.decode() if raw.isascii() and raw.isalnum() else ""
