"""Small pieces of text for people."""

from __future__ import annotations

__all__ = ["one_line", "size"]


def one_line(error: BaseException) -> str:
    """What an exception says, on one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def size(count: int) -> str:
    """A number of bytes: 1536 -> "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
