"""Loads the extension module, starts llama.cpp once, and carries its log into `logging`.

Every other file of this floor takes `ffi` and `lib` from here, so nothing runs before llama.cpp is started.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causerie.llama._plugins import Plugin

PACKAGE_DIR = Path(__file__).resolve().parent.parent

if sys.platform == "win32":
    os.add_dll_directory(str(PACKAGE_DIR / "lib"))

from causerie._native import ffi, lib  # noqa: E402

__all__ = [
    "LIBRARY_DIR",
    "drain_log",
    "ffi",
    "lib",
    "log_observers",
    "logger",
    "path_bytes",
    "plugins",
    "startup_log",
]

LIBRARY_DIR = PACKAGE_DIR / "lib"

logging.getLogger("causerie").addHandler(logging.NullHandler())
logger = logging.getLogger("causerie.llama")

_LEVELS = {
    lib.GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    lib.GGML_LOG_LEVEL_INFO: logging.INFO,
    lib.GGML_LOG_LEVEL_WARN: logging.WARNING,
    lib.GGML_LOG_LEVEL_ERROR: logging.ERROR,
}
# Functions that see every record, whatever the logger's level; called on the thread that drains.
log_observers: set[Callable[[str], object]] = set()
_RECORD_BYTES = 4096
_drain_lock = threading.Lock()
_record = ffi.new("char[]", _RECORD_BYTES)
_level = ffi.new("int *")


def drain_log() -> None:
    """Hand what llama.cpp has logged since the last call to the logger "causerie.llama"."""
    if not lib.causerie_log_pending():
        return
    # A handler may use causerie itself: then, as when another thread is draining, the records wait for the next call.
    if not _drain_lock.acquire(blocking=False):
        return
    try:
        while lib.causerie_log_read(_record, _RECORD_BYTES, _level):
            level = _LEVELS.get(_level[0], logging.DEBUG)
            wanted = logger.isEnabledFor(level)
            if wanted or log_observers:
                text = ffi.string(_record).decode("utf-8", "replace").rstrip()
                for observer in tuple(log_observers):
                    observer(text)
                if wanted and text:
                    try:
                        logger.log(level, "%s", text)
                    except Exception:  # noqa: BLE001 - a broken handler must not break the work that was logged
                        if logging.raiseExceptions:  # as logging itself does for its own handlers
                            traceback.print_exc()
    finally:
        _drain_lock.release()


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    """The path as llama.cpp opens it: UTF-8 on Windows, the file system's own bytes elsewhere."""
    raw = os.fspath(path).encode("utf-8") if sys.platform == "win32" else os.fsencode(path)
    if b"\0" in raw:
        raise ValueError(f"path contains a NUL character: {path!r}")
    return raw


def _places() -> Iterator[Path]:
    """Where plugins are looked for: where the user says, then among our own libraries if backends are plugins."""
    for place in os.environ.get("CAUSERIE_BACKEND_PATH", "").split(os.pathsep):
        if place:  # an empty one would be the current folder
            yield Path(place).absolute()
    if b'"GGML_BACKEND_DL": "ON"' in ffi.string(lib.causerie_build_info()):
        yield LIBRARY_DIR


# It takes the bindings from here, as all others do.
from causerie.llama._plugins import load_plugins  # noqa: E402

startup_log: list[str] = []
"""What llama.cpp and its backends said when they were started, line by line."""
log_observers.add(startup_log.append)
lib.causerie_init()
_plugins = load_plugins(_places())
for _plugin in _plugins:
    if _plugin.problem:
        logger.warning("the backend in %s is not used: %s", _plugin.path, _plugin.problem)
drain_log()
log_observers.remove(startup_log.append)


def plugins() -> tuple[Plugin, ...]:
    """Backends that are libraries of their own, as they were found at import; those of the CPU last."""
    return _plugins
