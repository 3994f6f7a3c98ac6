"""Grammars on real logits: what they force, when lazy ones begin, and what happens to a token they do not accept."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
import pytest

from causerie.errors import GrammarError, UnsupportedError
from causerie.llama import Batch, Model
from causerie.llama.sampler import Sampler

JSON = r"""
root ::= "{" ws "\"name\":" ws string "," ws "\"age\":" ws [0-9]{1,3} ws "}"
string ::= "\"" [a-zA-Z ]{1,20} "\""
ws ::= " "?
"""


@pytest.fixture(scope="module")
def vocab(model):
    return model.vocab


def generate(context, sampler, prompt, n=60):
    vocab = context.model.vocab
    batch = Batch(512)
    context.memory.clear()
    batch.add_sequence(vocab.tokenize(prompt), 0, 0)
    tokens = []
    for _ in range(n):
        context.decode(batch)
        token = sampler.sample(context)
        if vocab.is_eog(token):
            break
        tokens.append(token)
        pos = context.memory.seq_pos_max(0) + 1
        batch.clear()
        batch.add(token, pos, output=True)
    return vocab.detokenize(tokens)


def ids(vocab, text):
    return [int(t) for t in vocab.tokenize(text)]


@pytest.mark.parametrize("last", [Sampler.greedy, lambda: Sampler.dist(4)], ids=["greedy", "dist"])
def test_the_output_is_what_the_grammar_describes(context, vocab, last):
    text = generate(context, Sampler.chain([Sampler.grammar(vocab, JSON), last()]), "A person as JSON:")
    assert set(json.loads(text)) == {"name", "age"}


def test_the_root_rule_can_have_any_name(context, vocab):
    sampler = Sampler.chain([Sampler.grammar(vocab, 'answer ::= "yes" | "no"', "answer"), Sampler.greedy()])
    assert generate(context, sampler, "Is the sky blue?") in {"yes", "no"}


def test_reset_lets_the_grammar_start_again(context, vocab):
    sampler = Sampler.chain([Sampler.grammar(vocab, 'root ::= "yes" | "no"'), Sampler.greedy()])
    first = generate(context, sampler, "Is the sky blue?")
    sampler.reset()
    assert generate(context, sampler, "Is the sky blue?") == first


def test_a_grammar_behind_top_k_is_obeyed(context, vocab):
    """llama.cpp's leaves the candidates marked as sorted, and dist then chooses what the grammar has excluded."""
    row = np.zeros(vocab.n_tokens, np.float32)
    allowed, best = ids(vocab, "yes")[0], ids(vocab, "x")[0]
    row[best], row[allowed] = 9, 8
    for make in (lambda: Sampler.grammar(vocab, 'root ::= "yes"'), lambda: Sampler.logit_bias(vocab, {best: -np.inf})):
        for seed in range(5):
            chain = Sampler.chain([Sampler.top_k(2), make(), Sampler.dist(seed)])
            assert chain.apply(row).selected == allowed


def test_only_the_end_is_allowed_after_a_complete_match(vocab):
    sampler = Sampler.grammar(vocab, 'root ::= "a"')
    sampler.accept(ids(vocab, "a")[0])
    result = sampler.apply(np.zeros(vocab.n_tokens, np.float32))
    left = result.ids[result.logits > -np.inf]
    assert len(left)
    assert all(vocab.is_eog(int(t)) for t in left)
    sampler.accept(vocab.eos)


@pytest.mark.parametrize("wrong", ["b", "eos"])
def test_a_token_that_is_not_accepted_changes_nothing(vocab, wrong):
    grammar = Sampler.grammar(vocab, 'root ::= "aaa"')
    seen = []
    sampler = Sampler.chain([Sampler.custom(lambda c: None, accept=seen.append), grammar, Sampler.greedy()])
    a = ids(vocab, "a")[0]
    token = vocab.eos if wrong == "eos" else ids(vocab, wrong)[0]
    sampler.accept(a)
    for _ in range(2):
        with pytest.raises(GrammarError, match="does not accept token") as caught:
            sampler.accept(token)
        assert caught.value.token == token
    sampler.accept(a)
    sampler.accept(a)
    assert seen == [a, a, a]


def test_nothing_left_to_choose_is_a_grammar_error_and_changes_nothing(context, vocab):
    batch = Batch(8)
    batch.add(1, 0, output=True)
    context.decode(batch)
    a, b = ids(vocab, "a")[0], ids(vocab, "b")[0]
    only_b = {t: -np.inf for t in range(vocab.n_tokens) if t != b}
    sampler = Sampler.chain(
        [Sampler.grammar(vocab, 'root ::= "ab"'), Sampler.logit_bias(vocab, only_b), Sampler.dist(1)]
    )
    with pytest.raises(GrammarError, match="none of the candidates"):
        sampler.sample(context)
    sampler.accept(a)
    assert sampler.sample(context) == b


def test_a_sampler_that_overrules_the_grammar_gets_a_grammar_error(context, vocab):
    batch = Batch(8)
    batch.add(1, 0, output=True)
    context.decode(batch)
    wrong = ids(vocab, "zebra")[0]
    sampler = Sampler.chain([Sampler.grammar(vocab, 'root ::= "yes"'), Sampler.custom(lambda c: c.ids == wrong),
                             Sampler.greedy()])  # fmt: skip
    with pytest.raises(GrammarError, match="does not accept"):
        sampler.sample(context)


