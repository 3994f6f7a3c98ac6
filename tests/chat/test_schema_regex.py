"""Regular expressions: the part that is regular, and where and why everything else is refused."""

from __future__ import annotations

import re

import pytest

from causerie import SchemaError
from causerie.chat.response_format import Choices, Regex, as_response_format
from causerie.chat.schema.automaton import Matching, accepts
from causerie.chat.schema.regex import parse_regex


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("abc", ["abc"], ["ab", "abcd", ""]),
        ("a|bc|", ["a", "bc", ""], ["b"]),
        ("a{2}b{1,3}c{2,}", ["aabcc", "aabbbcccc"], ["abcc", "aabbbbcc", "aabc"]),
        ("a*?b+?c??", ["b", "aabbc"], ["a"]),
        ("(?:a(b))(?P<n>c)(?<m>d)", ["abcd"], ["abd"]),
        (r"[a-c\]\-^]+", ["a]-^c"], ["d", ""]),
        (r"[^a-c\d]", ["d", "é"], ["a", "5", "", "dd"]),
        (r"[-a]|[a-]", ["-", "a"], ["b"]),
        (r"\x41\u00e9\U0001F600\u{1F600}", ["Aé😀😀"], ["A"]),
        (r"\t\n\r\f\v\.\/\"\\", ['\t\n\r\f\v./"\\'], [""]),
        (r"\d\w\s", ["1_ ", "0a\t"], ["a1 ", "٣a "]),
        (r"\D\W\S", ["a-b", "é !"], ["1-b", "٣-b", "aéb"]),
        ("^a$", ["a"], ["aa"]),
        ("^a|b$", ["a", "b"], ["ab"]),
        (r"\Aa\Z", ["a"], ["a\n"]),
        (".", ["a", "😀"], ["\n", "\u2028", ""]),
        ("a{x}", ["a{x}"], ["a"]),
        ("", [""], ["a"]),
    ],
)  # fmt: skip
def test_a_pattern_matches_the_whole_text(pattern, good, bad):
    automaton = Matching(parse_regex(pattern))
    assert [text for text in good if not accepts(automaton, text)] == []
    assert [text for text in bad if accepts(automaton, text)] == []


def test_a_point_is_a_line_break_if_asked():
    assert accepts(Matching(parse_regex("a.b", dotall=True)), "a\nb")
    assert as_response_format(Regex("a.b", dotall=True)).parse("a\nb") == "a\nb"


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        ("a(b", 1, "never closed"),
        ("ab)", 2, "closes nothing"),
        ("a[b", 1, "never closed"),
        ("*a", 0, "nothing to repeat"),
        ("a**", 2, "cannot be repeated"),
        ("a{3,2}", 1, "less than the minimum"),
        ("a{,2}", 1, "differently"),
        ("[]a]", 1, "differently"),
        ("[b-a]", 1, "ends before"),
        (r"[\d-z]", 1, "single characters"),
        (r"a\1", 1, "back reference"),
        (r"(?P<x>a)\k<x>", 8, "back reference"),
        ("a(?=b)", 1, "lookaround"),
        ("a(?<!b)", 1, "lookaround"),
        ("(?i)a", 0, "lookaround, flags"),
        ("a++", 2, "possessive"),
        (r"\bword", 0, "assertion"),
        (r"\p{L}", 0, "not supported"),
        (r"\01", 0, "octal"),
        ("a$b", 1, "anchor"),
        ("a^", 1, "anchor"),
        ("(^a)", 1, "anchor"),
        ("(a$)", 2, "anchor"),
        ("a\\", 1, "nothing follows"),
        (r"\ud800", 0, "not a Unicode character"),
        ("a{1000000}", 1, "more than"),
        ("(" * 60 + ")" * 60, 50, "nested"),
        ("a" * 5000, 0, "longer than"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused_with_its_position(pattern, position, reason):
    with pytest.raises(SchemaError, match=re.escape(reason)) as caught:
        as_response_format(Regex(pattern))
    assert caught.value.position == position
    assert caught.value.pattern == pattern


@pytest.mark.parametrize("pattern", ["[^\\s\\S]", "\\0"])
def test_a_pattern_that_nothing_matches_is_refused(pattern):
    with pytest.raises(SchemaError, match="no text"):
        as_response_format(Regex(pattern))


def test_a_pattern_that_needs_too_many_states_is_refused():
    with pytest.raises(SchemaError, match="simpler pattern"):
        as_response_format(Regex("(a|b)*a(a|b){15}"))


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*", "((a?)+)*", "(|a)+"])
def test_ambiguous_patterns_become_grammars_without_choice(pattern):
    gbnf = as_response_format(Regex(pattern)).grammar
    assert len(gbnf) < 200


def test_choices_are_exactly_the_texts():
    options = ["yes", "no", "not", 'a "quoted"\\ one', "two\nlines", "é😀"]
    found = as_response_format(Choices(options))
    assert [found.parse(option) for option in options] == options
    assert found.parse("n") is None
    assert found.schema is None


@pytest.mark.parametrize("options", [[], [""], ["a", "a"], ["\0"]])
def test_choices_must_be_told_apart(options):
    with pytest.raises(ValueError, match="choices"):
        Choices(options)


@pytest.mark.parametrize("options", ["yes", [1], [None]])
def test_choices_are_texts(options):
    with pytest.raises(TypeError):
        Choices(options)
