"""Text to tokens and back equals llama.cpp's own vectors, and no text or id can end the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie import UnsupportedError
from causerie.llama import Model, Vocab

FOLDER = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models"
VOCABS = sorted(p.name.removeprefix("ggml-vocab-").removesuffix(".gguf") for p in FOLDER.glob("ggml-vocab-*.gguf"))
WITH_VECTORS = [name for name in VOCABS if (FOLDER / f"ggml-vocab-{name}.gguf.inp").exists()]
SEPARATOR = b"\n__ggml_vocab_test__\n"


@cache
def vocab(name: str) -> Vocab:
    return Model(FOLDER / f"ggml-vocab-{name}.gguf", vocab_only=True).vocab


def vectors(name: str) -> list[tuple[bytes, list[int]]]:
    """The texts and ids of a vocabulary, read as llama.cpp's test-tokenizer-0 reads them."""
    texts = (FOLDER / f"ggml-vocab-{name}.gguf.inp").read_bytes().split(SEPARATOR)
    if not texts[-1]:
        texts.pop()
    lines = (FOLDER / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=False)]


def joined(v: Vocab, ids: np.ndarray) -> bytes:
    return b"".join(v.piece(int(i)) for i in ids)


@pytest.mark.parametrize("name", WITH_VECTORS)
class TestVectors:
    def test_there_are_some(self, name: str) -> None:
        assert len(vectors(name)) >= 46

    def test_tokens_equal_those_of_llama_cpp(self, name: str) -> None:
        found = [(text, vocab(name).tokenize(text, add_special=False).tolist()) for text, _ in vectors(name)]
        assert found == vectors(name)

    def test_str_and_bytes_give_the_same(self, name: str) -> None:
        for text, ids in vectors(name):
            assert vocab(name).tokenize(text.decode(), add_special=False).tolist() == ids

    def test_bytes_round_trip(self, name: str) -> None:
        v = vocab(name)
        if v.type == "wpm":
            pytest.skip("WordPiece folds case, accents and blanks")
        for text, ids in vectors(name):
            if v.type == "bpe":
                assert joined(v, np.array(ids)) == text
            else:  # a leading blank is added, and taken away again
                assert v.detokenize_bytes(ids) == text
                assert joined(v, np.array(ids)) == (b" " + text if text else b"")


def test_tokenising_on_many_threads_gives_the_same() -> None:
    cases = vectors("llama-bpe")
    wrong: list[bytes] = []

    def work() -> None:
        wrong.extend(t for t, ids in cases if vocab("llama-bpe").tokenize(t, add_special=False).tolist() != ids)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", ["qwen2", "gpt-2", "aquila", "gpt-neox", "deepseek-coder"])
@given(text=st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_round_trips_through_a_byte_level_vocabulary(name: str, text: str) -> None:
    v = vocab(name)
    assert joined(v, v.tokenize(text, add_special=False)) == text.encode()


@given(text=st.text(max_size=60).filter(lambda t: not t.startswith(" ") and "\u2581" not in t))
@settings(max_examples=60, deadline=None)
def test_any_text_round_trips_through_a_sentencepiece_vocabulary(text: str) -> None:
    v = vocab("llama-spm")
    assert v.detokenize_bytes(v.tokenize(text, add_special=False)) == text.encode()


@pytest.mark.parametrize("name", VOCABS)
def test_any_bytes_are_tokenised_or_refused(name: str) -> None:
    v = vocab(name)
    rng = np.random.default_rng(7)
    alphabet = np.array([0, 10, 32, 65, 0x80, 0x81, 0x96, 0x9F, 0xC0, 0xE2, 0xED, 0xF0, 0xF4, 0xF7, 0xFF], np.uint8)
    for i in range(150):
        raw = rng.bytes(rng.integers(0, 40)) if i % 2 else rng.choice(alphabet, rng.integers(0, 30)).tobytes()
        try:
            ids = v.tokenize(raw, parse_special=i % 3 == 0)
        except ValueError as error:
            assert "invalid codepoint" in str(error)  # noqa: PT017
            continue
        assert ids.dtype == np.int32
        assert ((ids >= 0) & (ids < v.n_tokens)).all()
        assert isinstance(v.detokenize(ids, special=True), str)


def test_bytes_beyond_unicode_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="cannot tokenise this text"):
        vocab("gpt-neox").tokenize(b"\xf7\xae\x84\x89")


