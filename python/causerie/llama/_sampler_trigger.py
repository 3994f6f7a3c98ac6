"""Trigger patterns of lazy grammars, checked before std::regex gets them (pure Python).

libstdc++ compiles and matches by recursion: about 200 bytes of stack for each element of the pattern, and for each time
that a repeated one matches. The text searched is all that was generated so far, so an unbounded repetition overflows
the stack of an 8 MB thread after some 30,000 characters, and the process dies. Bounded ones are as good here: a pattern
is searched for anywhere in the text, so it needs no `.*` around it.
"""

from __future__ import annotations

import re

from causerie.errors import GrammarError

__all__ = ["check_pattern"]

_MAX_BYTES = 4096
_MAX_NESTING = 100
_MAX_SIZE = 5000

_PART = re.compile(
    r"(?P<atom>\\.|\[(?:[^\]\\]|\\.)*\]|[^\\\[(){}*+?|])"
    r"|(?P<open>\((?:\?[:=!])?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<many>[*+]|\{[0-9]*,\})|\{(?P<count>[0-9]+)(?:,(?P<most>[0-9]+))?\}|(?P<maybe>\?)|(?P<stray>.)",
    re.DOTALL,
)


def check_pattern(pattern: str) -> bytes:
    """The pattern as llama.cpp takes it.

    Raises:
        GrammarError: it is empty, too large, or repeats without a bound; `.pattern` is the pattern.
        TypeError: it is not a str.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"a trigger pattern must be a str, not {type(pattern).__name__}")
    try:
        raw = pattern.encode()
    except UnicodeEncodeError as error:
        raise _refusal(pattern, f"is not valid Unicode: {error}") from None
    if not raw or b"\0" in raw or len(raw) > _MAX_BYTES:
        raise _refusal(pattern, f"must have 1..{_MAX_BYTES} bytes and no NUL character")
    _check_size(pattern)
    return raw


def _refusal(pattern: str, what: str) -> GrammarError:
    return GrammarError(f"the trigger pattern {pattern[:60]!r} {what}", pattern=pattern)


def _check_size(pattern: str) -> None:
    """Count the elements that matching can pass through, with repetitions."""
    sizes, atom = [0], 0  # of each open group, and of the last element
    for part in _PART.finditer(pattern):
        kind, count = part.lastgroup, part["count"]
        if kind == "open":
            sizes.append(0)
            atom = 0
        elif kind == "close":
            atom = sizes.pop() if len(sizes) > 1 else 1
            sizes[-1] += atom
        elif kind == "many":
            raise _refusal(
                pattern,
                f"repeats without a bound ({part.group()}), which overflows the stack on a long text: write a bound "
                "such as {0,100}; the pattern is searched for anywhere, so it needs no .* around it",
            )
        elif count is not None:
            most = int((part["most"] or count)[:9])
            sizes[-1] += atom * max(most - 1, 0)
            atom *= max(most, 1)
        elif kind in {"atom", "stray"}:
            atom = 1
            sizes[-1] += 1
        if len(sizes) > _MAX_NESTING or sum(sizes) > _MAX_SIZE:
            raise _refusal(pattern, f"is too large: more than {_MAX_SIZE} elements, or {_MAX_NESTING} groups nested")
