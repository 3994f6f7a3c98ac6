"""What a message says: plain text, or a list of parts in the OpenAI shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from causerie.chat.frozen_json import FrozenDict, checked_text, freeze

__all__ = ["KNOWN_PARTS", "Content", "ContentLike", "PartsPolicy", "as_content", "check_parts", "text_of"]

Content: TypeAlias = str | tuple[Mapping[str, Any], ...]
"""Text, or parts such as ``{"type": "text", "text": ...}``."""

ContentLike: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What is taken for content: text, or a list or tuple of parts."""

PartsPolicy: TypeAlias = Literal["keep", "refuse"]
"""What becomes of a content part whose type is not in `KNOWN_PARTS`."""

KNOWN_PARTS = ("text", "image_url", "input_audio")


def as_content(value: object) -> Content:
    """``value`` in immutable form; lists and dicts given are copied, never kept.

    Raises:
        TypeError: neither a str nor a list or tuple of mappings, or a part holds what JSON cannot express.
        ValueError: no parts at all, or a part without a type or, if its type is "text", without text.
    """
    if isinstance(value, str):
        return checked_text(value, "content")
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"content must be a str or a list of content parts, not {type(value).__name__}")
    if not value:
        raise ValueError('content is a list without parts: give at least one, or the text ""')
    return tuple(_part(part, index) for index, part in enumerate(value))


def _part(part: object, index: int) -> FrozenDict:
    if not isinstance(part, Mapping):
        raise TypeError(f"content part {index} must be a dict, not {type(part).__name__}")
    frozen: FrozenDict = freeze(part)
    if "type" not in frozen:
        raise ValueError(f'content part {index} has no "type"')
    if checked_text(frozen["type"], f"the type of content part {index}") == "text":
        if "text" not in frozen:
            raise ValueError(f'content part {index} is of type "text" and has no "text"')
        checked_text(frozen["text"], f"the text of content part {index}")
    return frozen


def check_parts(content: Content, policy: PartsPolicy) -> None:
    """Refuse parts of unknown types, if that is the policy.

    Raises:
        ValueError: a part's type is not in `KNOWN_PARTS` and the policy is "refuse", or there is no such policy.
    """
    if policy not in {"keep", "refuse"}:
        raise ValueError(f'unknown_parts must be "keep" or "refuse", not {policy!r}')
    if policy == "keep" or isinstance(content, str):
        return
    for index, part in enumerate(content):
        if part["type"] not in KNOWN_PARTS:
            known = ", ".join(KNOWN_PARTS)
            raise ValueError(
                f"content part {index} is of unknown type {part['type']!r} (known: {known}): "
                'unknown_parts="keep" takes it'
            )


def text_of(content: Content) -> str:
    """The text that content says: that of its text parts, one per line."""
    return content if isinstance(content, str) else "\n".join(p["text"] for p in content if p["type"] == "text")
