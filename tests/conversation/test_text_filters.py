"""The supplied output transforms: what they take away, and that it never depends on how the text was cut."""

from __future__ import annotations

import asyncio
import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie import KeywordRemover, PatternRedactor, PrefixRemover, atransformed, transformed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

cuts_of = st.lists(st.integers(0, 40), max_size=6)
texts = st.one_of(
    st.text("ab", max_size=16),
    st.text("Assistant: \n", max_size=24),
    st.text("1234- @x.", max_size=24),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=16),
    st.lists(st.sampled_from(["👩‍🚀", "🇫🇷", "é", "ab", "Assistant:", " ", "12-34"]), max_size=8).map("".join),
)


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


def whole_lines(chunks: Iterator[str]) -> Iterator[str]:
    held = ""
    for chunk in chunks:
        *lines, held = (held + chunk).split("\n")
        yield "".join(f"{line.rstrip()}\n" for line in lines)
    yield held


async def lazy_lines(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    held = ""
    async for chunk in chunks:
        *lines, held = (held + chunk).split("\n")
        for line in lines:
            yield f"{line.rstrip()}\n"
    yield held


TRANSFORMS: list[Any] = [
    KeywordRemover(["a", "ab", "bab", "aab", "Assistant", "👩"]),
    KeywordRemover({"aa": "b", "ab": "aa", "🇫": "F", " ": ""}),
    PrefixRemover(),
    PrefixRemover(["a", "ab", "abb"]),
    PatternRedactor(r"\d[\d-]+\d", window=4),
    PatternRedactor(r"(?<=a)b+|^a$|\ba", lambda found: found[0].upper(), window=3),
    PatternRedactor(r"(?m)^ +|\s+$", "", window=1),
    PatternRedactor("(?<=ab)a", window=1),  # looks back farther than it may
    whole_lines,
    lazy_lines,
    [PrefixRemover(), whole_lines, KeywordRemover("ab"), lazy_lines, PatternRedactor("a+", "*", window=5)],
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=range(len(TRANSFORMS)))
class TestCuttingNeverMatters:
    @settings(max_examples=60, deadline=None)
    @given(text=texts, cuts=cuts_of)
    def test_anywhere(self, transform: Any, text: str, cuts: list[int]) -> None:
        whole = "".join(transformed([text], transform))
        assert "".join(transformed(pieces(text, cuts), transform)) == whole
        assert "".join(transformed(text, transform)) == whole  # character by character

    def test_for_asyncio_either(self, transform: Any) -> None:
        text = "Assistant: ab 12-34 aab👩‍🚀 \n b ab"

        async def one_by_one() -> AsyncIterator[str]:
            for character in text:
                await asyncio.sleep(0)
                yield character

        async def main() -> str:
            return "".join([chunk async for chunk in atransformed(one_by_one(), transform)])

        assert asyncio.run(main()) == "".join(transformed([text], transform))


def removed(text: str, keywords: Any, cuts: Sequence[int] = ()) -> str:
    return "".join(transformed(pieces(text, cuts), KeywordRemover(keywords)))


class TestKeywordRemover:
    @settings(max_examples=200, deadline=None)
    @given(st.text("abc", max_size=14), st.text("abc", min_size=1, max_size=4), cuts_of)
    def test_cut_anywhere_is_str_replace(self, text: str, keyword: str, cuts: list[int]) -> None:
        assert removed(text, [keyword], cuts) == text.replace(keyword, "")

    @settings(max_examples=200, deadline=None)
    @given(
        st.text("ab", max_size=14),
        st.dictionaries(st.text("ab", min_size=1, max_size=5), st.text("abc", max_size=2), min_size=1, max_size=4),
        cuts_of,
    )
    def test_of_several_the_first_and_longest_goes(self, text: str, words: dict[str, str], cuts: list[int]) -> None:
        longest = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        assert removed(text, words, cuts) == re.sub(longest, lambda found: words[found[0]], text)
        assert removed(text, list(words), cuts) == re.sub(longest, "", text)

    def test_at_every_offset(self) -> None:
        text = "Hello User: you, Assistant: me, Use and User"
        for cut in range(len(text) + 1):
            assert removed(text, ["User:", "Assistant:"], [cut]) == "Hello  you,  me, Use and User"

    def test_holds_back_only_what_may_become_a_keyword(self) -> None:
        remover = KeywordRemover("User:")
        assert [remover.feed(text) for text in ("see U", "ni", "on Us", "er")] == ["see ", "Uni", "on ", ""]
        assert remover.flush() == "User"

    def test_one_replacement_for_all(self) -> None:
        assert "".join(transformed("a cat, a dog", KeywordRemover(["cat", "dog"], "pet"))) == "a pet, a pet"

    def test_many_long_keywords_that_are_alike_take_no_time(self) -> None:
        words = ["a" * length + "b" for length in range(1, 200)]
        begin = time.process_time()
        assert removed("a" * 5_000, words, range(0, 5_000, 3)) == "a" * 5_000
        assert time.process_time() - begin < 5  # a million steps

    @pytest.mark.parametrize("keywords", ["", [""], [3], 3, {"a": 3}, {"": "a"}])
    def test_wrong_keywords(self, keywords: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            KeywordRemover(keywords)


class TestPrefixRemover:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Assistant: Hello.", "Hello."),
            (" \n Assistant:\n\nHello.", "Hello."),
            ("AI:Hi", "Hi"),
            ("Assistant: Assistant: Hi", "Assistant: Hi"),
            ("Assistant", "Assistant"),
            ("  Hello. Assistant: Hi", "  Hello. Assistant: Hi"),
            ("  ", "  "),
            ("Assistant:", ""),
            ("", ""),
        ],
    )
    def test_takes_one_name_from_the_start(self, text: str, expected: str) -> None:
        assert "".join(transformed(text, PrefixRemover())) == expected

    def test_holds_back_no_longer_than_it_must(self) -> None:
        remover = PrefixRemover(["Bot:", "Bot: Bob:"])
        assert [remover.feed(text) for text in (" B", "ot: B", "ill", " Bot:")] == ["", "", "Bill", " Bot:"]

    @pytest.mark.parametrize("prefixes", ["", " a", [3]])
    def test_wrong_prefixes(self, prefixes: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            PrefixRemover(prefixes)


def redacted(text: str, pattern: Any, cuts: Sequence[int] = (), **options: Any) -> str:
    return "".join(transformed(pieces(text, cuts), PatternRedactor(pattern, **options)))


class TestPatternRedactor:
    @settings(max_examples=150, deadline=None)
    @given(
        st.text("ab1 \n", max_size=30),
        st.sampled_from(
            [r"\d+", "ab|b", r"\bab\b", r"(?m)^a+$", r"a(?=b)", r"(?<!a)b", r"\A[ab]+", r"b\Z", "a[^1]*?1"]
        ),
        cuts_of,
    )
    def test_within_the_window_is_re_sub(self, text: str, pattern: str, cuts: list[int]) -> None:
        assert redacted(text, pattern, cuts, window=40) == re.sub(pattern, "[redacted]", text)

    def test_finds_what_comes_in_pieces(self) -> None:
        text = "Write to ada@example.org, or call +49 170 1234567. Thanks."
        pattern = re.compile(r"[\w.]+@[\w.]+\w|\+\d[\d ]{6,}\d")
        for cut in range(len(text) + 1):
            assert redacted(text, pattern, [cut], replacement="…") == "Write to …, or call …. Thanks."

    def test_holds_back_the_window_and_no_more(self) -> None:
        redactor = PatternRedactor(r"\d+", window=4)
        assert [redactor.feed(text) for text in ("abcdef", "g1", "2", "3xyz", "z")] == [
            "abc",
            "de",
            "f",
            "g[redacted]",
            "x",
        ]
        assert redactor.flush() == "yzz"

    def test_longer_matches_are_found_in_pieces(self) -> None:
        assert redacted("1" * 9 + "x", r"\d+", window=4) == "[redacted]" * 3 + "x"

    def test_the_replacement_is_no_template(self) -> None:
        assert redacted("a1", r"(\d)", replacement=r"\1") == r"a\1"
        assert redacted("a1", r"(?P<n>\d)", replacement=lambda found: f"<{found['n']}>") == "a<1>"

    @pytest.mark.parametrize(
        ("pattern", "options"),
        [
            ("(", {}),
            ("a*", {}),
            (b"a", {}),
            (3, {}),
            ("a", {"window": 0}),
            ("a", {"window": "1"}),
            ("a", {"replacement": 3}),
        ],
    )
    def test_wrong_arguments(self, pattern: Any, options: dict[str, Any]) -> None:
        with pytest.raises((TypeError, ValueError)):
            PatternRedactor(pattern, **options)


def test_each_makes_a_fresh_one_of_its_kind() -> None:
    for made in (KeywordRemover("Hello"), PrefixRemover("Hello:"), PatternRedactor("Hello")):
        made.feed("Hel")
        fresh: Callable[[], Any] = made
        assert fresh().feed("lo") + fresh().flush() in {"lo", ""}
        assert fresh().flush() == ""
