"""Model files that are missing, unreadable, damaged or too large: a typed error with path, size and reason."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import write_llama

from causerie import ModelLoadError, OutOfMemoryError
from causerie.llama import Context, Model, _context_params, _memory_check, available_memory


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_llama(tmp_path_factory.mktemp("whole") / "tiny.gguf").read_bytes()


def refused(path: Path | str, **options: object) -> ModelLoadError:
    """The error of loading a file, which must tell what DESIGN promises."""
    with pytest.raises(ModelLoadError) as caught:
        Model(path, **options)  # type: ignore[arg-type]
    error = caught.value
    assert error.path == str(path)
    assert error.reason
    assert error.reason in str(error)
    assert isinstance(pickle.loads(pickle.dumps(error)), ModelLoadError)
    return error


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        error = refused(tmp_path / "nowhere.gguf")
        assert (error.size, error.reason) == (None, "No such file or directory")

    def test_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.gguf"
        path.touch()
        assert (refused(path).size, refused(path).reason) == (0, "empty file")

    def test_a_folder(self, tmp_path: Path) -> None:
        assert refused(tmp_path).reason == "is a folder"

    def test_a_file_as_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert refused(tmp_path / "file" / "x.gguf").reason == "Not a directory"

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert refused(tmp_path / "pipe").reason == "not a regular file"

    def test_a_device(self) -> None:
        assert refused(Path(os.devnull)).reason in {"not a regular file", "empty file"}

    def test_a_link_to_itself(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        assert "symbolic links" in refused(tmp_path / "loop").reason

    def test_a_name_that_is_too_long(self, tmp_path: Path) -> None:
        assert refused(tmp_path / ("x" * 300)).reason == "File name too long"

    @pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
    def test_unreadable(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "secret.gguf"
        path.write_bytes(content)
        path.chmod(0)
        if os.access(path, os.R_OK):  # root reads everything: ask the system as somebody else
            code = (
                "import os, sys; from causerie.llama import Model; from causerie import ModelLoadError; os.setuid(65534)\n"
                "try: Model(sys.argv[1])\n"
                "except ModelLoadError as error: print(error.reason)"
            )
            tmp_path.chmod(0o755)
            for folder in list(tmp_path.parents)[:2]:
                folder.chmod(0o755)
            done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
            assert (done.stdout, done.stderr) == ("Permission denied\n", "")
        else:
            assert refused(path).reason == "Permission denied"

    def test_a_nul_in_the_path(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"NUL|null"):
            Model(f"{tmp_path}/a\0b.gguf")

    def test_an_empty_file_object(self, tmp_path: Path) -> None:
        path = tmp_path / "empty"
        path.touch()
        with path.open("rb") as file, pytest.raises(ModelLoadError, match="empty"):
            Model(file)

    def test_a_damaged_file_object_keeps_its_position(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "cut"
        path.write_bytes(b"1234" + content[:5000])
        with path.open("rb") as file:
            file.seek(4)
            with pytest.raises(ModelLoadError) as caught:
                Model(file)
            assert (file.tell(), caught.value.size) == (4, 5000)


class TestContent:
    @pytest.mark.parametrize("junk", [b"x", b"GGUF", b"GGML" + bytes(100), b"PK\x03\x04" + bytes(5000), b"\n" * 9000])
    def test_not_gguf(self, tmp_path: Path, junk: bytes) -> None:
        path = tmp_path / "junk.gguf"
        path.write_bytes(junk)
        error = refused(path)
        assert error.size == len(junk)
        assert "gguf" in error.reason

    @pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 0.03, 0.04, 0.2, 0.5, 0.9, 0.99999])
    def test_truncated(self, tmp_path: Path, content: bytes, share: float) -> None:
        path = tmp_path / "cut.gguf"
        path.write_bytes(content[: int(len(content) * share)])
        assert refused(path).size == int(len(content) * share)

    def test_of_an_unknown_architecture(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "alien.gguf"
        path.write_bytes(content.replace(b"llama", b"alien"))
        assert refused(path).reason == "unknown model architecture: 'alien'"

    def test_with_facts_that_contradict_each_other(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "odd.gguf"
        path.write_bytes(content)
        assert "n_rot" in refused(path, kv_overrides={"llama.attention.head_count": 7}).reason

    @pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
    def test_with_an_epsilon_that_would_abort_the_first_evaluation(
        self, tmp_path: Path, content: bytes, value: float
    ) -> None:
        path = tmp_path / "eps.gguf"
        path.write_bytes(content)
        assert "epsilon" in refused(path, kv_overrides={"llama.attention.layer_norm_rms_epsilon": value}).reason

    def test_the_next_load_works(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "tiny.gguf"
        path.write_bytes(content[:6000])
        refused(path)
        path.write_bytes(content)
        Model(path).close()


FUZZ = """
import random, sys
from pathlib import Path
from causerie import CauserieError
from causerie.llama import Batch, Context, Model

