"""The file format: what is written comes back, and what was changed in any way is refused."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie import StateError
from causerie.files import Container, write_container
from causerie.llama.checksum import checksum

SECTIONS = {"text": b"some text" * 9, "nothing": b"", "data": bytes(range(256))}
MOST = 1 << 20


def read(path: Path) -> dict[str, bytes]:
    with Container(path) as container:
        return {name: container.read(name, most=MOST) for name in container.names}


@pytest.fixture(params=[(), ("data", "nothing")], ids=["plain", "compressed"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_container(tmp_path / "file", SECTIONS, compress=request.param)
    return tmp_path / "file"


def test_what_is_written_comes_back(written: Path) -> None:
    assert read(written) == SECTIONS
    with Container(written) as container:
        assert container.names == tuple(SECTIONS)
        assert "data" in container
        assert "other" not in container
        assert container.length("data") == len(SECTIONS["data"])


@settings(max_examples=30)
@given(
    sections=st.dictionaries(st.from_regex(r"\A[A-Za-z0-9]{1,16}\Z"), st.binary(max_size=300), max_size=16),
    compressed=st.booleans(),
)
def test_any_sections_come_back(
    tmp_path_factory: pytest.TempPathFactory, sections: dict[str, bytes], compressed: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    write_container(path, sections, compress=sections if compressed else ())
    assert read(path) == sections


@pytest.mark.parametrize("compress", [(), ("data",)])
def test_large_sections_come_back(tmp_path: Path, compress: tuple[str, ...]) -> None:
    data = os.urandom(5_000_000) + bytes(5_000_000)
    write_container(tmp_path / "file", {"data": data}, compress=compress)
    with Container(tmp_path / "file") as container:
        assert container.view("data", most=len(data)) == data


def test_a_plain_section_is_a_view_of_the_file_at_an_aligned_place(tmp_path: Path) -> None:
    write_container(tmp_path / "file", SECTIONS)
    raw = (tmp_path / "file").read_bytes()
    with Container(tmp_path / "file") as container:
        view = container.view("data", most=0)
        assert view.readonly
        assert raw.index(SECTIONS["data"]) % 64 == 0
        view.release()


def test_the_layout_is_the_documented_one(tmp_path: Path) -> None:
    write_container(tmp_path / "file", {"data": b"abc"})
    raw = (tmp_path / "file").read_bytes()
    assert raw[:32] == b"\x89causerie\r\n\x1a\n\0\0\0" + struct.pack("<IIQ", 2, 1, len(raw))
    table = struct.pack("<16sQQQ8s", b"data", 192, 3, 3, b"none") + checksum(b"abc") + bytes(16)
    assert raw[32:64] == checksum(raw[:32] + table) + bytes(16)
    assert raw[64:] == table + bytes(192 - 144) + b"abc"


def test_every_changed_bit_is_noticed(written: Path) -> None:
    raw = written.read_bytes()
    for place in range(len(raw)):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << place % 8
        written.write_bytes(damaged)
        with pytest.raises(StateError):
            read(written)


def test_every_truncation_is_noticed(written: Path) -> None:
    raw = written.read_bytes()
    for length in (*range(200), *range(200, len(raw), 7)):
        written.write_bytes(raw[:length])
        with pytest.raises(StateError):
            read(written)
    written.write_bytes(raw + b"\0")
    with pytest.raises(StateError, match="followed"):
        read(written)


def test_sections_of_another_file_are_noticed(tmp_path: Path) -> None:
    write_container(tmp_path / "a", {"x": b"1" * 64, "y": b"2" * 64})
    write_container(tmp_path / "b", {"x": b"3" * 64, "y": b"4" * 64})
    a, b = (tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()
    assert len(a) == len(b)
    for cut in range(1, len(a)):
        if a[:cut] != b[:cut] and a[cut:] != b[cut:]:
            (tmp_path / "c").write_bytes(a[:cut] + b[cut:])
            with pytest.raises(StateError):
                read(tmp_path / "c")


def test_another_version_says_what_was_expected_and_found(tmp_path: Path) -> None:
    write_container(tmp_path / "file", SECTIONS)
    raw = bytearray((tmp_path / "file").read_bytes())
    for version in (0, 3, 255):
        raw[16] = version
        (tmp_path / "file").write_bytes(raw)
        with pytest.raises(StateError, match=f"version {version},") as caught:
            read(tmp_path / "file")
        assert (caught.value.expected, caught.value.found) == (2, version)


def test_version_1_is_read(tmp_path: Path) -> None:
    """It has SHA-256; a file of one version that says it is of the other is damaged."""
    table = struct.pack("<16sQQQ8s", b"data", 192, 3, 3, b"none") + hashlib.sha256(b"abc").digest()
    plain = struct.pack("<16sIIQ", b"\x89causerie\r\n\x1a\n\0\0\0", 1, 1, 195)
    raw = plain + hashlib.sha256(plain + table).digest() + table + bytes(48) + b"abc"
    (tmp_path / "file").write_bytes(raw)
    assert read(tmp_path / "file") == {"data": b"abc"}
    for place, changed in ((16, b"\2"), (64, b"e"), (194, b"d")):
        (tmp_path / "file").write_bytes(raw[:place] + changed + raw[place + 1 :])
        with pytest.raises(StateError, match="checksum"):
            read(tmp_path / "file")
    write_container(tmp_path / "file", {"data": b"abc"})
    now = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(now[:16] + b"\1" + now[17:])
    with pytest.raises(StateError, match="checksum"):
        read(tmp_path / "file")


def forged(count: int, length: int, table: bytes, rest: bytes = b"") -> bytes:
    """A file with checksums that are right, whatever it says."""
    plain = struct.pack("<16sIIQ", b"\x89causerie\r\n\x1a\n\0\0\0", 2, count, length)
    return plain + checksum(plain + table) + bytes(16) + table + rest


def entry(
    offset: int, stored: int, length: int, *, name: bytes = b"a", how: bytes = b"none", data: bytes = b""
) -> bytes:
    return struct.pack("<16sQQQ8s32s", name, offset, stored, length, how, checksum(data))


BOMB = zlib.compress(bytes(50_000_000), 9)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89causerie\r\n\x1a\n",
        forged(2**32 - 1, 64, b""),
        forged(17, 64 + 17 * 80, entry(192, 0, 0) * 17),
        forged(1, 144, entry(192, 2**63, 2**63)),
        forged(1, 144, entry(2**64 - 64, 64, 64)),
        forged(1, 144, entry(144, 0, 0)),
        forged(1, 192, entry(192, 0, 0, name=b"../x"), bytes(48)),
        forged(1, 192, entry(192, 0, 0, name=b""), bytes(48)),
        forged(1, 192, entry(192, 0, 0, how=b"lzma"), bytes(48)),
        forged(1, 192, entry(192, 0, 1), bytes(48)),
        forged(1, 193, entry(192, 0, 0), bytes(49)),
        forged(2, 256, entry(256, 0, 0) * 2, bytes(32)),
        forged(1, 192, entry(192, 0, 0), bytes(47) + b"x"),
        forged(1, 192 + len(BOMB), entry(192, len(BOMB), 2**40, how=b"zlib", data=BOMB), bytes(48) + BOMB),
        forged(1, 192 + len(BOMB), entry(192, len(BOMB), 100, how=b"zlib", data=BOMB), bytes(48) + BOMB),
        forged(1, 192 + len(BOMB), entry(192, len(BOMB), 1 << 19, how=b"zlib", data=BOMB), bytes(48) + BOMB),
        forged(1, 195, entry(192, 3, 3, how=b"zlib", data=b"abc"), bytes(48) + b"abc"),
    ],
)
def test_a_forged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StateError):
        read(tmp_path / "file")


@pytest.mark.parametrize("tail", [b"", b"x", zlib.compress(b"more")])
def test_compressed_data_that_do_not_end_where_they_should_are_refused(tmp_path: Path, tail: bytes) -> None:
    data = zlib.compress(b"something" * 9)
    data = data + tail if tail else data[:-3]
    content = forged(1, 192 + len(data), entry(192, len(data), 81, how=b"zlib", data=data), bytes(48) + data)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StateError):
        read(tmp_path / "file")


def test_a_missing_section_is_a_state_error(written: Path) -> None:
    with Container(written) as container, pytest.raises(StateError, match="no section 'more'"):
        container.read("more", most=MOST)


def test_missing_files_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Container(tmp_path / "missing")
    with pytest.raises(OSError):
        Container(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StateError, match="regular"):
            Container(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["", "a b", "ä", "../a", "x" * 17])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        write_container(tmp_path / "file", {name: b""})
    assert not list(tmp_path.iterdir())


def test_a_view_may_outlive_the_container(tmp_path: Path) -> None:
    write_container(tmp_path / "file", SECTIONS)
    with Container(tmp_path / "file") as container:
        view = container.view("data", most=0)
    assert view == SECTIONS["data"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_no_descriptor_is_left_open(written: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(written.read_bytes()[:-1] + b"\x00")
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(20):
        read(written)
        with pytest.raises(StateError):
            read(tmp_path / "bad")
        write_container(tmp_path / "again", SECTIONS)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_file_is_written_also_when_the_interpreter_ends(tmp_path: Path) -> None:
    """Threads cannot be started any more then."""
    child = (
        "import atexit; from causerie.files import write_container as w; atexit.register(w, 'f', {'d': bytes(1 << 23)})"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", child], cwd=tmp_path, check=True)
    with Container(tmp_path / "f") as container:
        assert not any(container.view("d", most=0))