def test_a_nul_character_is_text_like_any_other() -> None:
    v = vocab("qwen2")
    ids = v.tokenize("a\0b")
    assert joined(v, ids) == b"a\0b"


def test_a_lone_surrogate_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        vocab("qwen2").tokenize("\ud800")


@pytest.mark.parametrize("text", [None, 5, ["a"], bytearray(b"a"), memoryview(b"a")])
def test_only_str_and_bytes_are_text(text: object) -> None:
    with pytest.raises(TypeError, match="text must be str or bytes"):
        vocab("qwen2").tokenize(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VOCABS)
def test_an_empty_text_gives_at_most_special_tokens(name: str) -> None:
    v = vocab(name)
    assert v.tokenize("", add_special=False).tolist() == []
    special = v.tokenize("", add_special=True).tolist()
    assert set(special) <= {v.bos, v.eos, v.sep}
    assert v.detokenize([]) == ""


LONG = """
import sys
from causerie.llama import Model
vocab = Model(sys.argv[1], vocab_only=True).vocab
for unit in ("a", "1", "!", " ", "\\u6211"):
    text = unit * 40_000
    ids = vocab.tokenize(text, add_special=False)
    assert b"".join(vocab.piece(int(i)) for i in ids) == text.encode(), repr(unit)
"""


@pytest.mark.parametrize("name", ["aquila", "deepseek-llm", "falcon", "gpt-neox", "llama-bpe"])
def test_a_long_run_without_a_break_does_not_overflow_the_stack(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG, FOLDER / f"ggml-vocab-{name}.gguf"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_line_that_no_stack_could_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"too long for llama.cpp's tokeniser"):
        vocab("falcon").tokenize("!" * (2**23 + 1))


def test_a_megabyte_of_prose_round_trips() -> None:
    v = vocab("qwen2")
    text = "Salt comes from rocks on land; 1,234 rivers carry it. Ünïcødé 🌊\n" * 15_000
    assert joined(v, v.tokenize(text)[:1000]) == text.encode()[: len(joined(v, v.tokenize(text)[:1000]))]
    assert v.detokenize(v.tokenize(text)) == text


class TestSpecialTokens:
    def test_text_of_control_tokens_is_text_unless_asked(self, model: Model) -> None:
        v = model.vocab
        plain = v.tokenize("<|im_end|>", add_special=False)
        parsed = v.tokenize("<|im_end|>", add_special=False, parse_special=True)
        assert parsed.tolist() == [v.eos]
        assert len(plain) > 1
        assert v.eos not in plain

    def test_control_tokens_render_only_when_asked(self, model: Model) -> None:
        v = model.vocab
        assert v.eos is not None
        assert v.piece(v.eos) == b"<|im_end|>"
        assert v.piece(v.eos, special=False) == b""
        assert v.detokenize([v.eos]) == ""
        assert v.detokenize([v.eos], special=True) == "<|im_end|>"

    def test_bos_is_added_where_the_model_wants_it(self) -> None:
        v = vocab("llama-spm")
        assert v.add_bos
        assert v.tokenize("x")[0] == v.bos
        assert v.tokenize("x", add_special=False)[0] != v.bos
        assert v.detokenize(v.tokenize("x"), special=True, remove_special=True).lstrip() == "x"

    def test_a_token_that_the_model_lacks_is_none(self, model: Model) -> None:
        assert model.vocab.mask is None
        assert model.vocab.bos == 1

    def test_end_and_control_are_told(self, model: Model) -> None:
        v = model.vocab
        word = int(v.tokenize("sea", add_special=False)[0])
        assert v.is_eog(v.eos or -1)
        assert v.is_control(v.eos or -1)
        assert not v.is_eog(word)
        assert not v.is_control(word)

    def test_fill_in_the_middle_tokens_are_found(self) -> None:
        v = vocab("starcoder")
        assert [v.text(t or 0) for t in (v.fim_pre, v.fim_suf, v.fim_mid)] == [
            "<fim_prefix>", "<fim_suffix>", "<fim_middle>",
        ]  # fmt: skip


