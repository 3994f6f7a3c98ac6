"""The check of grammars before llama.cpp gets them: pure logic, and never more lenient than llama.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.errors import GrammarError
from causerie.llama import Model, ffi, lib
from causerie.llama._sampler_gbnf import parse
from causerie.llama._sampler_gbnf_graph import require_usable
from causerie.llama._sampler_trigger import check_pattern

VENDOR = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp"


def check(text, root="root"):
    rules = parse(text, root, lambda token: token == "<|end|>", 100)
    require_usable(rules)
    return rules


@pytest.mark.parametrize("path", sorted((VENDOR / "grammars").glob("*.gbnf")), ids=lambda p: p.stem)
def test_the_grammars_that_come_with_llama_cpp_are_accepted(path):
    check(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", [
    "root ::= ", "root ::= |", "root ::= []", 'root ::= ""', "root ::= .", 'root ::= "a" # comment', '# c\n\n root ::= "a"\r\n',
    'root ::= ("a"\n | "b"\n)', 'root ::= "a" |\n "b"', 'root ::= [^"\\\\\\x7F\\x00-\\x1F]', "root ::= [[-a] [a-] [\\]] [^^]",
    'root ::= "\\x41\\u0041\\U00000041\\t\\r\\n\\\\\\"\\[\\]\\-"', 'root ::= "a"{2}', 'root ::= "a"{0}', 'root ::= "a"{ 1 , 3 }',
    'root ::= "a"{1,99999}', 'root ::= "a"{2}{3}?', "root ::= ws*\nws ::= [ ]*", 'root ::= (("a"*)*)*', "root ::= <[99]> !<[0]> <|end|>",
    'root ::= "a" root | "b"', 'root ::= 1-2x\n1-2x ::= "é" [à-ü] "\U0001f600"', 'root ::= "a"\nroot ::= "b"',
    'a ::= b a | "y"\nb ::= c\nc ::= ""\nroot ::= a',
])  # fmt: skip
def test_these_are_accepted(text):
    check(text)


@pytest.mark.parametrize(("text", "line", "column", "message"), [
    ('root ::= "a', 1, 10, "never closed"), ("root ::= [a-", 1, 10, "never closed"), ('root ::= "\\q"', 1, 11, "escape"),
    ('root ::= "\\x4"', 1, 11, "escape"), ("root ::= [a\\q]", 1, 12, "escape"), ('root := "a"', 1, 6, "::="),
    ('a ::= "x"\n  b "y"', 2, 5, "::="), ('root ::= "a" )', 1, 14, "newline"), ('root ::= ("a"', 1, 14, "expecting \\)"),
    ('root ::= "a"\n | "b"', 2, 2, "name"), ("root ::= *", 1, 10, "before the repetition"), ('root ::= ""?', 1, 12, "before"),
    ('root ::= "a"{x}', 1, 14, "number"), ('root ::= "a"{1', 1, 15, "expecting"), ('root ::= "a"{3,2}', 1, 13, "less than"),
    ('root ::= "a"{2001}', 1, 13, "2000"), ('root ::= "a"{99999999999999999999}', 1, 14, "too large"),
    ('root ::= ("a"{0,2000}){0,9}', 1, 23, "too many repetitions"), ("root ::= <[100]>", 1, 10, "0..99"),
    ("root ::= <[1>", 1, 10, "token"), ("root ::= <|no|>", 1, 10, "single token"), ("root ::= !x", 1, 10, "token"),
    ("root ::= $", 1, 10, "newline"), ("root ::= " + "(" * 300 + '"a"' + ")" * 300, 1, 210, "nested"),
])  # fmt: skip
def test_what_is_malformed_is_refused_with_its_place(text, line, column, message):
    with pytest.raises(GrammarError, match=message) as caught:
        check(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(("text", "message"), [
    ("", "no rules"), ("# only a comment\n", "no rules"), ('x ::= "a"', "no rule 'root'"), ("root ::= x", "'x' is used but not"),
    ('root ::= root "a" | "b"', "left recursion"), ('root ::= a\na ::= b "x"\nb ::= a | "y"', "left recursion"),
    ('root ::= [] root | "a"', "left recursion"), ('a ::= b a "x" | "y"\nb ::= c\nc ::= ""\nroot ::= a', "left recursion"),
    ("root ::= root", "left recursion"), ('root ::= "a"*+', "left recursion"), ('root ::= "x" a\na ::= b a\nb ::= c\nc ::= ""', "leads only to itself"),
    ("".join(f"r{i} ::= r{i + 1} | r{i + 1}\n" for i in range(60)) + 'r60 ::= "a"\nroot ::= r0', "too many ways"),
    ("".join(f"r{i} ::= r{i + 1}\n" for i in range(9000)) + 'r9000 ::= "a"\nroot ::= r0', "begin with one another"),
    ("root ::= " + " | ".join(f'"{i}"' for i in range(60_000)), "more than 50000 ways"),
    ('root ::= "' + "a" * 5000 + '"{2000}', "elements"),
])  # fmt: skip
def test_what_llama_cpp_cannot_work_with_is_refused(text, message):
    with pytest.raises(GrammarError, match=message):
        check(text)


@pytest.mark.parametrize("pattern", [
    "<tool_call>", "[a*+]", r"\*\+", "a{2,30}", "(?:x|y)?z", r"^\s{0,10}\{$", "(a|b)(?=c)", "[[:alpha:]]", "é",
])  # fmt: skip
def test_bounded_trigger_patterns_are_accepted(pattern):
    assert check_pattern(pattern) == pattern.encode()


@pytest.mark.parametrize(("pattern", "message"), [
    ("a*", "bound"), ("a+?", "bound"), (r"[\s\S]*?(x)", "bound"), ("(ab){2,}", "bound"), ("[[:alpha:]]+", "bound"),
    ("(a{100}){100}", "large"), ("(" * 101 + ")" * 101, "nested"), ("a{99999999999999}", "large"), ("", "1..4096"),
    ("a\0b", "NUL"), ("a" * 5000, "4096"), ("\ud800", "Unicode"),
])  # fmt: skip
def test_trigger_patterns_that_could_overflow_the_stack_are_refused(pattern, message):
    with pytest.raises(GrammarError, match=message) as caught:
        check_pattern(pattern)
    assert caught.value.pattern == pattern


@pytest.fixture(scope="module")
def vocab():
    with Model(VENDOR / "models" / "ggml-vocab-gpt-2.gguf", vocab_only=True) as loaded:
        yield loaded.vocab


terminals = st.sampled_from(['"x"', '"xy"', "[a-z]", "[^x]", ".", '"\\n"', '"é"', "<[5]>", "!<[6]>"])
repetitions = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,3}", "{1,}", "{0}"])


def rule_bodies(names):
    """Alternatives that refer to the given rules.

    No recursion: together with ambiguity it makes llama.cpp keep exponentially many parses.
    """
    atoms = terminals | st.sampled_from([*names, "."])
    groups = st.lists(atoms | st.just('""'), min_size=1, max_size=3).map(lambda parts: "(" + " | ".join(parts) + ")")
    items = st.tuples(atoms | groups, repetitions).map("".join) | st.sampled_from(['""', "[]", "()"])
    sequences = st.lists(items, max_size=3).map(" ".join)
    return st.lists(sequences, min_size=1, max_size=3).map(" | ".join)


grammars = st.tuples(*(rule_bodies(names) for names in ("abc", "bc", "c", ""))).map(
    lambda bodies: "\n".join(f"{name} ::= {body}" for name, body in zip(("root", "a", "b", "c"), bodies, strict=True))
)


@settings(deadline=None, max_examples=300)
@given(grammars)
def test_llama_cpp_accepts_and_can_run_whatever_is_accepted_here(vocab, text):
    try:
        require_usable(parse(text, "root", lambda _: False, vocab.n_tokens))
    except GrammarError:
        return
    sampler = lib.llama_sampler_init_grammar(vocab._pointer, text.encode(), b"root")
    assert lib.causerie_error_code() == 0
    assert sampler != ffi.NULL
    candidates = ffi.new("llama_token_data[]", 64)
    for step in range(12):
        for i, candidate in enumerate(candidates):
            candidate.id, candidate.logit = (220 + i * 3) if i else 5, 0.0
        array = ffi.new("llama_token_data_array *", (candidates, 64, -1, False))
        lib.llama_sampler_apply(sampler, array)
        assert lib.causerie_error_code() == 0
        allowed = [c.id for c in candidates if c.logit == 0]
        if not allowed:
            break
        lib.llama_sampler_accept(sampler, allowed[step % len(allowed)])
        if lib.causerie_error_code():  # a token rule inside of a token: llama.cpp's own inconsistency
            assert "<[" in text
            break
    lib.llama_sampler_free(sampler)


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet='root :=|()[]{}*+?"<>!#\\\n\r-^.,0129xé', max_size=40))
def test_reading_any_text_ends_with_rules_or_a_grammar_error(text):
    try:
        check("root ::= " + text)
    except GrammarError:
        return
