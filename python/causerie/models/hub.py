"""Files on the Hugging Face Hub, through huggingface_hub (extra ``hf``): its cache, its settings, our errors."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causerie.errors import ModelLoadError, UnsupportedError
from causerie.models import storage

if TYPE_CHECKING:
    from causerie.models.catalog import Progress

__all__ = ["FORM", "PREFIX", "fetch"]

PREFIX = "hf:"
FORM = "hf:owner/repo:filename"
_NAME = re.compile(r"hf:([^/:\s]+/[^/:\s]+):([^:]+)")
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def fetch(name: str, cache_dir: Path | None, progress: Progress | None) -> Path:
    """Return the cached path of ``hf:owner/repo:filename``, fetching it, and its sibling parts, where needed."""
    if (match := _NAME.fullmatch(name)) is None:
        raise ModelLoadError(f"{name!r} does not name a file on the Hub: write {FORM!r}", path=name)
    repo, filename = match.groups()
    try:
        library: Any = importlib.import_module("huggingface_hub")
    except ImportError as exc:
        raise UnsupportedError(f"{name!r} needs huggingface_hub ({exc}): pip install causerie[hf]") from None
    parts = _parts(filename)
    transfer = _Transfer(progress, _total_size(library, repo, parts) if progress and len(parts) > 1 else None)
    fetched = [_fetch_file(library, repo, part, cache_dir, transfer) for part in parts]
    return fetched[0]


class _Transfer:
    """Relays the byte counts of one or several downloads to the caller's callback, and keeps what that raised."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self.progress = progress
        self.total = total
        self.before = 0  # bytes of the parts that are complete
        self.happened = False  # whether anything was transferred, rather than found in the cache
        self.raised: BaseException | None = None

    def report(self, done: int, total: int | None) -> None:
        self.happened = True
        if self.progress is not None and self.raised is None:
            try:
                self.progress(self.before + done, self.total if self.before or self.total else total)
            except BaseException as exc:
                self.raised = exc  # the library may swallow or wrap it (its Rust half calls from a thread of its own)
                raise

    def bar_class(self) -> type:
        """A progress bar class for huggingface_hub that draws nothing and reports here."""
        transfer = self
        tqdm: Any = importlib.import_module("tqdm").tqdm

        class Bar(tqdm):  # type: ignore[misc]  # without a stub for tqdm its base is Any
            def __init__(self, *args: Any, **options: Any) -> None:
                options.pop("name", None)
                super().__init__(*args, **{**options, "disable": True})
                self.n = options.get("initial") or 0
                transfer.report(self.n, self.total)

            def update(self, n: float | None = 1) -> None:
                self.n += n or 0
                transfer.report(int(self.n), self.total)

            def update_transfer(self, n: float | None = 1) -> None:
                """Bytes on the wire, where they are told apart from bytes on disk; only the latter are counted."""

            def set_transfer_postfix_str(self, *args: Any, **options: Any) -> None:
                pass

        return Bar


def _fetch_file(library: Any, repo: str, filename: str, cache_dir: Path | None, transfer: _Transfer) -> Path:
    transfer.happened = False
    try:
        found = library.hf_hub_download(repo, filename, cache_dir=cache_dir, tqdm_class=transfer.bar_class())
    except Exception as exc:  # noqa: BLE001  # the library raises its own, its HTTP client's, OSError and ValueError
        if transfer.raised is not None:
            raise transfer.raised from None
        raise _hub_error(repo, filename, exc) from None
    if transfer.raised is not None:
        raise transfer.raised
    path = Path(found)
    if transfer.happened:
        _verify(path, repo, filename)
    transfer.before += path.stat().st_size
    return path


def _verify(path: Path, repo: str, filename: str) -> None:
    """Compare a fresh file with the SHA-256 that its blob in the Hub's cache is named after.

    huggingface_hub itself compares sizes only. Small files are named after their git hash, and where symbolic links
    are not to be had there is no blob: those are left as they are.
    """
    blob = Path(os.path.realpath(path))
    if _SHA256.fullmatch(blob.name) is None:
        return
    digest = storage.file_sha256(blob)
    if digest != blob.name:
        for junk in (path, blob):
            with contextlib.suppress(OSError):
                junk.unlink()
        raise ModelLoadError(
            f"{filename} of {repo} arrived damaged: SHA-256 {digest}, expected {blob.name}; it was removed, try again",
            path=str(path),
        )


def _hub_error(repo: str, filename: str, exc: Exception) -> ModelLoadError:
    errors: Any = importlib.import_module("huggingface_hub.errors")
    reason = " ".join(str(exc).split())[:400] or type(exc).__name__
    status = getattr(getattr(exc, "response", None), "status_code", None)
    if isinstance(exc, errors.GatedRepoError):
        text = f"{repo} is gated: accept its terms on its page, then log in with `hf auth login` or set HF_TOKEN"
    elif isinstance(exc, errors.RepositoryNotFoundError) or status == HTTPStatus.UNAUTHORIZED:
        text = f"no repository {repo} on the Hub, or it is private (then log in with `hf auth login` or set HF_TOKEN)"
    elif isinstance(exc, errors.LocalEntryNotFoundError):
        text = f"{filename} of {repo} is not cached and the Hub cannot be asked for it; check the network, "
        text += f"HF_ENDPOINT and HF_HUB_OFFLINE ({reason})"
    elif isinstance(exc, errors.EntryNotFoundError):
        text = f"the repository {repo} has no file {filename!r}; look at its list of files (names are case-sensitive)"
    else:
        text = f"cannot fetch {filename} of {repo}: {reason}"
    code = exc.errno if isinstance(exc, OSError) else None
    return storage.load_error(text, code=code, path=f"{PREFIX}{repo}:{filename}", reason=reason)


def _parts(filename: str) -> list[str]:
    """Every file of a split model, the first one first; a file that is not split is its own only part."""
    if (match := _PART.fullmatch(filename)) is None:
        return [filename]
    stem, _, count = match.groups()
    return [f"{stem}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)] or [filename]


def _total_size(library: Any, repo: str, parts: list[str]) -> int | None:
    """The size of all parts together, for the progress callback only: not to know it is no failure."""
    try:
        sizes = [library.get_hf_file_metadata(library.hf_hub_url(repo, part)).size for part in parts]
    except Exception:  # noqa: BLE001  # offline, gated, missing: the download itself will say so, or finds its cache
        return None
    return sum(sizes) if None not in sizes else None
