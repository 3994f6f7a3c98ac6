"""What grammar samplers allow: what llama.cpp's own allow, at every place, and more where those could not go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.errors import GrammarError
from causerie.llama import Model, Sampler, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from causerie.llama.vocab import Vocab

VENDOR = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp"


@pytest.fixture(scope="module", params=["gpt-2", "llama-spm"])
def vocab(request: pytest.FixtureRequest) -> Iterator[Vocab]:
    with Model(VENDOR / "models" / f"ggml-vocab-{request.param}.gguf", vocab_only=True) as loaded:
        yield loaded.vocab


@pytest.fixture(scope="module")
def gpt2() -> Iterator[Vocab]:
    with Model(VENDOR / "models" / "ggml-vocab-gpt-2.gguf", vocab_only=True) as loaded:
        yield loaded.vocab


def allowed(sampler: Sampler, n: int) -> list[int]:
    result = sampler.apply(np.zeros(n, np.float32))
    return [int(t) for t in np.sort(result.ids[result.logits == 0])]


class Theirs:
    """llama.cpp's own sampler, asked about some tokens: its time grows exponentially with their length."""

    def __init__(self, vocab: Vocab, text: str, ids: Sequence[int]) -> None:
        self.ids = np.array(ids, np.int32)
        self.pointer = lib.llama_sampler_init_grammar(vocab._pointer, text.encode(), b"root")
        assert self.pointer != ffi.NULL
        self.room = np.zeros(len(ids), np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)]))

    def allowed(self) -> list[int]:
        self.room["id"], self.room["logit"] = self.ids, 0
        candidates = ffi.from_buffer("llama_token_data[]", self.room)
        array = ffi.new("llama_token_data_array *", (candidates, len(self.ids), -1, False))
        lib.llama_sampler_apply(self.pointer, array)
        assert lib.causerie_error_code() == 0
        return [int(t) for t in self.ids[self.room["logit"] == 0]]

    def accept(self, token: int) -> None:
        lib.llama_sampler_accept(self.pointer, token)
        assert lib.causerie_error_code() == 0


def valid_beginning(piece: bytes) -> bool:
    """Whether bytes are UTF-8 that may break off."""
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


terminals = st.sampled_from(
    ['"x"', '"xy"', "[a-z]", "[^x]", ".", '"\\n"', '"é"', "[à-ü漢]", '" "', "[0-9]", "[^\\x00-\\x7F]"]
)
repetitions = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,3}", "{1,}", "{0}"])


