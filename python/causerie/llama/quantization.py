"""Writing a model file with smaller weights (llama_model_quantize)."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causerie.errors import ModelLoadError
from causerie.llama import _model_file as files
from causerie.llama import _quantize_options as settings
from causerie.llama._errors import call_log, check
from causerie.llama._gguf import Tensor, read_tensors
from causerie.llama._lib import drain_log, lib, log_observers, path_bytes
from causerie.llama._quantize_options import QuantizeOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["QuantizeOptions", "QuantizeReport", "quantize"]

_DEFAULTS = QuantizeOptions()
_POLL_SECONDS = 0.1
# llama.cpp tells how far it is only in its log, which is one for the process.
_one_at_a_time = threading.Lock()
# Its words for what the caller asked for wrongly, as opposed to a bad file.
_REFUSALS = ("requantizing", "imatrix", "importance matrix", "regular expression", "regex", "file type", "fallback")


@dataclass(frozen=True)
class QuantizeReport:
    """What `quantize` did.

    Attributes:
        paths: the files written; none in a dry run.
        source_size: bytes of the source's tensors.
        target_size: bytes of the new tensors; of a dry run to the nearest 0.01 MiB.
    """

    paths: tuple[Path, ...]
    source_size: int
    target_size: int


def quantize(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None,
    *,
    options: QuantizeOptions = _DEFAULTS,
    progress: Callable[[float], object] | None = None,
) -> QuantizeReport:
    """Write `source` to `target` with other tensor types (llama_model_quantize). One runs at a time per process.

    The target appears, or is replaced, only when it is complete. llama.cpp cannot be interrupted while it quantises:
    what `progress` raises, and KeyboardInterrupt, gets to the caller when it is done, and nothing is written.

    Args:
        source: a GGUF file; of a split model the first.
        target: the new file; with `keep_split` the start of the names `<target>-00001-of-0000N.gguf`; None for a dry
            run.
        options: what to do.
        progress: called with 0.0 ... 1.0, in steps of one tensor.

    Raises:
        ModelLoadError: the source is missing, empty or damaged; `.path`, `.size`, `.reason`.
        OSError: the target cannot be written.
        ValueError: source and target are the same, or an option is unknown or does not fit the model.
    """
    what = files.inspect(source)
    if what.path is None or len(what.paths) != 1:
        raise TypeError("source must be one path")
    sources = files._siblings(what.path)
    tensors = _tensors([p for p in sources if p.is_file()])
    params, keep = settings.build(options, tensors)
    source_size = sum(tensor.size for tensor in tensors.values())
    if options.dry_run:
        log = _work(what, None, params, progress)
        return QuantizeReport((), source_size, round(log.target_mib * 2**20))
    if target is None:
        raise ValueError("a target is needed unless options.dry_run is set")
    output = _Output(Path(target), sources, split=options.keep_split)
    try:
        _work(what, output, params, progress)
        del keep
        paths, target_size = output.commit()
    finally:
        output.discard()
    return QuantizeReport(paths, source_size, target_size)


def _tensors(paths: Sequence[Path]) -> dict[str, Tensor]:
    found = {}
    for path in paths:
        with path.open("rb") as file, files.opened_stream(file) as stream:
            tensors = read_tensors(stream, path=str(path), size=path.stat().st_size)
            found.update({tensor.name: tensor for tensor in tensors})
    return found


class _Output:
    """Files under temporary names in the target's folder, until they are complete."""

    def __init__(self, target: Path, sources: Sequence[Path], *, split: bool) -> None:
        self._split = split
        self._target = Path(os.path.realpath(target))
        names = [self._target]
        if split:
            names = [Path(f"{self._target}-{i:05d}-of-{len(sources):05d}.gguf") for i in range(1, len(sources) + 1)]
        if {os.path.realpath(source) for source in sources} & {str(name) for name in names} or any(
            name.exists() and source.exists() and name.samefile(source) for name in names for source in sources
        ):
            raise ValueError(f"source and target are the same file: {target}")
        if any(name.is_dir() for name in names):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        self.path = self._target.with_name(f".causerie-{os.urandom(8).hex()}.tmp")

    def create(self) -> None:
        """Make the temporary file. llama.cpp does not tell why it could not: this does."""
        try:
            self.path.open("xb").close()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._target)) from None

    def _written(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.name}-*-of-*.gguf")) if self._split else [self.path]

    def commit(self) -> tuple[tuple[Path, ...], int]:
        """Give the files their names, if they hold all of their tensors; the names, and bytes of tensors."""
        written = self._written()
        size = 0
        for path in written:
            tensors = _tensors([path]).values()
            if max((tensor.end for tensor in tensors), default=0) > path.stat().st_size:
                raise self.failure()
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            size += sum(tensor.size for tensor in tensors)
        names = [Path(f"{self._target}{path.name.removeprefix(self.path.name)}") for path in written]
        for path, name in zip(written, names, strict=True):
            path.replace(name)
        return tuple(names), size

    def discard(self) -> None:
        """Remove what has a temporary name still."""
        for path in {*self._written(), self.path}:
            path.unlink(missing_ok=True)

    def failure(self) -> OSError:
        """llama.cpp says only that writing failed; the usual reason is looked for."""
        import shutil

        full = shutil.disk_usage(self._target.parent).free < 2**20
        code = errno.ENOSPC if full else errno.EIO
        return OSError(code, f"{os.strerror(code)} (llama.cpp could not write all of it)", str(self._target))


