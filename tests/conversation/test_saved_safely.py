"""Whatever interrupts a save, there is the old file or the new one, whole."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from talking import spoken

from causerie import Engine, StateError, StateWarning

HERE = Path(__file__).parent
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def listing(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@posix
def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(
    engine: Engine, smollm2_path: Path, tmp_path: Path
) -> None:
    """200 children, forked from one process that has the conversation; each is killed while it saves in a loop."""
    r, kills = random.Random(11), int(os.environ.get("CAUSERIE_KILLS", "200"))
    path = tmp_path / "file.causerie"
    command = [sys.executable, HERE / "saving_forever.py", smollm2_path, tmp_path, kills]
    seen: set[int] = set()
    leftovers = 0
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(part) for part in command], **pipes) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(kills):
                child = int(process.stdout.readline())
                time.sleep(r.random() * 0.02)
                os.kill(child, signal.SIGKILL)
                assert process.stdout.readline() == "gone\n"
                for left in tmp_path.glob(".causerie-*.tmp"):
                    leftovers += 1
                    left.unlink()
                assert listing(tmp_path) in ([], ["file.causerie"])
                if path.exists():
                    with engine.load_conversation(path, cache="require") as loaded:
                        seen.add(len(loaded.messages))
                process.stdin.write("next\n")
                process.stdin.flush()
        except BaseException:
            process.kill()
            raise
    assert seen == {2, 4}
    assert leftovers > kills / 4  # it was in the middle of writing


@posix
@pytest.mark.parametrize("limit", [500, 900_000])
def test_a_full_disk_leaves_the_old_file_and_the_conversation(smollm2_path: Path, tmp_path: Path, limit: int) -> None:
    """The limit on the size of files stands in for the disk's end."""
    child = f"""
import resource, sys
from causerie import Engine
with Engine(sys.argv[1], n_ctx=512, n_threads=1) as engine:
    chat = engine.conversation()
    chat.send("Why is the sea salty?", max_tokens=9, temperature=0)
    chat.save("file")
    chat.send("And lakes?", max_tokens=9, temperature=0)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
    try:
        chat.save("file")
    except OSError as error:
        print(error.errno)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(len(engine.load_conversation("file", cache="require").messages))
    chat.save("file")
    print(len(engine.load_conversation("file", cache="require").messages))
"""
    done = subprocess.run(
        [sys.executable, "-c", child, smollm2_path], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(errno.EFBIG), "2", "4"]
    assert listing(tmp_path) == ["file"]