content, path, seed = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
loaded = 0
for _ in range(int(sys.argv[4])):
    data = bytearray(content)
    if rng.random() < 0.2:
        del data[rng.randrange(1, 6000):]
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        i = rng.randrange(min(4200, len(data)))
        data[i] = rng.choice((data[i] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)))
    path.write_bytes(data)
    try:
        with Model(path) as model, Context(model, n_ctx=64, n_batch=32, n_threads=1) as context:
            batch = Batch(4)
            batch.add_sequence([4, 5, 6], 0, 0)
            context.decode(batch)
            context.logits()
            model.vocab.tokenize("a b", add_special=False)
            loaded += 1
    except (CauserieError, ValueError):
        pass
print(loaded)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_no_damage_ends_the_process(tmp_path: Path, content: bytes, seed: int) -> None:
    whole = tmp_path / "whole.gguf"
    whole.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, whole, tmp_path / "damaged.gguf", str(seed), "150"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 < int(done.stdout) < 150


class TestMemory:
    def test_what_is_free_is_known(self) -> None:
        assert (available_memory() or 0) > 2**20

    def test_a_model_larger_than_that_is_refused(
        self, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "tiny.gguf"
        path.write_bytes(content)
        monkeypatch.setattr(_memory_check, "available_memory", lambda: 1000)
        with pytest.raises(OutOfMemoryError, match="only 1000 B of memory are free") as caught:
            Model(path)
        assert (caught.value.needed, caught.value.available) == (len(content), 1000)
        Model(path, check_memory=False).close()
        Model(path, vocab_only=True).close()

    def test_all_parts_of_a_split_model_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = write_llama(tmp_path / "split.gguf", split_max_tensors=5)
        monkeypatch.setattr(_memory_check, "available_memory", lambda: 1000)
        with pytest.raises(OutOfMemoryError) as caught:
            Model(first)
        assert caught.value.needed == sum(p.stat().st_size for p in tmp_path.glob("split-*.gguf"))

    def test_a_context_larger_than_that_is_refused(self, model: Model) -> None:
        with pytest.raises(OutOfMemoryError, match="n_ctx=2000000000 needs") as caught:
            Context(model, n_ctx=2_000_000_000)
        assert (caught.value.needed or 0) > (caught.value.available or 0) > 0

    def test_one_that_just_does_not_fit_is_refused(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        free = 64 * 2**20
        monkeypatch.setattr(_context_params, "available_memory", lambda: free)
        with pytest.raises(OutOfMemoryError) as caught:
            Context(model, n_ctx=8192, n_batch=64, n_ubatch=64)
        assert caught.value.available == free
        assert free < (caught.value.needed or 0) < 400 * 2**20
        Context(model, n_ctx=256, n_batch=32, n_ubatch=32).close()

    def test_cells_for_many_sequences_count(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_context_params, "available_memory", lambda: 64 * 2**20)
        with pytest.raises(OutOfMemoryError):
            Context(model, n_ctx=256, n_seq_max=64, n_batch=64, n_ubatch=64)

    def test_an_address_space_that_is_too_small(self, smollm2_path: Path) -> None:
        code = """
import resource, sys
from causerie import OutOfMemoryError
from causerie.llama import Context, Model
with Model(sys.argv[1], vocab_only=True):
    pass
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 60 * 2**20, resource.RLIM_INFINITY))
for check_memory in (True, False):
    try:
        Model(sys.argv[1], check_memory=check_memory, load_mode="none")
    except OutOfMemoryError as error:
        print(check_memory, error.needed > error.available)
"""
        done = subprocess.run([sys.executable, "-c", code, smollm2_path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "True True\nFalse True\n"

    def test_a_context_that_the_system_denies(self, smollm2_path: Path) -> None:
        code = """
import resource, sys
from causerie import OutOfMemoryError
from causerie.llama import Context, Model
model = Model(sys.argv[1])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 500 * 2**20, resource.RLIM_INFINITY))
for check_memory in (True, False):
    try:
        Context(model, n_ctx=65536, check_memory=check_memory)
    except OutOfMemoryError as error:
        print(error.available > 0)
Context(model, n_ctx=256, n_batch=32, n_ubatch=32, n_threads=1).close()
"""
        done = subprocess.run([sys.executable, "-c", code, smollm2_path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "True\nTrue\n"


def test_limits_of_this_process_are_untouched() -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
