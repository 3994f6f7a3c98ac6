"""llama.cpp's log goes to the logger "causerie.llama", and nowhere else."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tiny import write_llama

from causerie import DecodeError
from causerie.llama import Batch, Context, Model, lib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "causerie.llama"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


class Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, level: int) -> list[str]:
        return [r.getMessage() for r in self.records if r.levelno == level]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    handler, logger = Recorder(), logging.getLogger(NAME)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_levels_are_those_of_llama_cpp(path: Path, recorder: Recorder) -> None:
    with Model(path) as model, Context(model, n_ctx=128):
        pass
    assert any("arch" in text for text in recorder.texts(logging.INFO))
    assert any("n_ctx_seq (256) > n_ctx_train (64)" in text for text in recorder.texts(logging.WARNING))
    assert recorder.texts(logging.ERROR) == []
    assert {record.name for record in recorder.records} == {NAME}


def test_an_error_is_logged_and_raised(path: Path, recorder: Recorder) -> None:
    with Model(path) as model, Context(model, n_ctx=64) as context:
        batch = Batch(1)
        batch.add(4, 0)
        context.decode(batch)
        with pytest.raises(DecodeError):
            context.decode(batch)
    assert any("failed to decode, ret = -1" in text for text in recorder.texts(logging.ERROR))


def test_lines_are_whole_and_without_line_ends(path: Path, recorder: Recorder) -> None:
    with Model(path):
        pass
    texts = [record.getMessage() for record in recorder.records]
    assert len(texts) > 20
    assert not [text for text in texts if text != text.rstrip() or not text]


def test_a_percent_sign_in_a_record_is_just_text(tmp_path: Path, path: Path, recorder: Recorder) -> None:
    odd = tmp_path / "%s %d.gguf"
    odd.write_bytes(path.read_bytes())
    with Model(odd):
        pass
    assert any("%s %d.gguf" in record.getMessage() for record in recorder.records)


def test_records_below_the_level_are_not_made(path: Path, recorder: Recorder) -> None:
    logging.getLogger(NAME).setLevel(logging.ERROR)
    with Model(path):
        pass
    assert recorder.records == []
    logging.getLogger(NAME).setLevel(logging.DEBUG)
    with Model(path):
        pass
    assert recorder.records


def test_a_handler_may_use_the_library_itself(path: Path, recorder: Recorder) -> None:
    used: list[int] = []

    class Curious(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            if len(used) < 2:
                used.append(0)
                with Model(path) as inner:
                    used[-1] = inner.n_layer

    handler = Curious()
    logging.getLogger(NAME).addHandler(handler)
    try:
        with Model(path) as model:
            assert model.n_layer == 2
    finally:
        logging.getLogger(NAME).removeHandler(handler)
    assert used == [2, 2]
    assert recorder.records


def test_a_handler_that_raises_does_not_disturb_the_work(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise ZeroDivisionError

    handler = Broken()
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with Model(path) as model, Context(model, n_ctx=64) as context:
            batch = Batch(1)
            batch.add(4, 0, output=True)
            context.decode(batch)
            assert context.logits().size
        assert "ZeroDivisionError" in capsys.readouterr().err
        monkeypatch.setattr(logging, "raiseExceptions", False)
        Model(path).close()
        assert capsys.readouterr().err == ""
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def test_threads_log_together(path: Path, recorder: Recorder) -> None:
    def work() -> None:
        for _ in range(3):
            Model(path, vocab_only=True).close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Model(path, vocab_only=True).close()
    assert sum("loaded meta data" in record.getMessage() for record in recorder.records) >= 13


def test_a_flood_is_bounded_and_counted(path: Path) -> None:
    code = """
from causerie.llama import Model, lib
import causerie.llama._lib as module, sys
module._drain_lock.acquire()  # as if another thread were draining all the time
for _ in range(400):
    Model(sys.argv[1], vocab_only=True).close()
print(lib.causerie_log_dropped() > 0)
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert lib.causerie_log_dropped() >= 0


def test_it_is_silent_until_somebody_asks(path: Path) -> None:
    code = """
import logging, sys
from causerie.llama import Context, Model
if len(sys.argv) > 2:
    logging.basicConfig(level=logging.WARNING)
with Model(sys.argv[1]) as model, Context(model, n_ctx=128):
    pass
"""
    silent = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
    asked = subprocess.run([sys.executable, "-c", code, path, "log"], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout) == (0, "")
    assert "WARNING:causerie.llama:" in asked.stderr
