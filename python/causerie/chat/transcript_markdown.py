"""Messages as a Markdown document: a heading and a quote for each, thinking and tool calls folded."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from causerie.chat.frozen_json import thaw
from causerie.chat.markdown_text import fenced, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from causerie.chat.messages import Message

__all__ = ["markdown"]


def markdown(messages: Iterable[Message], title: str = "") -> str:
    """A document of messages.

    What is said stays Markdown, in a quote that it cannot leave; HTML in it shows as it was written.

    Args:
        messages: the messages.
        title: its heading; "": none.
    """
    blocks = [f"# {literal(title)}"] if title else []
    for message in messages:
        who = f" ({literal(message.name)})" if message.name else ""
        blocks += [f"## {message.role.capitalize()}{who}", *_blocks(message)]
    return "\n\n".join(blocks) + "\n"


def _blocks(message: Message) -> Iterator[str]:
    if message.thinking:
        yield _folded("Thinking", quoted(message.thinking))
    if message.role == "tool":
        yield _folded(f"Result of call {message.tool_call_id}", fenced(message.text))
    elif message.text:
        yield quoted(message.text)
    if not isinstance(message.content, str):
        for part in message.content:
            if part["type"] != "text":
                yield _folded(part["type"], _json(part))
    for call in message.tool_calls:
        yield _folded(f"Call {call.id} of {call.name}", _json(call.arguments))


def _folded(summary: str, block: str) -> str:
    said = html.escape(" ".join(summary.split()))
    return f"<details>\n<summary>{said}</summary>\n\n{block}\n\n</details>"


def _json(value: object) -> str:
    return fenced(json.dumps(thaw(value), ensure_ascii=False, indent=2), "json")
