"""Checksums of what is stored, at the speed of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.llama._lib import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["checksum"]


def checksum(data: Buffer) -> bytes:
    """XXH3 with 128 bits, big endian: 16 bytes. It finds damage, not malice. Other threads run meanwhile.

    Args:
        data: contiguous bytes; not copied.
    """
    found = ffi.new("uint8_t[16]")
    view = ffi.from_buffer("uint8_t[]", data)
    lib.causerie_checksum(view, len(view), found)
    return bytes(found)