def test_a_token_that_cannot_be_accepted_is_not_allowed(vocab):
    """A token rule behind a character rule: llama.cpp allows a token that crosses both, then does not accept it."""
    the = next(t for t in range(vocab.n_tokens) if vocab.piece(t) == b"the")
    t = ids(vocab, "t")[0]
    sampler = Sampler.chain([Sampler.grammar(vocab, f'root ::= "t" !<[{t}]>'), Sampler.greedy()])
    left = np.flatnonzero(sampler.apply(np.zeros(vocab.n_tokens, np.float32)).logits == 0)
    assert left.tolist() == [t]
    with pytest.raises(GrammarError, match="does not accept"):
        sampler.accept(the)
    sampler.accept(t)
    with pytest.raises(GrammarError, match="does not accept"):
        sampler.accept(t)
    sampler.accept(the)


def test_a_lazy_grammar_begins_with_its_trigger_token(vocab):
    start = vocab.tokenize("<|im_start|>", parse_special=True)
    assert len(start) == 1
    sampler = Sampler.grammar_lazy(vocab, 'root ::= <|im_start|> "yes"', trigger_tokens=[int(start[0])])
    zeros = np.zeros(vocab.n_tokens, np.float32)
    sampler.accept(ids(vocab, "anything")[0])
    assert (sampler.apply(zeros).logits == 0).all()
    sampler.accept(int(start[0]))
    left = {vocab.piece(int(t)) for t in np.flatnonzero(sampler.apply(zeros).logits == 0)}
    assert left == {b"y", b"ye", b"yes"}


def test_a_lazy_grammar_begins_with_its_pattern_and_is_given_the_first_group(context, vocab):
    grammar = r'root ::= "call(" [0-9]{1,4} ")"'
    sampler = Sampler.grammar_lazy(vocab, grammar, trigger_patterns=[r"[Nn]ow (call\()"])
    zeros = np.zeros(vocab.n_tokens, np.float32)
    for token in ids(vocab, "It is free here. Now call("):
        assert (sampler.apply(zeros).logits == 0).all()
        sampler.accept(token)
    left = [vocab.piece(int(t)).decode() for t in np.flatnonzero(sampler.apply(zeros).logits == 0)]
    assert left
    assert all(re.fullmatch(r"[0-9]{1,4}\)?", piece) for piece in left)
    sampler.reset()
    assert (sampler.apply(zeros).logits == 0).all()


def test_a_trigger_whose_text_the_grammar_does_not_match_is_a_grammar_error(vocab):
    sampler = Sampler.grammar_lazy(vocab, 'root ::= "yes"', trigger_patterns=["no"])
    *before, last = ids(vocab, "say no")
    for token in before:
        sampler.accept(token)
    with pytest.raises(GrammarError):
        sampler.accept(last)
    with pytest.raises(GrammarError, match="reset"):
        sampler.accept(1)
    sampler.reset()
    sampler.accept(1)


def test_a_long_text_before_the_trigger_is_harmless(vocab):
    sampler = Sampler.grammar_lazy(vocab, 'root ::= "<go>"', trigger_patterns=[r"x{0,50}(<go>)"])
    long = max(range(vocab.n_tokens), key=lambda t: len(vocab.piece(t)))
    for _ in range(400):
        sampler.accept(long)
    for token in ids(vocab, "<go>"):
        sampler.accept(token)
    result = sampler.apply(np.zeros(vocab.n_tokens, np.float32))
    assert all(vocab.is_eog(int(t)) for t in np.flatnonzero(result.logits == 0))


@pytest.mark.parametrize(
    "text", ['root ::= "a', "root := x", "root ::= missing", 'root ::= root "a"', "", "root ::= <|nothing|>"]
)
def test_a_bad_grammar_is_refused_silently(vocab, text, capfd, caplog):
    with caplog.at_level(logging.ERROR), pytest.raises(GrammarError) as caught:
        Sampler.grammar(vocab, text)
    assert isinstance(caught.value, ValueError)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("pattern", ["(", "[", "a{3,1}", "\\", "*", "(?<=a)b"])
def test_an_invalid_trigger_pattern_is_refused(vocab, pattern):
    with pytest.raises(GrammarError):
        Sampler.grammar_lazy(vocab, 'root ::= "a"', trigger_patterns=[pattern])


def test_misuse_of_grammars(vocab):
    ok = 'root ::= "a"'
    for text, root in (("root\0 ::= x", "root"), (ok, "ro\0ot"), ('root ::= "\ud800"', "root"), (ok, "other")):
        with pytest.raises(GrammarError):
            Sampler.grammar(vocab, text, root)
    with pytest.raises(TypeError):
        Sampler.grammar(vocab, b'root ::= "a"')
    with pytest.raises(TypeError, match=r"model\.vocab"):
        Sampler.grammar(None, ok)
    with pytest.raises(ValueError, match="trigger"):
        Sampler.grammar_lazy(vocab, ok)
    with pytest.raises(ValueError, match="token id"):
        Sampler.grammar_lazy(vocab, ok, trigger_tokens=[vocab.n_tokens])
    with pytest.raises(TypeError):
        Sampler.grammar_lazy(vocab, ok, trigger_patterns="abc")
    with pytest.raises(TypeError):
        Sampler.grammar_lazy(vocab, ok, trigger_patterns=[b"abc"])


def test_a_model_without_a_vocabulary_cannot_have_a_grammar(tmp_path):
    pytest.importorskip("gguf")
    path = tmp_path / "none.gguf"
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    for name, value in (("context_length", 8), ("embedding_length", 8), ("block_count", 1), ("feed_forward_length", 8),
                        ("head_count", 1)):  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with Model(path, vocab_only=True) as loaded:
        assert loaded.vocab.type == "none"
        for make in (lambda v: Sampler.grammar(v, 'root ::= "a"'), Sampler.infill, Sampler.dry):
            with pytest.raises(UnsupportedError):
                make(loaded.vocab)
