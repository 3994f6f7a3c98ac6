"""Grammars that begin with a trigger: found wherever tokens are cut, outside of sections, and never overshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from causerie.errors import ClosedError, GrammarError
from causerie.llama import Model, Sampler, Section

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from causerie.llama import Vocab

CALL = 'root ::= "<go>\\n" ("yes" | "no") "."'
THINKING = Section("<think>", ("</think>", "<end>"))


@pytest.fixture(scope="module")
def vocab(smollm2_path: Path) -> Iterator[Vocab]:
    with Model(smollm2_path, vocab_only=True) as model:
        yield model.vocab


def ids(vocab: Vocab, text: str) -> list[int]:
    return [int(i) for i in vocab.tokenize(text, add_special=False, parse_special=False)]


def made(vocab: Vocab, *, outside: Section | None = None, words: tuple[str, ...] = ("<go>\n",)) -> Sampler:
    return Sampler.grammar_after(vocab, CALL, words=words, outside=outside)


def accepts(sampler: Sampler, tokens: list[int]) -> bool:
    try:
        for token in tokens:
            sampler.accept(token)
    except GrammarError:
        return False
    return True


def token_that_says(vocab: Vocab, text: str) -> int:
    (token,) = (i for i in range(vocab.n_tokens) if vocab.piece(i) == text.encode())
    return token


@pytest.mark.parametrize("letters", [False, True])
def test_anything_goes_before_the_trigger_and_the_grammar_behind_it(vocab: Vocab, letters: bool) -> None:
    def tokens(text: str) -> list[int]:
        return [i for c in text for i in ids(vocab, c)] if letters else ids(vocab, text)

    before = "Let me < see <go <go> <go>"
    for text, right in (("yes.", True), ("no.", True), ("maybe", False), ("yes!", False)):
        sampler = made(vocab)
        assert accepts(sampler, tokens(before))
        assert accepts(sampler, tokens("<go>\n" + text)) == right
        sampler.close()


def test_a_trigger_inside_of_a_token_counts_from_there_on(vocab: Vocab) -> None:
    glued = token_that_says(vocab, "><")
    for text, right in (("yes.", True), ("maybe", False)):
        sampler = made(vocab)
        assert (
            accepts(sampler, [glued, *ids(vocab, "go"), token_that_says(vocab, ">"), *ids(vocab, "\n" + text)]) == right
        )


def test_tokens_that_end_beyond_the_trigger_are_excluded_before_they_are_chosen(vocab: Vocab) -> None:
    """What follows the trigger in one token must be the grammar's."""
    two, one = token_that_says(vocab, "\n\n"), token_that_says(vocab, "\n")
    sampler = made(vocab)
    assert accepts(sampler, ids(vocab, "<go>"))
    left = sampler.apply(np.zeros(vocab.n_tokens, np.float32))
    excluded = {int(i) for i in left.ids[left.logits == -np.inf]}
    assert two in excluded
    assert one not in excluded
    assert token_that_says(vocab, "x") not in excluded
    assert all(vocab.piece(i).startswith(b"\n") for i in excluded)
    with pytest.raises(GrammarError, match="does not accept"):
        sampler.accept(two)
    assert accepts(sampler, [one, *ids(vocab, "yes.")])  # nothing had changed


def test_the_end_of_a_turn_is_allowed_before_the_trigger_and_behind_the_grammar(vocab: Vocab) -> None:
    assert vocab.eos is not None
    sampler = made(vocab)
    assert accepts(sampler, [*ids(vocab, "Bye. <go>"), vocab.eos])
    sampler.reset()
    assert accepts(sampler, ids(vocab, "<go>\n"))
    assert not accepts(sampler, [vocab.eos])
    assert accepts(sampler, [*ids(vocab, "no."), vocab.eos])


