"""Compressing sections of a file with zlib."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from causerie.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["deflated", "inflated", "pieces"]

_PIECE = 1 << 20
# Keys and values are nearly random in their low bits: more effort finds nothing more.
_LEVEL = 1


def pieces(data: memoryview) -> Iterator[memoryview]:
    """The data in pieces, without a copy."""
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


def deflated(data: memoryview) -> Iterator[bytes]:
    """The data compressed, piece by piece."""
    compressor = zlib.compressobj(_LEVEL)
    for piece in pieces(data):
        yield compressor.compress(piece)
    yield compressor.flush()


def inflated(data: memoryview, length: int) -> bytearray:
    """The data again; it takes no more memory than announced.

    Args:
        data: compressed bytes.
        length: what they must become, in bytes.

    Raises:
        StateError: damaged, or of another length.
    """
    found = bytearray()
    try:
        for piece in _inflated(data):
            if len(found) + len(piece) > length:
                raise StateError(f"a compressed section holds more than the {length} bytes it announces")
            found += piece
    except zlib.error as error:
        raise StateError(f"a compressed section is damaged: {error}") from None
    if len(found) != length:
        raise StateError(f"a compressed section holds {len(found)} bytes where it announces {length}")
    return found


def _inflated(data: memoryview) -> Iterator[bytes]:
    decompressor = zlib.decompressobj()
    used = 0
    for piece in pieces(data):
        used += len(piece)
        rest: bytes | memoryview = piece
        while rest:
            yield decompressor.decompress(rest, _PIECE)
            rest = decompressor.unconsumed_tail
        if decompressor.eof:
            break
    while not decompressor.eof:
        more = decompressor.decompress(b"", _PIECE)
        if not more:
            raise StateError("a compressed section is truncated")
        yield more
    if decompressor.unused_data or used != len(data):
        raise StateError("a compressed section is followed by something else")
