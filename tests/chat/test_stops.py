"""Stop strings against the plain definition: cut the whole text where the first of them begins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from causerie.chat import StopMatcher
from causerie.chat.stops import as_stops

light = settings(deadline=None, max_examples=300)
words = st.text("ab", min_size=1, max_size=5)


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    found = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    begin, _, stop = min(found)
    return text[:begin], stop


def feed_all(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        shown += matcher.feed(piece)
        assert len(matcher.pending) < max(map(len, stops), default=1)
    shown += matcher.flush()
    return shown, matcher.matched


@light
@given(st.text("abc", max_size=20), st.lists(words, max_size=4), st.lists(st.integers(0, 20), max_size=20))
@example("xabcdy", ["abcd", "bc"], [4])
@example("xabcey", ["abcd", "bc"], [1, 2, 3, 4])
@example("abc", ["abcd", "b", "bcx"], [])
@example("abcdex", ["abcdefg", "bc", "de"], [])
@example("xabcf", ["xabcd", "abce", "bcf"], [])
@example("wxabcfq", ["wxabcfz", "xabcd", "abce", "bcfq"], [])
@example("aab", ["ab", "aab", "aabb"], [1, 2])
def test_however_the_text_is_cut_the_result_is_that_of_the_whole(
    text: str, stops: list[str], places: list[int]
) -> None:
    ends = [*sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [text[i:j] for i, j in zip([0, *ends], ends, strict=False)]
    assert feed_all(stops, pieces) == feed_all(stops, list(text)) == feed_all(stops, [text]) == naive(text, stops)


@light
@given(st.text("ab", max_size=20), st.lists(words, min_size=1, max_size=3))
def test_nothing_is_held_that_cannot_begin_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join(map(matcher.feed, text))
    if matcher.matched is None:
        assert shown + matcher.pending == text
        assert not matcher.pending or any(stop.startswith(matcher.pending) for stop in stops)


@pytest.mark.parametrize("cut", range(1, 7))
def test_a_stop_string_is_never_shown_at_any_cut(cut: int) -> None:
    matcher = StopMatcher("</end>")
    text = "Bye</end>"
    assert matcher.feed(text[: 2 + cut]) + matcher.feed(text[2 + cut :]) == "Bye"
    assert matcher.matched == "</end>"


def test_held_text_is_released_when_it_is_no_stop_string_after_all() -> None:
    matcher = StopMatcher(["\nUser:"])
    assert matcher.feed("Hi\nUs") == "Hi"
    assert matcher.pending == "\nUs"
    assert matcher.feed("ual") == "\nUsual"
    assert matcher.feed("\nUser") == ""
    assert matcher.flush() == "\nUser"
    assert matcher.matched is None


def test_a_complete_stop_string_waits_for_one_that_began_before_it() -> None:
    matcher = StopMatcher(["abcd", "bc"])
    assert matcher.feed("xabc") == "x"
    assert matcher.matched is None
    assert matcher.feed("e") == "a"
    assert matcher.matched == "bc"

    matcher = StopMatcher(["abcd", "bc"])
    assert matcher.feed("xabc") + matcher.flush() == "xa"
    assert matcher.matched == "bc"


def test_of_two_that_begin_together_the_shorter_wins_at_once() -> None:
    matcher = StopMatcher(["stop now", "stop"])
    assert matcher.feed("Do stop") == "Do "
    assert matcher.matched == "stop"


def test_after_a_match_nothing_comes() -> None:
    matcher = StopMatcher(["."])
    assert matcher.feed("One. Two. ") == "One"
    assert matcher.feed("Three.") == matcher.flush() == matcher.pending == ""
    assert matcher.matched == "."


def test_without_stop_strings_text_passes() -> None:
    for none in (None, (), []):
        matcher = StopMatcher(none)
        assert matcher.feed("any") == "any"
        assert matcher.flush() == ""
        assert matcher.matched is None


def test_after_a_flush_without_match_a_new_text_begins() -> None:
    matcher = StopMatcher("ab")
    assert matcher.feed("xa") + matcher.flush() == "xa"
    assert matcher.feed("b") == "b"
    assert matcher.feed("cab") == "c"
    assert matcher.matched == "ab"


def test_one_str_is_one_stop_string_and_repetitions_count_once() -> None:
    assert as_stops("ab") == ("ab",)
    assert as_stops(["b", "a", "b"]) == ("b", "a")


def test_wrong_stop_strings_are_refused() -> None:
    for empty in ("", ["a", ""]):
        with pytest.raises(ValueError, match="empty"):
            StopMatcher(empty)
    for wrong in ([1], b"ab", [None], 5):
        with pytest.raises(TypeError):
            StopMatcher(wrong)


class Counting(dict[str, int]):
    lookups = 0

    def __contains__(self, key: object) -> bool:
        Counting.lookups += 1
        return super().__contains__(key)

    def get(self, *args: Any) -> Any:
        Counting.lookups += 1
        return super().get(*args)


@pytest.mark.parametrize("stops", [["a" * 200 + "b"], ["a" * n + "b" for n in range(1, 60)][::-1], ["aab", "b" * 90]])
def test_the_work_is_linear_in_the_text(stops: list[str]) -> None:
    text = ("a" * 199 + "c" + "b" * 89 + "c") * 20  # so close to matching that a naive search would be quadratic
    work = []
    for factor in (1, 4):
        matcher = StopMatcher([stop for stop in stops if stop not in text])
        matcher._automaton.goto = [Counting(edges) for edges in matcher._automaton.goto]
        Counting.lookups = 0
        for character in text * factor:
            matcher.feed(character)
        assert matcher.matched is None
        work.append(Counting.lookups)
        assert work[-1] <= 3 * len(text * factor)
    assert work[1] <= 4 * work[0] + 10
