"""Small pieces of text for people."""

from __future__ import annotations

__all__ = ["count", "one_line", "shorten", "size"]


def one_line(error: BaseException) -> str:
    """What an exception says, on one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def shorten(text: str, width: int) -> str:
    """A text on one line of so many characters at most; the spaces that it begins with are kept."""
    indent = len(text) - len(text.lstrip(" "))
    line = text[:indent] + " ".join(text[indent:].split("\n"))
    return line if len(line) <= width else line[: max(width - 3, 0)] + "..."


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 question", "2 questions"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(count: int) -> str:
    """A number of bytes: 1536 -> "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
