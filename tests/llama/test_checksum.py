"""Checksums are XXH3's, of whatever holds contiguous bytes."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from causerie.llama.checksum import checksum


def test_values_are_those_of_xxh3() -> None:
    assert checksum(b"").hex() == "99aa06d3014798d86001c324468d497f"
    assert checksum(b"abc").hex() == "06b05ab6733a618578af5f94892f3950"


def test_every_bit_counts() -> None:
    for length in (1, 3, 8, 16, 17, 128, 129, 240, 241, 1024, 1025):  # where the algorithm changes its ways
        data = bytearray(os.urandom(length))
        found = {checksum(data)}
        for place in range(8 * length):
            data[place // 8] ^= 1 << place % 8
            found.add(checksum(data))
            data[place // 8] ^= 1 << place % 8
        assert len(found) == 8 * length + 1


def test_whatever_holds_bytes() -> None:
    data = os.urandom(1 << 13)
    with mmap.mmap(-1, len(data)) as mapped:
        mapped.write(data)
        for view in (bytearray(data), memoryview(data), np.frombuffer(data, "<i4"), mapped):
            assert checksum(view) == checksum(data)
    assert checksum(memoryview(data)[7:9]) == checksum(data[7:9])


@pytest.mark.parametrize("data", ["text", None, memoryview(bytes(8))[::2]])
def test_what_is_no_contiguous_bytes_is_refused(data: object) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        checksum(data)  # type: ignore[arg-type]
