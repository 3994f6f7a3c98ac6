"""Where a model comes from: paths, split files or file objects, looked at before llama.cpp opens them."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from causerie.errors import ModelLoadError
from causerie.llama._gguf import read_tensors
from causerie.llama._lib import ffi, lib
from causerie.llama.device import devices as all_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ModelFile", "has_descriptor", "inspect", "may_offload", "opened_stream", "replaced"]

_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True)
class ModelFile:
    """A model's files as they are on disk; `path` is None where the source is a file object."""

    name: str
    size: int
    path: Path | None
    paths: tuple[Path, ...]
    stream: IO[bytes] | None
    position: int = 0

    @property
    def all_paths(self) -> list[Path]:
        """All files of a split model, also those that llama.cpp finds by itself; none for a file object."""
        return _siblings(self.paths[0]) if len(self.paths) == 1 else [*self.paths]

    @contextmanager
    def opened(self) -> Iterator[tuple[tuple[Path, ...], Any]]:
        """The paths and NULL-able C stream to hand to llama.cpp."""
        if self.stream is None:
            yield self.paths, None
            return
        with opened_stream(self.stream) as stream:
            yield (), stream


@contextmanager
def opened_stream(source: IO[bytes]) -> Iterator[Any]:
    """A C stream at the file object's position; its own position is put back afterwards.

    A file object without a descriptor (`io.BytesIO`) is copied into a temporary file first.
    """
    position = source.tell()
    if not has_descriptor(source):
        import shutil
        import tempfile

        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(source, copy)
            source.seek(position)
            copy.seek(0)
            with opened_stream(copy) as stream:
                yield stream
        return
    fd = source.fileno()
    if hasattr(source, "flush"):
        source.flush()
    os.lseek(fd, position, os.SEEK_SET)  # a buffered reader's descriptor is ahead of its position
    stream = lib.causerie_file_open(fd, b"rb")
    if stream == ffi.NULL:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    try:
        yield stream
    finally:
        lib.causerie_file_close(stream)
        source.seek(position)


def has_descriptor(source: IO[bytes]) -> bool:
    """Whether a file object is a file of the system's."""
    try:
        source.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):
        return False
    return True


def _refused(name: str, size: int | None, reason: str) -> ModelLoadError:
    return ModelLoadError(f"cannot load {name}: {reason}", path=name, size=size, reason=reason)


def _stat(path: Path) -> int:
    size = None
    try:
        found = path.stat()
        kind = found.st_mode
        if stat.S_ISREG(kind):  # opening a pipe would wait for somebody to write
            size = found.st_size
            with path.open("rb"):
                pass
    except OSError as error:
        raise _refused(str(path), size, error.strerror or str(error)) from None
    if not stat.S_ISREG(kind):
        raise _refused(str(path), None, "is a folder" if stat.S_ISDIR(kind) else "not a regular file")
    if size == 0:
        raise _refused(str(path), 0, "empty file")
    return found.st_size


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file's path, which takes the place of `path` at the end. A model that is mapped from the old file lives on.

    Raises:
        OSError: the folder or the disk refused; the old file stays.
    """
    target = Path(os.path.realpath(path))  # through a link, to the file that it names
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    temporary = target.with_name(f".causerie-{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("xb"):
            pass  # llama.cpp does not tell why it could not write: this does
        yield temporary
        _finish(temporary, str(target))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _finish(path: Path, name: str) -> None:
    """Have a written model on the disk, and check that it is whole: llama.cpp does not tell."""
    with path.open("rb+") as file, opened_stream(file) as stream:
        needed = max((t.end for t in read_tensors(stream, path=name, size=path.stat().st_size)), default=0)
        if needed > file.seek(0, io.SEEK_END):
            raise OSError(errno.EIO, "llama.cpp wrote only a part", name)
        os.fsync(file.fileno())


def _siblings(path: Path) -> list[Path]:
    """All files of a split model that llama.cpp will open, given its first."""
    match = _SPLIT_NAME.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    return [path.with_name(f"{match['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]


def inspect(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | IO[bytes]) -> ModelFile:
    """Look at a source: it must exist, be readable and not empty.

    Raises:
        ModelLoadError: with `.path`, `.size` and the system's reason.
    """
    if not isinstance(source, (str, os.PathLike, Sequence)):
        return _inspect_stream(source)
    paths = (Path(source),) if isinstance(source, (str, os.PathLike)) else tuple(Path(p) for p in source)
    if not paths:
        raise ValueError("no path given")
    sizes = [_stat(p) for p in paths]
    if len(paths) == 1:
        sizes += [p.stat().st_size for p in _siblings(paths[0]) if p != paths[0] and p.is_file()]
    return ModelFile(str(paths[0]), sum(sizes), paths[0], paths, None)


def _inspect_stream(source: IO[bytes]) -> ModelFile:
    if not hasattr(source, "read"):
        raise TypeError(f"a model is read from a path, paths or a binary file object, not {type(source).__name__}")
    if isinstance(source.read(0), str):
        raise TypeError('a model is read from a binary file object: open it with mode "rb"')
    position = source.tell()
    size = source.seek(0, io.SEEK_END) - position
    source.seek(position)
    name = f"file object {getattr(source, 'name', '')!r}"
    if size <= 0:
        raise _refused(name, 0, "empty file")
    return ModelFile(name, size, None, (), source, position)


def may_offload(params: Any) -> bool:
    """Whether weights may go to a device with memory of its own, so that free RAM says nothing."""
    if params.n_gpu_layers == 0:
        return False
    if params.devices != ffi.NULL:
        return bool(params.devices[0] != ffi.NULL)
    return any(d.kind == "gpu" for d in all_devices())
