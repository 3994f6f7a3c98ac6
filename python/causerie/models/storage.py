"""The cache folder: where it is, which files in it are whole, who may write, what is in it, and how to empty it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causerie.errors import ModelLoadError
from causerie.models.catalog import TABLE, Alias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["CachedModel", "default_cache_dir", "list_cached", "remove"]

_CHUNK = 1 << 20
_LOCK_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class CachedModel:
    """One model file in the cache: its alias (or file name), path, size in bytes, and time of last change (UTC)."""

    name: str
    path: Path
    size: int
    modified: datetime


def default_cache_dir() -> Path:
    """The folder that causerie caches in; models are kept in its subfolder ``models``.

    ``CAUSERIE_CACHE_DIR`` where set, else ``causerie`` in the user's cache folder: ``$XDG_CACHE_HOME`` or
    ``~/.cache`` on Linux, ``~/Library/Caches`` on macOS, ``%LOCALAPPDATA%`` on Windows. Nothing is created.
    """
    try:
        if chosen := os.environ.get("CAUSERIE_CACHE_DIR"):
            return Path(chosen).expanduser().absolute()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "causerie"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "causerie"
        xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored, says its specification
        return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "causerie"
    except RuntimeError as exc:
        raise load_error(f"no home folder to keep models in ({exc}); set CAUSERIE_CACHE_DIR") from None


def models_folder(cache_dir: Path | None) -> Path:
    """The folder of model files inside a cache folder (default: the user's)."""
    return (default_cache_dir() if cache_dir is None else cache_dir) / "models"


def list_cached(*, cache_dir: str | os.PathLike[str] | None = None) -> list[CachedModel]:
    """The model files in the cache, by name. Files from the Hub are in its own cache: see ``hf cache ls``."""
    names = {alias.filename: name for name, alias in TABLE.items()}
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in models_folder(_path_or_none(cache_dir)).iterdir():
            if path.suffix == ".gguf" and path.is_file():
                status = path.stat()
                modified = datetime.fromtimestamp(status.st_mtime, timezone.utc)
                found.append(CachedModel(names.get(path.name, path.name), path, status.st_size, modified))
    return sorted(found, key=lambda model: model.name)


def remove(name: str, *, cache_dir: str | os.PathLike[str] | None = None) -> int:
    """Delete a cached model, by the name that :func:`list_cached` gives it; returns the bytes that this set free.

    Raises:
        ModelLoadError: it is not in the cache, or cannot be deleted.
    """
    cached = {model.name: model for model in list_cached(cache_dir=cache_dir)}
    if (model := cached.get(name)) is None:
        hint = " (Hub files are in the Hub's own cache: `hf cache rm`)" if name.startswith("hf:") else ""
        raise load_error(f"{name!r} is not cached{hint}; cached: {', '.join(cached) or 'nothing'}", code=errno.ENOENT)
    folder = model.path.parent
    with exclusive(folder, name), writing(folder):
        model.path.unlink(missing_ok=True)
        _record_path(model.path).unlink(missing_ok=True)
    return model.size


def is_intact(path: Path, alias: Alias) -> bool:
    """Whether ``path`` holds the alias's file: by size and the record of the last check, else by its whole hash."""
    try:
        status = path.stat()
        if status.st_size != alias.size:
            return False
        try:
            if json.loads(_record_path(path).read_text("utf-8")) == _record(alias, status):
                return True
        except (OSError, ValueError):
            pass  # no readable record: a file put here by hand, or one whose record was torn; its hash decides
        if file_sha256(path) != alias.sha256:
            return False
    except OSError:
        return False
    _remember(path, alias)
    return True


def publish(part: Path, target: Path, alias: Alias) -> None:
    """Move a verified file to its place in one step, durably, and note that it has been verified."""
    part.replace(target)
    if sys.platform != "win32":
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # some network file systems cannot sync a folder
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    _remember(target, alias)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    import hashlib  # OpenSSL is some 4 MB, which a model that is there already does without

    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def load_error(message: str, *, code: int | None = None, **facts: Any) -> ModelLoadError:
    """A ModelLoadError that also carries an ``errno``."""
    error = ModelLoadError(message, **facts)
    error.errno = code
    return error


def cache_error(folder: Path, reason: str, code: int | None) -> ModelLoadError:
    """The error for a cache folder that cannot take a file."""
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "free some space there, or set CAUSERIE_CACHE_DIR to a folder on a larger disk"
    else:
        advice = "set CAUSERIE_CACHE_DIR to a folder that can be written"
    return load_error(f"cannot write to the model cache {folder}: {reason}; {advice}", code=code, path=str(folder))


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns what the file system refuses inside the block into one ModelLoadError about the cache folder."""
    try:
        yield
    except ModelLoadError:
        raise
    except OSError as exc:
        raise cache_error(folder, exc.strerror or str(exc), exc.errno) from None


@contextlib.contextmanager
def exclusive(folder: Path, name: str, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of one cached model across processes and threads; ``waiting`` is called while another holds it.

    The lock ends with its process, however that ends. Its empty file stays: unlinking it would let two holders in.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while True:
            with writing(folder):
                if _try_lock(descriptor):
                    break
            waiting()
            time.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Polled rather than waited for, so that Ctrl-C and the caller's progress work meanwhile on every platform."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def check_space(folder: Path, needed: int) -> None:
    """Raise ModelLoadError (ENOSPC) now rather than after minutes of download."""
    with writing(folder):
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise cache_error(folder, f"{needed:,} bytes are needed, {free:,} are free", errno.ENOSPC)


def _path_or_none(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()


def _record_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _record(alias: Alias, status: os.stat_result) -> dict[str, object]:
    return {"sha256": alias.sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _remember(path: Path, alias: Alias) -> None:
    with contextlib.suppress(OSError):  # a read-only cache is checked in full each time, which is slow but right
        _record_path(path).write_text(json.dumps(_record(alias, path.stat())), "utf-8")
