"""A conversation as a file: Markdown to read, JSON for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.cli.prompt import Turn

__all__ = ["as_json", "as_markdown", "save"]

_TITLES = {"system": "System", "user": "You", "assistant": "Assistant"}


def as_markdown(turns: Sequence[Turn], *, model: str) -> str:
    """One heading per message; an answer that was stopped says so."""
    blocks = [f"# Conversation with {model}"]
    for turn in turns:
        stopped = " (stopped)" if turn.finish_reason == "cancelled" else ""
        blocks.append(f"## {_TITLES.get(turn.role, turn.role)}{stopped}\n\n{turn.content}")
    return "\n\n".join(blocks) + "\n"


def as_json(turns: Sequence[Turn], *, model: str) -> str:
    """{"model", "messages"}: messages in the OpenAI shape, answers with their finish_reason."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        message = {"role": turn.role, "content": turn.content}
        if turn.finish_reason is not None:
            message["finish_reason"] = turn.finish_reason
        messages.append(message)
    return json.dumps({"model": model, "messages": messages}, ensure_ascii=False, indent=2) + "\n"


def save(path: str | os.PathLike[str], turns: Sequence[Turn], *, model: str) -> Path:
    """Write the conversation, as JSON if the name ends in .json; a file of that name is replaced in one step.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    target = Path(path).expanduser().absolute()
    text = (as_json if target.suffix.lower() == ".json" else as_markdown)(turns, model=model)
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
