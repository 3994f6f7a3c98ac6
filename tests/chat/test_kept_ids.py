"""The ids of a reply whose end was cut off: those inside stay, the rest of the text becomes plain tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.kept_ids import kept_ids
from causerie.chat.text_ids import text_ids
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.llama import Vocab

LLAMA = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models"
TEXTS = ["Hello, how are you?", "👩‍👩‍👧‍👦 family", "日本語の文", "a\n\n  b ", "x<|im_end|>y", "naïve é"]


@pytest.fixture(scope="module", params=["qwen2", "llama-spm", "phi-3", "gemma-4"])
def vocab(request: pytest.FixtureRequest) -> Iterator[Vocab]:
    with Model(LLAMA / f"ggml-vocab-{request.param}.gguf", vocab_only=True) as model:
        yield model.vocab


class _Bytes:
    """A vocabulary of bytes: the id is the byte."""

    type = "bpe"

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> object:
        assert not add_special
        assert not parse_special
        return memoryview(text.encode())


BYTES: Vocab = _Bytes()  # type: ignore[assignment]


def said(vocab: Vocab, ids: tuple[int, ...]) -> str:
    return b"".join(vocab.piece(i) for i in ids).decode("utf-8", "replace")


@pytest.mark.parametrize("text", TEXTS)
def test_a_reply_cut_anywhere_says_the_text_that_was_kept(vocab: Vocab, text: str) -> None:
    tokens = text_ids(vocab, "Q:") + text_ids(vocab, text, inside=True)
    pieces = [vocab.piece(token) for token in tokens]
    whole = b"".join(pieces).decode()
    for cut in range(len(whole) + 1):
        kept = kept_ids(tokens, pieces, whole[:cut], vocab)
        assert said(vocab, kept) == whole[:cut]
        same = 0
        while same < len(kept) and kept[same] == tokens[same]:
            same += 1
        assert len(b"".join(pieces[: same + 1]).decode("utf-8", "ignore")) >= cut or same == len(tokens)
        assert not any(vocab.is_control(token) for token in kept)


@given(st.lists(st.binary(max_size=4), max_size=12), st.data())
def test_whatever_the_bytes_the_kept_text_comes_out_again(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces).decode("utf-8", "replace")
    cut = data.draw(st.integers(0, len(whole)))
    tokens = range(1000, 1000 + len(pieces))
    kept = kept_ids(tokens, pieces, whole[:cut], BYTES)
    if cut == len(whole):
        assert kept == tuple(tokens)
    raw = b"".join(pieces[token - 1000] if token >= 1000 else bytes([token]) for token in kept)
    assert raw.decode("utf-8", "replace") == whole[:cut]


def test_all_tokens_stay_where_nothing_was_cut() -> None:
    pieces = [b"\xff", b"a", b""]
    assert kept_ids([7, 8, 9], pieces, "\ufffda", BYTES) == (7, 8, 9)


def test_tokens_that_show_nothing_go_with_what_was_cut_behind_them() -> None:
    assert kept_ids([7, 8, 9], [b"a", b"", b"b"], "a", BYTES) == (7,)


def test_a_token_cut_in_the_middle_becomes_plain_text() -> None:
    assert kept_ids([700, 800], [b"ab", b"cd"], "abc", BYTES) == (700, ord("c"))
    assert kept_ids([700], [b"ab"], "", BYTES) == ()


def test_broken_bytes_that_lie_inside_stay() -> None:
    assert kept_ids([700, 800, 900], [b"\xf0\x9f", b"x", b"y"], "\ufffd", BYTES) == (700,)
    assert kept_ids([700, 800, 900], [b"\xf0", b"\x9fx", b"y"], "\ufffdx", BYTES) == (700, 800)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="one piece for each"):
        kept_ids([1], [], "", BYTES)
    with pytest.raises(ValueError, match="not the beginning"):
        kept_ids([1], [b"a"], "b", BYTES)