class TestSections:
    def test_do_not_trigger(self, vocab: Vocab) -> None:
        quiet = "<think>I could <go>\nmaybe</think> or <go>\n"
        for text, right in (("yes.", True), ("maybe", False)):
            assert accepts(made(vocab, outside=THINKING), ids(vocab, quiet + text)) == right
        assert not accepts(made(vocab), ids(vocab, quiet + "yes."))

    def test_may_be_begun_by_the_prompt(self, vocab: Vocab) -> None:
        begun = THINKING._replace(begun=True)
        for text, right in (("yes.", True), ("maybe", False)):
            assert accepts(made(vocab, outside=begun), ids(vocab, "<go>\nmaybe</think><go>\n" + text)) == right
        assert accepts(made(vocab, outside=begun), ids(vocab, "<go>\nmaybe"))

    def test_may_end_with_a_trigger(self, vocab: Vocab) -> None:
        section = Section("<think>", ("</think>", "<go>\n"), begun=True)
        assert accepts(made(vocab, outside=section), ids(vocab, "hm <go>\nyes."))
        assert not accepts(made(vocab, outside=section), ids(vocab, "hm <go>\nmaybe"))

    def test_may_come_again(self, vocab: Vocab) -> None:
        text = "<think><go>\nx</think>so<think><go>\nx</think><go>\n"
        assert accepts(made(vocab, outside=THINKING), ids(vocab, text + "yes."))
        assert not accepts(made(vocab, outside=THINKING), ids(vocab, text + "x"))


class TestPatterns:
    def test_begin_with_their_first_group(self, vocab: Vocab) -> None:
        sampler = Sampler.grammar_after(vocab, 'root ::= " to=" [a-z]+ "!"', patterns=[r"(?:^|<s>)(\s{1,3}to=)"])
        assert accepts(sampler.clone(), ids(vocab, "ab to=X <s>"))
        for start in ("", "ab to=X <s>"):
            assert accepts(sampler.clone(), ids(vocab, start + " to=f!"))
            assert not accepts(sampler.clone(), ids(vocab, start + " to=f."))

    def test_of_which_a_text_that_is_long_is_only_read_at_its_end(self, vocab: Vocab) -> None:
        sampler = Sampler.grammar_after(vocab, 'root ::= "go!"', patterns=["^x", "(go)"])
        assert accepts(sampler, ids(vocab, "a" * 600 + " x"))
        assert not accepts(sampler, ids(vocab, " go."))


def test_reset_and_clones_have_their_own_state(vocab: Vocab) -> None:
    sampler = made(vocab, outside=THINKING)
    assert accepts(sampler, ids(vocab, "<think> <go>\n</think> <go>"))
    copy = sampler.clone()
    assert accepts(sampler, ids(vocab, "\nyes"))
    assert accepts(copy, ids(vocab, " is no trigger"))
    assert not accepts(sampler, ids(vocab, " is no trigger"))
    sampler.reset()
    assert accepts(sampler, ids(vocab, "maybe <go>\nno."))


def test_what_cannot_be(vocab: Vocab) -> None:
    for words, error in (
        ((), ValueError),
        (("",), GrammarError),
        (("a\0",), GrammarError),
        (("\ud800",), GrammarError),
    ):
        with pytest.raises(error):
            made(vocab, words=words)
    with pytest.raises(TypeError):
        Sampler.grammar_after(vocab, CALL, words="<go>")
    with pytest.raises(TypeError):
        Sampler.grammar_after(vocab, CALL, words=[b"<go>"])  # type: ignore[list-item]
    with pytest.raises(GrammarError, match="without a bound"):
        Sampler.grammar_after(vocab, CALL, patterns=[r"\s+"])
    with pytest.raises(GrammarError):
        Sampler.grammar_after(vocab, CALL, patterns=["("])
    with pytest.raises(GrammarError):
        Sampler.grammar_after(vocab, "root ::= (", words=["x"])
    with pytest.raises(GrammarError):
        made(vocab, outside=Section("<think>", ("",)))
    closed = made(vocab)
    closed.close()
    with pytest.raises(ClosedError):
        closed.accept(1)
