"""Bytes cut anywhere become the text of the whole; characters that a reader sees stay in one chunk."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat import ReplyText, Utf8Assembler
from causerie.chat.characters import CharacterBuffer

light = settings(deadline=None, max_examples=150)

FAMILY = "👩‍👩‍👧‍👦"
EMOJI = [FAMILY, "🏳️‍🌈", "👍🏽", "🇨🇿", "❤️", "👩🏻‍❤️‍💋‍👩🏼", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "😀"]
SYLLABLES = ["क्षि", "ที่", "שָׁ", "மொ"]


def cuts(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length), max_size=length + 2).map(lambda given: [0, *sorted(given), length])


@st.composite
def bytes_and_pieces(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    text = draw(st.lists(st.text(max_size=4).map(str.encode) | st.binary(max_size=4), max_size=6).map(b"".join))
    places = draw(cuts(len(text)))
    return text, [text[i:j] for i, j in pairwise(places)]


@st.composite
def text_and_pieces(draw: st.DrawFn) -> tuple[str, list[str]]:
    alphabet = [*EMOJI, *SYLLABLES, *"a1 é中한かЖ😀\u200d\ufe0f\u0301\U0001f1e8\U0001f3fd्क"]
    text = "".join(draw(st.lists(st.sampled_from(alphabet), max_size=12)))
    places = draw(cuts(len(text)))
    return text, [text[i:j] for i, j in pairwise(places)]


@light
@given(bytes_and_pieces())
def test_the_text_is_that_of_the_whole_bytes(case: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = case
    assembler = Utf8Assembler()
    chunks = []
    for piece in pieces:
        chunks.append(assembler.feed(piece))
        assert len(assembler.pending) <= 3
    assert "".join(chunks) + assembler.flush() == whole.decode("utf-8", "replace")


def test_a_character_comes_with_its_last_byte() -> None:
    assembler = Utf8Assembler()
    assert [assembler.feed(bytes([byte])) for byte in "中a😀".encode()] == ["", "", "中", "a", "", "", "", "😀"]
    assert assembler.flush() == ""


def test_a_flush_ends_one_text_and_begins_another() -> None:
    assembler = Utf8Assembler()
    assert assembler.feed("😀".encode()[:3]) == ""
    assert assembler.flush() == "\ufffd"
    assert assembler.feed("😀".encode()[3:]) == "\ufffd"
    assert assembler.feed(b"a") == "a"


@pytest.mark.parametrize("character", [*EMOJI, *SYLLABLES, "中", "한", "é"])
@pytest.mark.parametrize("around", ["", "x", "中", "😀"])
def test_no_chunk_begins_or_ends_inside_a_character(character: str, around: str) -> None:
    text = around + character + around
    whole = text.encode()
    for size in (1, 2, 3, 5):
        reply = ReplyText()
        chunks = [reply.feed(whole[i : i + size]) for i in range(0, len(whole), size)] + [reply.flush()]
        assert "".join(chunks) == text
        ends = [len("".join(chunks[: i + 1])) for i in range(len(chunks))]
        begin = len(around)
        assert not [end for end in ends if begin < end < begin + len(character)], chunks


@light
@given(text_and_pieces())
def test_no_text_is_lost_and_little_is_held(case: tuple[str, list[str]]) -> None:
    text, pieces = case
    buffer = CharacterBuffer()
    shown = ""
    for piece in pieces:
        shown += buffer.feed(piece)
        assert len(buffer.pending) <= 32
        assert shown + buffer.pending == text[: len(shown + buffer.pending)]
    assert shown + buffer.flush() == text
    assert buffer.flush() == ""


@pytest.mark.parametrize(
    "text", ["Hello, world 123", "Příliš žluťoučký", "Ещё", "你好，世界", "こんにちは", "안녕", "🇨🇿"]
)
def test_common_text_is_never_late(text: str) -> None:
    buffer = CharacterBuffer()
    fed = [text] if text == "🇨🇿" else list(text)
    assert [buffer.feed(piece) for piece in fed] == fed


def test_half_a_flag_waits_for_the_other() -> None:
    buffer = CharacterBuffer()
    assert [buffer.feed(half) for half in "🇨🇿🇫🇷"] == ["", "🇨🇿", "", "🇫🇷"]


def test_an_unfinished_keycap_waits_for_its_frame() -> None:
    buffer = CharacterBuffer()
    assert [buffer.feed(piece) for piece in ("No. 1\ufe0f", "\u20e3", "!")] == ["No. ", "1\ufe0f\u20e3", "!"]


def test_an_endless_sequence_is_given_out_as_it_grows() -> None:
    buffer = CharacterBuffer()
    text = "👩\u200d" * 500
    shown = "".join(map(buffer.feed, text))
    assert len(shown) > len(text) - 33
    assert shown + buffer.flush() == text


@light
@given(text_and_pieces(), st.lists(st.sampled_from(["a", "1 ", "\u200d", "中a", "क"]), max_size=2))
def test_a_reply_does_not_depend_on_how_its_bytes_were_cut(case: tuple[str, list[str]], stops: list[str]) -> None:
    text, pieces = case
    at_once, streamed = ReplyText(stops), ReplyText(stops)
    expected = at_once.feed(text.encode()) + at_once.flush()
    assert "".join(streamed.feed(piece.encode()) for piece in pieces) + streamed.flush() == expected
    assert streamed.matched == at_once.matched


def test_a_stop_string_is_noticed_with_the_bytes_that_complete_it() -> None:
    reply = ReplyText(["\n\nUser 😀"])
    chunks = [reply.feed(piece) for piece in (b"Hi \xf0\x9f\x98\x80", b"\n\nUser", b" \xf0\x9f", b"\x98\x80")]
    assert chunks == ["Hi ", "", "", "😀"]
    assert reply.matched == "\n\nUser 😀"
    assert reply.feed(b"more") == reply.flush() == ""
