"""A file is replaced as a whole or not at all, and nothing else is touched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from causerie.files import replacing

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX")


def listing(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def put(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


@pytest.mark.parametrize("durable", [True, False])
def test_the_content_is_there_behind_the_block_and_not_before(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path, durable=durable) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert listing(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with replacing(tmp_path / "file") as file:
            file.write(b"new")
            raise error

    (tmp_path / "file").write_text("old")
    with pytest.raises(error):
        fail()
    assert (tmp_path / "file").read_text() == "old"
    assert listing(tmp_path) == ["file"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_permissions_of_an_existing_file_are_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    with replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_a_new_file_has_what_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        put(tmp_path / "file")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


@posix
def test_through_a_link_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    put(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "new"
    assert listing(tmp_path) == ["link", "there"]


@posix
def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError):
        put(tmp_path / "a")
    assert listing(tmp_path) == ["a", "b"]


@posix
def test_another_name_of_the_old_file_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    os.link(tmp_path / "file", tmp_path / "other")
    put(tmp_path / "file")
    assert (tmp_path / "other").read_text() == "old"


def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        put(tmp_path / "folder")
    assert listing(tmp_path) == ["folder"]


@posix
def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular"):
        put(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular"):
        put(Path("/dev/null"))
    assert listing(tmp_path) == ["pipe"]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        put(tmp_path / "missing" / "file")
    assert caught.value.filename == str(tmp_path / "missing" / "file")


AS_SOMEBODY = """
import os, sys
from causerie.files import replacing
if os.geteuid() == 0:  # permissions mean nothing to the superuser
    os.setgid(65534), os.setuid(65534)
try:
    with replacing(sys.argv[1]) as file:
        file.write(b"new")
    print("written")
except PermissionError:
    print("refused")
"""


@posix
@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "result"),
    [(0o666, 0o777, "written"), (0o444, 0o777, "refused"), (0o666, 0o555, "refused")],
)
def test_what_may_not_be_written_is_refused_and_stays(file_mode: int, folder_mode: int, result: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # pytest's own folder is closed to others
        folder = Path(name) / "folder"
        folder.mkdir()
        path = folder / "file"
        path.write_text("old")
        path.chmod(file_mode)
        folder.chmod(folder_mode)
        try:
            done = subprocess.run([sys.executable, "-c", AS_SOMEBODY, path], capture_output=True, text=True, check=True)
            assert done.stdout.strip() == result
            assert path.read_text() == {"written": "new", "refused": "old"}[result]
            assert listing(folder) == ["file"]
        finally:
            folder.chmod(0o755)


@posix
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """The limit on the size of files stands in for the disk's end."""
    child = """
import resource, sys
from causerie.files import write_container
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for size in (200_000, 20_000_000):
    try:
        write_container("file", {"data": bytes(size)})
    except OSError as error:
        print(error.errno)
"""
    (tmp_path / "file").write_text("old")
    done = subprocess.run([sys.executable, "-c", child], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["27", "27"]
    assert (tmp_path / "file").read_text() == "old"
    assert listing(tmp_path) == ["file"]
