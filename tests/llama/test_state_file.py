"""State files are replaced as a whole or not at all."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time

import pytest

from causerie.llama import Batch
from causerie.llama._state_file import read
from causerie.llama._state_format import parse


def listing(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def filled(context):
    batch = Batch(8)
    batch.add_sequence(range(100, 108), 0, 0)
    context.decode(batch)
    return context


def test_an_existing_file_is_replaced(filled, tmp_path):
    path = tmp_path / "state"
    path.write_text("old")
    filled.state.save_file(path, [1, 2])
    assert filled.state.load_file(path).tolist() == [1, 2]
    assert listing(tmp_path) == ["state"]


def test_a_string_and_any_path_like_are_taken(filled, tmp_path):
    class Somewhere:
        def __fspath__(self):
            return str(tmp_path / "state")

    filled.state.save_file(Somewhere(), [3])
    assert filled.state.load_file(str(tmp_path / "state")).tolist() == [3]


def test_a_link_stays_a_link(filled, tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    filled.state.save_file(tmp_path / "link", [1])
    assert (tmp_path / "link").is_symlink()
    assert filled.state.load_file(tmp_path / "real").tolist() == [1]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_new_file_has_the_permissions_that_the_umask_leaves(filled, tmp_path):
    old = os.umask(0o027)
    try:
        filled.state.save_file(tmp_path / "state")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o640


def test_a_folder_that_is_not_there_is_an_os_error(filled, tmp_path):
    with pytest.raises(FileNotFoundError):
        filled.state.save_file(tmp_path / "missing" / "state")
    with pytest.raises(FileNotFoundError):
        filled.state.load_file(tmp_path / "state")


def test_a_folder_in_the_way_is_an_os_error_and_stays(filled, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        filled.state.save_file(tmp_path / "folder")
    with pytest.raises(OSError):
        filled.state.load_file(tmp_path / "folder")
    assert listing(tmp_path) == ["folder"]


FULL_DISK = """
import resource, sys
from causerie.llama._state_file import write
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write(sys.argv[1], bytes(1_000_000))
except OSError as error:
    print(type(error).__name__, error.errno)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "state"
    path.write_text("old")
    found = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("OSError")
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["state"]


SAVE_FOREVER = """
import sys
from causerie.llama import Batch, Context, Model
with Model(sys.argv[1]) as model, Context(model, n_ctx=256, n_batch=64) as ctx:
    tokens = []
    while True:
        batch = Batch(1)
        batch.add(5 + len(tokens) % 100, len(tokens) % 200)
        if len(tokens) % 200 == 0:
            ctx.memory.clear()
            tokens = []
            batch.pos[0] = 0
        ctx.decode(batch)
        tokens.append(int(batch.token[0]))
        ctx.state.save_file(sys.argv[2], tokens)
        print(len(tokens), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new(tiny_models, tmp_path):
    rng = random.Random(3)
    path = tmp_path / "state"
    arguments = [sys.executable, "-c", SAVE_FOREVER, tiny_models["mamba-dense"], path]
    for _ in range(6):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            time.sleep(rng.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            process.stdout.read()
        blob = parse(read(path))
        ((seq, _, last),) = blob.header.sequences
        assert (seq, last) == (0, len(blob.tokens) - 1)