def bodies(names: str) -> Any:
    """Alternatives that refer to the given rules."""
    atoms = terminals | st.sampled_from([*names, "."])
    groups = st.lists(atoms | st.just('""'), min_size=1, max_size=3).map(lambda parts: "(" + " | ".join(parts) + ")")
    items = st.tuples(atoms | groups, repetitions).map("".join) | st.just('""')
    return st.lists(st.lists(items, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)


grammars = st.tuples(*(bodies(names) for names in ("abc", "bc", "c", ""))).map(
    lambda found: "\n".join(f"{name} ::= {body}" for name, body in zip(("root", "a", "b", "c"), found, strict=True))
)


@settings(deadline=None, max_examples=40)
@given(grammars, st.integers(0, 2**32 - 1))
def test_they_allow_what_llama_cpp_allows(gpt2: Vocab, text: str, seed: int) -> None:
    try:
        ours = Sampler.grammar(gpt2, text)
    except GrammarError:
        return
    random = np.random.default_rng(seed)
    short = [t for t in range(gpt2.n_tokens) if len(gpt2.piece(t)) <= 2]
    asked = sorted({*short[:300], *random.choice(short, 300).tolist(), *random.choice(gpt2.n_tokens, 50).tolist()})
    theirs = Theirs(gpt2, text, asked)
    before = b""
    for _ in range(8):
        here = [t for t in allowed(ours, gpt2.n_tokens) if t in asked]
        want = [t for t in theirs.allowed() if valid_beginning(before + gpt2.piece(t)) or gpt2.is_eog(t)]
        if not valid_beginning(before) or before.decode("utf-8", "ignore").encode() != before:
            want = [t for t in want if not gpt2.is_eog(t)]  # llama.cpp lets a text end within a character
        assert here == want
        going = [t for t in here if not gpt2.is_eog(t)]
        if not going:
            break
        token = int(random.choice(going))
        ours.accept(token)
        theirs.accept(token)
        before += gpt2.piece(token)
    lib.llama_sampler_free(theirs.pointer)


JSON = (VENDOR / "grammars" / "json.gbnf").read_text("utf-8")


def test_they_allow_what_llama_cpp_allows_along_a_text(vocab: Vocab) -> None:
    ours, theirs = Sampler.grammar(vocab, JSON), Theirs(vocab, JSON, range(vocab.n_tokens))
    text = '{"name": "Łódź 漢字 👩\u200d🚀", "list": [1, -2.5e3, true, null, {"x": "\\u00e9"}]}'
    before = b""
    first = next(t for t in range(vocab.n_tokens) if vocab.piece(t) == b"{")  # spm begins a text with a blank
    for token in [first, *vocab.tokenize(text[1:], add_special=False).tolist()]:
        here, want = allowed(ours, vocab.n_tokens), theirs.allowed()
        surplus = set(want) - set(here)
        assert set(here) <= set(want)
        assert all(vocab.is_control(t) or not valid_beginning(before + vocab.piece(t)) for t in surplus)
        if vocab.piece(token) == b" ":
            continue
        ours.accept(token)
        theirs.accept(token)
        before = (before + vocab.piece(token))[-4:] if not valid_beginning(before + vocab.piece(token)) else b""
    assert any(vocab.is_eog(t) for t in allowed(ours, vocab.n_tokens))


AMBIGUOUS = [
    'root ::= s\ns ::= "a" s "b" | "a" s "c" | ""',
    'root ::= s\ns ::= "a" s "b" | "aa" s "b" | "a" s | ""',
    'root ::= s*\ns ::= "a"? "a"? "a"? t\nt ::= "a" t | "a"',
    'root ::= e\ne ::= "(" e ")" e | "(" e ")" | "a" e e | ""',
    "root ::= x\nx ::= [a-z] x [a-z] | [a-z] x . | [a-z]",
]


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_ambiguous_rules_take_no_longer_than_others(gpt2: Vocab, text: str) -> None:
    """llama.cpp keeps each way to read the text by itself: here there are more than 2**100."""
    sampler = Sampler.grammar(gpt2, text)
    (a,) = gpt2.tokenize("a", add_special=False).tolist()
    start = time.process_time()
    for _ in range(150):
        sampler.accept(a)
    assert allowed(sampler, gpt2.n_tokens)
    assert time.process_time() - start < 30


def test_what_is_too_ambiguous_is_refused(gpt2: Vocab) -> None:
    """Each letter may have opened a level or not, thousands of levels deep."""
    sampler = Sampler.grammar(gpt2, 'root ::= s\ns ::= "a" s "b" | "aa" s "b" | ""')
    (a,) = gpt2.tokenize("a", add_special=False).tolist()
    for _ in range(5000):
        sampler.accept(a)
    with pytest.raises(GrammarError, match="ambiguous"):
        sampler.apply(np.zeros(gpt2.n_tokens, np.float32))
    sampler.reset()
    sampler.accept(a)


def test_very_deep_texts_are_followed(gpt2: Vocab) -> None:
    sampler = Sampler.grammar(gpt2, 'root ::= "[" root "]" | "x"')
    one, two = (gpt2.tokenize(text, add_special=False).tolist() for text in ("[", "]"))
    for _ in range(20_000):
        sampler.accept(one[0])
    copy = sampler.clone()
    for grammar in (sampler, copy):
        grammar.accept(*gpt2.tokenize("x", add_special=False).tolist())
        for _ in range(20_000):
            grammar.accept(two[0])
        assert [gpt2.is_eog(t) for t in allowed(grammar, gpt2.n_tokens)] == [True]


def test_what_is_kept_is_bounded(gpt2: Vocab) -> None:
    """States of a grammar that counts are never met again: they are dropped, and the place in the text is not."""
    sampler = Sampler.grammar(gpt2, 'root ::= "[" root "]" | "x" | ""')
    (opening,) = gpt2.tokenize("[", add_special=False).tolist()
    row = np.zeros(gpt2.n_tokens, np.float32)
    for _ in range(12_000):  # 6 KB each
        sampler.accept(opening)
        sampler.apply(row)
    (closing,) = gpt2.tokenize("]", add_special=False).tolist()
    for _ in range(12_000):
        assert closing in allowed(sampler.clone(), gpt2.n_tokens) if _ % 3000 == 0 else True
        sampler.accept(closing)
    assert [gpt2.is_eog(t) for t in allowed(sampler, gpt2.n_tokens)] == [True]


def test_samplers_of_one_grammar_and_copies_go_their_own_way(gpt2: Vocab) -> None:
    first, second = (Sampler.grammar(gpt2, 'root ::= "ab" | "cd"') for _ in range(2))
    ids = {c: int(gpt2.tokenize(c, add_special=False)[0]) for c in "abcd"}
    first.accept(ids["a"])
    copy = first.clone()
    second.accept(ids["c"])
    for sampler, letter in ((copy, "b"), (first, "b"), (second, "d")):
        assert allowed(sampler, gpt2.n_tokens) == [ids[letter]]
        sampler.accept(ids[letter])


def test_control_tokens_are_allowed_only_where_their_text_is_shown(smollm2_path: Path) -> None:
    with Model(smollm2_path, vocab_only=True) as model:
        vocab = model.vocab
        (start,) = vocab.tokenize("<|im_start|>", parse_special=True).tolist()
        control = {t for t in range(vocab.n_tokens) if vocab.is_control(t) and not vocab.is_eog(t)}
        assert start in control
        assert control <= set(allowed(Sampler.grammar(vocab, "root ::= .+"), vocab.n_tokens))
        for shown in ((), (start,)):
            found = allowed(Sampler.grammar(vocab, "root ::= .+", shown=shown), vocab.n_tokens)
            assert control & set(found) == set(shown)
        with pytest.raises(ValueError, match="token id"):
            Sampler.grammar(vocab, "root ::= .+", shown=[vocab.n_tokens])