class TestIds:
    @pytest.mark.parametrize("method", ["piece", "text", "score", "attributes", "is_eog", "is_control"])
    @pytest.mark.parametrize("token", [-1, -(2**31), 2**31, 10**12])
    def test_one_that_is_out_of_range_is_an_index_error(self, model: Model, method: str, token: int) -> None:
        with pytest.raises(IndexError, match="is not in 0"):
            getattr(model.vocab, method)(token)
        with pytest.raises(IndexError):
            getattr(model.vocab, method)(model.vocab.n_tokens)

    @pytest.mark.parametrize("token", [1.0, "1", None, True])
    def test_one_that_is_no_int_is_a_type_error(self, model: Model, token: object) -> None:
        with pytest.raises(TypeError, match="token id must be an int"):
            model.vocab.piece(token)  # type: ignore[arg-type]

    def test_numpy_ints_are_ints(self, model: Model) -> None:
        assert model.vocab.piece(np.int32(253)) == b" a"

    @pytest.mark.parametrize("ids", [[-1], [10**9], np.array([2**40]), np.array([2**63], np.uint64)])
    def test_a_list_with_one_out_of_range_is_an_index_error(self, model: Model, ids: list[int]) -> None:
        with pytest.raises(IndexError):
            model.vocab.detokenize(ids)

    @pytest.mark.parametrize("ids", [[[1, 2]], 5, ["a"], [1.5], [True], np.zeros((2, 2), int)])
    def test_what_is_no_flat_list_of_ints_is_a_type_error(self, model: Model, ids: object) -> None:
        with pytest.raises(TypeError, match="flat sequence of ints"):
            model.vocab.detokenize(ids)  # type: ignore[arg-type]

    @pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
    def test_any_integer_dtype_and_stride_will_do(self, model: Model, dtype: type) -> None:
        ids = np.array([100, 7, 101, 7], dtype)[::2]
        assert model.vocab.detokenize_bytes(ids) == model.vocab.detokenize_bytes([100, 101])

    def test_every_token_can_be_looked_at(self, model: Model) -> None:
        v = model.vocab
        assert len(v) == v.n_tokens == model.n_vocab
        for token in range(0, len(v), 501):
            assert isinstance(v.piece(token), bytes)
            assert isinstance(v.text(token), str)
            assert isinstance(v.score(token), float)
            assert isinstance(v.attributes(token), int)

    def test_blanks_can_be_stripped_from_a_piece(self, model: Model) -> None:
        assert model.vocab.piece(253, lstrip=1) == b"a"
        with pytest.raises(ValueError, match="lstrip"):
            model.vocab.piece(253, lstrip=-1)

    def test_pieces_of_a_split_character_are_bytes(self, model: Model) -> None:
        ids = model.vocab.tokenize("🦙", add_special=False)
        assert len(ids) > 1
        assert joined(model.vocab, ids) == "🦙".encode()
        assert "\ufffd" in model.vocab.detokenize(ids[:1])


def test_a_model_without_a_vocabulary_says_so(tmp_path: Path) -> None:
    from tiny import write_llama

    with Model(write_llama(tmp_path / "bare.gguf", vocab=False)) as bare:
        assert bare.vocab.type == "none"
        for call in (
            lambda v: v.tokenize("x"), lambda v: v.detokenize([1]), lambda v: v.piece(1), lambda v: v.text(1),
            lambda v: v.score(1), lambda v: v.is_control(1), lambda v: v.attributes(1),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError, match="no vocabulary"):
                call(bare.vocab)
        assert not bare.vocab.is_eog(1)


def test_the_vocabulary_keeps_its_model_alive() -> None:
    v = Model(FOLDER / "ggml-vocab-gpt-2.gguf", vocab_only=True).vocab
    assert v.tokenize("Hello world").tolist() == [15496, 995]
