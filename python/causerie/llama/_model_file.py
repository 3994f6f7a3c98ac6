"""Where a model comes from: paths, split files or file objects, looked at before llama.cpp opens them."""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from causerie.errors import ModelLoadError
from causerie.llama._lib import ffi, lib
from causerie.llama.device import devices as all_devices

__all__ = ["ModelFile", "inspect", "may_offload", "opened_stream"]

_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True)
class ModelFile:
    """A model's files as they are on disk; `path` is None where the source is a file object."""

    name: str
    size: int
    path: Path | None
    paths: tuple[Path, ...]
    stream: IO[bytes] | None

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
    try:
        fd = source.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(source, copy)
            source.seek(position)
            copy.seek(0)
            with opened_stream(copy) as stream:
                yield stream
        return
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


def _stat(path: Path) -> int:
    try:
        size = path.stat().st_size
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelLoadError(f"cannot load {path}: {reason}", path=str(path), size=None, reason=reason) from None
    if path.is_dir():
        raise ModelLoadError(f"cannot load {path}: it is a folder", path=str(path), size=None, reason="is a folder")
    if size == 0:
        raise ModelLoadError(f"cannot load {path}: the file is empty", path=str(path), size=0, reason="empty file")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelLoadError(f"cannot load {path}: {reason}", path=str(path), size=size, reason=reason) from None
    return size


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
    if hasattr(source, "read"):
        position = source.tell()
        size = source.seek(0, io.SEEK_END) - position
        source.seek(position)
        name = f"file object {getattr(source, 'name', '')!r}"
        if size <= 0:
            raise ModelLoadError(f"cannot load {name}: it is empty", path=name, size=0, reason="empty file")
        return ModelFile(name, size, None, (), source)
    paths = (Path(source),) if isinstance(source, (str, os.PathLike)) else tuple(Path(p) for p in source)
    if not paths:
        raise ValueError("no path given")
    sizes = [_stat(p) for p in paths]
    if len(paths) == 1:
        sizes += [p.stat().st_size for p in _siblings(paths[0]) if p != paths[0] and p.is_file()]
    return ModelFile(str(paths[0]), sum(sizes), paths[0], paths, None)


def may_offload(params: Any) -> bool:
    """Whether weights may go to a device with memory of its own, so that free RAM says nothing."""
    if params.n_gpu_layers == 0 or (params.devices != ffi.NULL and params.devices[0] == ffi.NULL):
        return False
    return any(d.kind == "gpu" for d in all_devices())
