"""A conversation as a file for people: Markdown, or an HTML page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from causerie.chat.transcript_html import page
from causerie.chat.transcript_markdown import markdown
from causerie.files.replacing import replacing, write_all

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from causerie.chat.messages import Message

__all__ = ["ExportFormat", "export"]

ExportFormat: TypeAlias = Literal["markdown", "html"]

_SUFFIXES: dict[str, ExportFormat] = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}
_WRITERS = {"markdown": markdown, "html": page}


def export(
    path: str | os.PathLike[str],
    messages: Sequence[Message],
    *,
    title: str,
    format: ExportFormat | None,  # noqa: A002
) -> None:
    """Write messages; a file of that name is replaced in one step.

    Args:
        path: where to; its suffix tells the format, if none is given.
        messages: what to write.
        title: the document's heading.
        format: "markdown" or "html".

    Raises:
        ValueError: no such format, or the suffix tells none.
        OSError: it cannot be written; a file that was there is as it was.
    """
    if format is None:
        suffix = Path(path).suffix.lower()
        if suffix not in _SUFFIXES:
            raise ValueError(f"the suffix {suffix!r} tells no format: give format=, or one of {', '.join(_SUFFIXES)}")
        format = _SUFFIXES[suffix]  # noqa: A001 - the argument's name
    if format not in _WRITERS:
        raise ValueError(f"format must be one of {', '.join(_WRITERS)}, not {format!r}")
    data = _WRITERS[format](messages, title).encode()
    with replacing(path) as file:
        write_all(file, data)
