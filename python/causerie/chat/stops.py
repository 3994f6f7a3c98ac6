"""Stop strings: found wherever the text is cut, never shown, in one pass over the text."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from causerie.chat.frozen_json import checked_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["StopMatcher", "as_stops"]


def as_stops(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Stop strings as a tuple without repetitions; one str is one stop string.

    Raises:
        TypeError: something that is not a str.
        ValueError: an empty stop string.
    """
    values = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    stops = dict.fromkeys(checked_text(stop, "a stop string") for stop in values)
    if "" in stops:
        raise ValueError("a stop string is empty: it would end every reply before it begins")
    return tuple(stops)


class _Automaton:
    """Aho and Corasick's automaton: its state is the longest end of the text with which some stop string begins.

    By node: ``goto`` (next character -> node), ``fail`` (the node of the next shorter such end), ``depth`` (the length
    of that end), ``path`` (a stop string that begins with it), ``found`` (the longest stop string that ends here).

    Efficient string matching: an aid to bibliographic search, CACM 18(6), 1975.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.goto: list[dict[str, int]] = [{}]
        self.fail = [0]
        self.depth = [0]
        self.path = [""]
        self.found: list[str | None] = [None]
        for stop in stops:
            self._add(stop)
        self._link()

    def _add(self, stop: str) -> None:
        node = 0
        for depth, character in enumerate(stop, 1):
            if character not in self.goto[node]:
                self.goto[node][character] = len(self.goto)
                self.goto.append({})
                self.fail.append(0)
                self.depth.append(depth)
                self.path.append(stop)
                self.found.append(None)
            node = self.goto[node][character]
        self.found[node] = stop

    def _link(self) -> None:
        queue = deque(self.goto[0].values())
        while queue:
            node = queue.popleft()
            shorter = self.fail[node]
            self.found[node] = self.found[node] or self.found[shorter]
            for character, child in self.goto[node].items():
                back = shorter
                while back and character not in self.goto[back]:
                    back = self.fail[back]
                self.fail[child] = self.goto[back].get(character, 0)
                queue.append(child)


class StopMatcher:
    """Lets text through up to the first stop string.

    The winner is the stop string that begins first, and of several that begin there the shortest: what
    ``text[: min(text.find(stop) ...)]`` of the whole text gives, however the text was cut. So a stop string that is
    complete waits while one that began before it may still become complete ("bc" inside of "abcd").

    What is held back is an end of the text with which some stop string begins, so less than the longest of them. The
    work is linear in the length of the text, however many stop strings there are and however alike.

    Args:
        stops: the stop strings; one str is one stop string.

    Raises:
        TypeError, ValueError: as `as_stops`.
    """

    def __init__(self, stops: str | Iterable[str] | None = ()) -> None:
        self.stops = as_stops(stops)
        self._automaton = _Automaton(self.stops)
        self._node = 0
        self._position = 0  # characters fed so far
        self._best: tuple[int, str] | None = None  # begin and text of a stop string that may still lose
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text; None as long as none has."""
        return self._matched

    @property
    def pending(self) -> str:
        """The text held back."""
        # It need not be stored: it is what the automaton's state stands for.
        return self._automaton.path[self._node][: self._automaton.depth[self._node]]

    def feed(self, text: str) -> str:
        """What of the text so far is certain to come before any stop string. After a match: ""."""
        if self._matched is not None:
            return ""
        if not self.stops:
            return text
        held = self.pending
        begin = self._position - len(held)
        end = self._advance(text)
        cut = end - begin
        return held[:cut] + text[: max(0, cut - len(held))]

    def _advance(self, text: str) -> int:
        """Move over ``text``, up to a match that nothing can beat; gives the position up to which text is certain."""
        goto, fail, depth = self._automaton.goto, self._automaton.fail, self._automaton.depth
        found = self._automaton.found
        node, position, best = self._node, self._position, self._best
        for character in text:
            while node and character not in goto[node]:
                node = fail[node]
            node = goto[node].get(character, 0)
            position += 1
            stop = found[node]
            if stop is not None and (best is None or position - len(stop) < best[0]):
                best = (position - len(stop), stop)
            if best is not None and position - depth[node] >= best[0]:
                self._end(best)
                return best[0]
        self._node, self._position, self._best = node, position, best
        return position - depth[node]

    def flush(self) -> str:
        """End of the text: what was held back, up to a stop string if there is one in it. Text fed next starts anew."""
        held = self.pending
        if self._best is not None:
            held = held[: self._best[0] - (self._position - len(held))]
            self._end(self._best)
        self._node = self._position = 0
        return held

    def _end(self, best: tuple[int, str]) -> None:
        self._matched = best[1]
        self._node, self._best = 0, None