def test_an_interrupt_leaves_the_old_file(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = engine.conversation(system="Be brief.")
    chat.save(tmp_path / "file")
    chat.add_user("Hi")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                chat.save(tmp_path / "file")
        assert listing(tmp_path) == ["file"]
        assert len(engine.load_conversation(tmp_path / "file").messages) == 1


class TestAllOfThem:
    def test_are_saved_and_loaded(self, make_engine: Any, tmp_path: Path) -> None:
        engine, other = make_engine(), make_engine()
        names = ["tea", "tea", "../../etc/passwd", "", "ü" * 300, "con", "a\0b\n"]
        chats = [engine.conversation(name=name) for name in names]
        for number, chat in enumerate(chats):
            chat.send(f"Say {number}.", max_tokens=3, temperature=0)
        chats[0].fork()  # nobody holds it
        gone = engine.conversation(name="gone")
        gone.close()
        paths = engine.save_all(tmp_path / "all" / "of them", cache=True)
        assert len(paths) == len(set(paths)) == len(names)
        assert listing(tmp_path / "all" / "of them") == sorted(path.name for path in paths)
        assert listing(tmp_path) == ["all"]
        loaded = other.load_all(tmp_path / "all" / "of them")
        assert {chat.file: (chat.name, spoken(chat)) for chat in loaded} == {
            path: (chat.name, spoken(chat)) for path, chat in zip(paths, chats, strict=True)
        }
        assert set(loaded) == set(other.conversations)

    def test_who_was_saved_there_before_replaces_its_file(self, make_engine: Any, tmp_path: Path) -> None:
        engine = make_engine()
        chats = [engine.conversation(name="tea") for _ in range(3)]
        paths = engine.save_all(tmp_path)
        chats[1].add_user("Hi")
        chats[2].name = "coffee"
        assert engine.save_all(tmp_path) == paths
        elsewhere = engine.save_all(tmp_path / "b")
        assert not set(paths) & set(elsewhere)
        again = make_engine()
        loaded = again.load_all(tmp_path)
        twice = again.load_all(tmp_path)
        assert again.save_all(tmp_path)[:3] == sorted(paths)
        assert len(listing(tmp_path)) == 7  # those that were loaded twice have files of their own; and the folder b
        assert [len(chat.messages) for chat in (*loaded, *twice)].count(1) == 2

    def test_one_that_fails_does_not_keep_the_others(self, make_engine: Any, tmp_path: Path) -> None:
        engine = make_engine()
        first, bad, last = (engine.conversation(name=name) for name in ("first", "bad", "last"))
        bad._settings = engine.conversation(input_transforms=[lambda text: text])._settings
        with pytest.raises(StateError, match="1 of 3") as caught:
            engine.save_all(tmp_path)
        assert [chat for chat, _ in caught.value.failures] == [bad]
        assert isinstance(caught.value.failures[0][1], ValueError)
        assert len(caught.value.saved) == 2
        assert len(engine.save_all(tmp_path, drop_functions=True)) == 3
        assert {first.file, last.file} == set(caught.value.saved)

    def test_of_one_that_is_replying_the_messages_are_saved(self, make_engine: Any, tmp_path: Path) -> None:
        engine = make_engine()
        chat = engine.conversation()
        with chat.stream("Tell me of a lighthouse.", max_tokens=50) as stream:
            next(stream)
            (path,) = engine.save_all(tmp_path)
        assert spoken(engine.load_conversation(path)) == [("user", "Tell me of a lighthouse.")]

    def test_a_file_that_cannot_be_loaded_is_left_out(self, make_engine: Any, tmp_path: Path) -> None:
        engine = make_engine()
        chats = [engine.conversation(name=f"c{n}") for n in range(3)]
        paths = engine.save_all(tmp_path)
        paths[1].write_bytes(paths[1].read_bytes()[:-1])
        (tmp_path / "notes.txt").write_text("mine")
        (tmp_path / "folder.causerie").mkdir()
        with pytest.warns(StateWarning) as told:
            loaded = engine.load_all(tmp_path)
        assert [chat.name for chat in loaded] == ["c0", "c2"]
        assert {Path(str(each.message).split()[0]).name for each in told} == {paths[1].name, "folder.causerie"}
        assert (tmp_path / "notes.txt").read_text() == "mine"
        del chats
        with pytest.raises(FileNotFoundError):
            engine.load_all(tmp_path / "missing")

    def test_without_conversations_the_folder_is_empty(self, make_engine: Any, tmp_path: Path) -> None:
        engine = make_engine()
        assert engine.save_all(tmp_path / "all") == []
        assert engine.load_all(tmp_path / "all") == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors and memory in /proc")
def test_many_leak_neither_descriptors_nor_memory(make_engine: Any, tmp_path: Path) -> None:
    """Each is another one, with a file of its own. CAUSERIE_SAVED_MANY=10000 makes as many of them.

    Their texts come again: the ids of the last few million characters are kept on purpose.
    """
    engine = make_engine(max_resident=4, parking_bytes=10_000_000)
    parent = engine.conversation(system="Be brief.")
    parent.send("Why is the sea salty?", max_tokens=4, temperature=0)

    def measured() -> tuple[int, int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        maps = len(Path("/proc/self/maps").read_text().splitlines())
        return len([*Path("/proc/self/fd").iterdir()]), maps, pages * os.sysconf("SC_PAGESIZE")

    def save_and_load(numbers: range) -> None:
        for number in numbers:
            path = tmp_path / f"{number}.causerie"
            with parent.fork() as chat:
                chat.name = f"number {number}"
                chat.add_user(f"And {number % 40}?")
                chat.save(path)
                snapshot = chat.snapshot()
            for found in (engine.load_conversation(path, cache="require"), engine.restore(snapshot)):
                assert (found.name, found.messages) == (f"number {number}", snapshot.messages)
                found.close()
            path.unlink()

    many = int(os.environ.get("CAUSERIE_SAVED_MANY", "100"))
    save_and_load(range(40))
    descriptors, maps, memory = measured()
    for start in range(0, many, 1000):
        save_and_load(range(start, min(start + 1000, many)))
        after = measured()
        print(f"{start + 1000}: {after[0]} descriptors, {after[1]} maps, {after[2] / 1e6:.1f} MB")
        assert after[0] == descriptors
        assert after[1] <= maps + 5
        assert after[2] < memory + 8_000_000  # 100 states take 100 MB and more
    assert engine.stats().sequences == 1
    assert listing(tmp_path) == []
