"""Output transforms that are supplied: keywords, a role's name at the start, whatever a pattern matches.

Each of them makes a fresh one of its kind when it is called, so it can be given to a conversation as it is. What they
give, joined, does not depend on how the text was cut.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from causerie.chat.frozen_json import checked_text
from causerie.chat.stops import as_stops

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["KeywordRemover", "PatternRedactor", "PrefixRemover"]


class _Filter:
    """What they share: text that is held back, and how to make another one."""

    _held = ""

    def __call__(self) -> Self:
        """Another one that does the same, at the start of its text."""
        fresh = copy.copy(self)
        fresh.restart()
        return fresh

    def restart(self) -> None:
        """Be as at the start of a text."""
        self._held = ""


class KeywordRemover(_Filter):
    """Takes keywords out of a reply, or puts others in their place, wherever its text is cut: an `OutputTransform`.

    The keyword that begins first goes, and of several that begin there the longest; what is put in its place is not
    looked at again. Held back is an end of the text with which a keyword begins. The work is the text's length times,
    at worst, that of the longest keyword.

    Args:
        keywords: texts to remove (one str is one keyword), or a mapping of texts to what comes in their place.
        replacement: what comes in the place of those that are given without.

    Raises:
        TypeError, ValueError: a keyword or a replacement is not a str, or a keyword is empty.
    """

    def __init__(self, keywords: str | Iterable[str] | Mapping[str, str], replacement: str = "") -> None:
        checked_text(replacement, "a replacement")
        self._root: dict[str, Any] = {}  # by character the next node; under "" what replaces the keyword that ends here
        for keyword in as_stops(keywords):
            node = self._root
            for character in keyword:
                node = node.setdefault(character, {})
            instead = keywords[keyword] if isinstance(keywords, Mapping) else replacement
            node[""] = len(keyword), checked_text(instead, "a replacement")

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`."""
        return self._take(self._held + text, final=False)

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        return self._take(self._held, final=True)

    def _take(self, text: str, *, final: bool) -> str:
        out: list[str] = []
        start = position = 0
        self._held = ""
        while position < len(text):
            if text[position] not in self._root:
                position += 1
                continue
            found, open_end = self._longest(text, position)
            if open_end and not final:
                self._held = text[position:]
                break
            if found is None:
                position += 1
                continue
            length, instead = found
            out += text[start:position], instead
            start = position = position + length
        out.append(text[start:position])
        return "".join(out)

    def _longest(self, text: str, position: int) -> tuple[tuple[int, str] | None, bool]:
        """The longest keyword that begins here, and whether the text ends where a longer one may go on."""
        node = self._root
        found: tuple[int, str] | None = None
        for index in range(position, len(text)):
            if text[index] not in node:
                return found, False
            node = node[text[index]]
            found = node.get("", found)
        return found, len(node) > ("" in node)


class PrefixRemover(_Filter):
    """Takes a name such as "Assistant:" from the start of a reply, with the blanks around it: an `OutputTransform`.

    Held back is the start of the reply, while it may become one of the names. A reply that begins otherwise stays as it
    is.

    Args:
        prefixes: what to take away, once; of several that fit, the longest. One str is one prefix.

    Raises:
        TypeError, ValueError: a prefix is not a str, or is empty or begins with a blank.
    """

    def __init__(self, prefixes: str | Iterable[str] = ("Assistant:", "assistant:", "ASSISTANT:", "AI:")) -> None:
        self._prefixes = sorted(as_stops(prefixes), key=len, reverse=True)
        for prefix in self._prefixes:
            if prefix[0].isspace():
                raise ValueError(f"the prefix {prefix!r} begins with a blank: blanks around it go anyway")
        self.restart()

    def restart(self) -> None:
        """Be as at the start of a text."""
        super().restart()
        self._found = self._passed = False

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`."""
        return self._take(self._held + text, final=False)

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        return self._take(self._held, final=True)

    def _take(self, text: str, *, final: bool) -> str:
        self._held = ""
        if self._passed:
            return text
        if not self._found:
            begin = text.lstrip()
            if not final and any(len(p) > len(begin) and p.startswith(begin) for p in self._prefixes):
                self._held = text
                return ""
            found = next((p for p in self._prefixes if begin.startswith(p)), None)
            if found is None:
                self._passed = True
                return text
            self._found, text = True, begin[len(found) :]
        text = text.lstrip()
        self._passed = bool(text)
        return text


class PatternRedactor(_Filter):
    r"""Puts something else in the place of what a regular expression matches: an `OutputTransform`.

    Whether a match begins at a character is decided once the next ``window`` characters are there, and only these and
    as many before are looked at. So a reader gets the text so much later than it comes; a match longer than the window
    is not found, or in pieces; and ``$``, ``\b`` and looking ahead take the end of the window for the end of the
    text. For what stays within, the result is that of ``re.sub``.

    Args:
        pattern: a regular expression, or one that is compiled. Matches of nothing do not count.
        replacement: a text, which stands there as it is, or a function of the match.
        window: characters; at least as many as what is to be found can have.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: the pattern is malformed (`re.error`) or matches an empty text, or the window is not positive.
    """

    def __init__(
        self,
        pattern: str | re.Pattern[str],
        replacement: str | Callable[[re.Match[str]], str] = "[redacted]",
        *,
        window: int = 128,
    ) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"the pattern {pattern!r} is malformed: {error}") from error
        if not isinstance(self._pattern.pattern, str):
            raise TypeError("the pattern must be one for str, not for bytes")
        if self._pattern.match(""):
            raise ValueError(f"the pattern {self._pattern.pattern!r} matches an empty text, which is everywhere")
        if not callable(replacement):
            checked_text(replacement, "a replacement")
        if not isinstance(window, int) or isinstance(window, bool):
            raise TypeError(f"window must be an int, not {type(window).__name__}")
        if window < 1:
            raise ValueError(f"window must be positive, not {window}")
        self._replacement = replacement
        self._window = window
        self.restart()

    def restart(self) -> None:
        """Be as at the start of a text."""
        super().restart()
        self._next = 0  # where in the text that is held the next match may begin

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`."""
        self._held += text
        return self._take(final=False)

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        text, window, position = self._held, self._window, self._next
        out: list[str] = []
        while position < len(text) and (final or position + window <= len(text)):
            first = max(0, position - window)
            found = self._pattern.match(text[first : position + window], position - first)
            if found is None or found.end() == found.start():
                out.append(text[position])
                position += 1
            else:
                out.append(self._instead(found))
                position = first + found.end()
        first = max(0, position - window)
        self._held, self._next = text[first:], position - first
        return "".join(out)

    def _instead(self, found: re.Match[str]) -> str:
        return self._replacement(found) if callable(self._replacement) else self._replacement
