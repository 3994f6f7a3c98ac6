"""A conversation as a file: Markdown to read, JSON for programs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Entry", "as_json", "as_markdown", "save"]

_TITLES = {"system": "System", "user": "You", "assistant": "Assistant"}


@dataclass(frozen=True)
class Entry:
    """One message; an answer that was generated has the reason why it ended."""

    role: str
    content: str
    finish_reason: str | None = None


def as_markdown(entries: Sequence[Entry], *, model: str) -> str:
    """One heading per message; an answer that was stopped says so."""
    blocks = [f"# Conversation with {model}"]
    for entry in entries:
        stopped = " (stopped)" if entry.finish_reason == "cancelled" else ""
        blocks.append(f"## {_TITLES.get(entry.role, entry.role)}{stopped}\n\n{entry.content}")
    return "\n\n".join(blocks) + "\n"


def as_json(entries: Sequence[Entry], *, model: str) -> str:
    """{"model", "messages"}: messages in the OpenAI shape, answers with their finish_reason."""
    messages: list[dict[str, Any]] = []
    for entry in entries:
        message = {"role": entry.role, "content": entry.content}
        if entry.finish_reason is not None:
            message["finish_reason"] = entry.finish_reason
        messages.append(message)
    return json.dumps({"model": model, "messages": messages}, ensure_ascii=False, indent=2) + "\n"


def save(path: str | os.PathLike[str], entries: Sequence[Entry], *, model: str) -> Path:
    """Write the conversation, as JSON if the name ends in .json; a file of that name is replaced in one step.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    target = Path(path).expanduser().absolute()
    text = (as_json if target.suffix.lower() == ".json" else as_markdown)(entries, model=model)
    if target.is_symlink():
        target = target.resolve()  # the link stays, what it points to is replaced
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return target