class _Log:
    """What llama.cpp's log tells about a running quantisation."""

    _tensor = re.compile(r"\[ *(\d+)/ *(\d+)\]")
    _size = re.compile(r"quant size *= *([0-9.]+) MiB")
    _failure = re.compile(r"failed to quantize: (.*)")

    def __init__(self) -> None:
        self.fraction = 0.0
        self.reported = -1.0
        self.target_mib = 0.0
        self.failure = ""

    def __call__(self, text: str) -> None:
        """See one record."""
        for match in self._tensor.finditer(text):
            self.fraction = (int(match[1]) - 1) / max(int(match[2]), 1)
        if size := self._size.search(text):
            self.target_mib = float(size[1])
        if failure := self._failure.search(text):
            self.failure = failure[1]


def _work(
    what: files.ModelFile, output: _Output | None, params: Any, progress: Callable[[float], object] | None
) -> _Log:
    """Run llama_model_quantize on a thread of its own, while this one reads its log and reports."""
    log = _Log()
    source, target = path_bytes(what.paths[0]), b"" if output is None else path_bytes(output.path)
    interrupted: BaseException | None = None
    with _one_at_a_time, ThreadPoolExecutor(1, "causerie-quantize") as pool:
        # The thread first: one that an interrupt catches while it starts is not waited for when the pool is left.
        pool.submit(int).result()
        log_observers.add(log)
        try:
            if output is not None:
                output.create()
            future = pool.submit(_native, source, target, params)
            while not future.done():
                interrupted = _report(future, log, progress, interrupted)
            code, reason = _result(future, log)
        finally:
            log_observers.discard(log)
    if interrupted is not None:
        raise interrupted
    if code != 0:
        raise _failure(what, output, log.failure or reason or f"llama.cpp returned {code}")
    if progress is not None:
        progress(1.0)
    return log


def _report(
    future: Future[tuple[int, str]],
    log: _Log,
    progress: Callable[[float], object] | None,
    interrupted: BaseException | None,
) -> BaseException | None:
    """Wait a little, and tell how far it is; what was raised first, by `progress` or a signal, waits for llama.cpp."""
    try:
        wait([future], _POLL_SECONDS)
        drain_log()
        if progress is not None and interrupted is None and log.fraction > log.reported:
            log.reported = log.fraction
            progress(log.reported)
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt too
        return interrupted or error
    return interrupted


def _native(source: bytes, target: bytes, params: Any) -> tuple[int, str]:
    code = lib.llama_model_quantize(source, target, params)
    reason = call_log()
    check("quantising")
    return int(code), reason


def _result(future: Future[tuple[int, str]], log: _Log) -> tuple[int, str]:
    """The return value, once the log is read to its end: another thread may be reading it."""
    result = future.result()
    for _ in range(100):
        drain_log()
        if not lib.causerie_log_pending() and (result[0] == 0 or log.failure):
            break
        time.sleep(0.01)
    return result


def _failure(what: files.ModelFile, output: _Output | None, reason: str) -> Exception:
    if output is not None and ("iostream" in reason or "basic_ios" in reason):
        return output.failure()
    message = f"cannot quantise {what.name} ({what.size} bytes): {reason}"
    if any(words in reason for words in _REFUSALS):
        advice = "; set allow_requantize=True to accept the loss" if "requantizing" in reason else ""
        return ValueError(message + advice)
    return ModelLoadError(message, path=what.name, size=what.size, reason=reason)
