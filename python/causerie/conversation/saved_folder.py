"""All conversations of an engine as files of one folder."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causerie.errors import BusyError, StateError, StateWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from causerie.conversation.conversation import Conversation

__all__ = ["SUFFIX", "load_all", "save_all"]

SUFFIX = ".causerie"
_LONGEST = 40
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")


def save_all(folder: str | os.PathLike[str], conversations: Iterable[Conversation], **options: Any) -> list[Path]:
    """Save each; one that fails does not keep the others from being saved.

    Raises:
        OSError: the folder cannot be made.
        StateError: some failed: `.failures`, and `.saved` for the others.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    home = Path(os.path.realpath(place))
    taken: set[Path] = set()
    failures: list[tuple[Conversation, Exception]] = []
    saved: list[Path] = []
    for chat in conversations:
        path = chat.file
        if path is None or path.parent != home or path in taken:
            path = home / _file_name(chat.name)
        try:
            _save(chat, path, options)
        except Exception as error:  # noqa: BLE001 - told of below, when the others are saved
            failures.append((chat, error))
            continue
        chat.file = path
        taken.add(path)
        saved.append(path)
    if failures:
        told = "; ".join(f"{chat.name!r}: {error}" for chat, error in failures[:5])
        raise StateError(
            f"{len(failures)} of {len(failures) + len(saved)} conversations could not be saved: {told}",
            path=str(place), failures=tuple(failures), saved=tuple(saved),
        ) from failures[0][1]  # fmt: skip
    return saved


def _save(chat: Conversation, path: Path, options: dict[str, Any]) -> None:
    try:
        chat.save(path, **options)
    except BusyError:  # a reply is being generated: what was said so far can be saved
        chat.save(path, **{**options, "cache": False})


def _file_name(name: str) -> str:
    """A name that is new, and harmless in any file system, whatever the conversation is called."""
    safe = _UNSAFE.sub("-", name).strip("-")[:_LONGEST] or "conversation"
    return f"{safe}-{os.urandom(6).hex()}{SUFFIX}"


def load_all(folder: str | os.PathLike[str], load: Callable[[Path], Conversation]) -> list[Conversation]:
    """Load each file; those that cannot be loaded are left out, with a `StateWarning`.

    Raises:
        OSError: the folder cannot be read.
    """
    found: list[Conversation] = []
    for path in sorted(Path(folder).iterdir()):
        if path.suffix != SUFFIX:
            continue
        try:
            chat = load(path)
        except Exception as error:  # noqa: BLE001 - the file stays, and the others are loaded
            warnings.warn(f"{path} was not loaded: {error}", StateWarning, stacklevel=3)
            continue
        chat.file = Path(os.path.realpath(path))
        found.append(chat)
    return found
