"""The grammar samplers: llama.cpp's GBNF and triggers, refused with a reason where they could not be worked with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.errors import GrammarError
from causerie.llama._errors import check
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._sampler_options import count
from causerie.llama._sampler_trigger import check_pattern
from causerie.llama._sampler_vocab import VocabSamplerFactories, c_strings, require_vocab, strings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causerie.llama._grammar_book import CompiledGrammar
    from causerie.llama.sampler import Sampler
    from causerie.llama.vocab import Vocab

__all__ = ["GrammarFactories"]


class GrammarFactories(VocabSamplerFactories):
    """Class methods that make grammar samplers.

    They take what llama_sampler_init_grammar takes, and allow what it allows, but know what a grammar allows at a place
    once they have been there: several samplers of one grammar, and copies, share that. They differ from llama.cpp's in
    that text is always valid UTF-8, and that a token is never allowed that could not be accepted then.
    """

    @classmethod
    def grammar(cls, vocab: Vocab, gbnf: str, root: str = "root", *, shown: Iterable[int] | None = None) -> Sampler:
        """Excludes tokens that a GBNF grammar does not allow next (as llama_sampler_init_grammar).

        The format is described in llama.cpp's grammars/README.md.

        Args:
            vocab: the model's vocabulary.
            gbnf: the grammar.
            root: the rule to start from.
            shown: the control tokens whose text counts, in what the grammar asks for and in what a rule such as .* lets
                through; others are allowed only where the grammar names them (`<|token|>`). None: all count. A text for
                people shows none.

        Raises:
            GrammarError: it is malformed (`.line`, `.column`), or cannot be worked with (left recursion, rules that are
                undefined or begin in too many ways, too many repetitions; `.rule`).
            ValueError: an id in `shown` is out of range.
            UnsupportedError: the model has no vocabulary.
        """
        return cls._grammar("grammar", vocab, _compiled(vocab, gbnf, root, shown), lazy=False)

    @classmethod
    def grammar_lazy(
        cls,
        vocab: Vocab,
        gbnf: str,
        root: str = "root",
        *,
        trigger_patterns: Sequence[str] = (),
        trigger_tokens: Sequence[int] = (),
    ) -> Sampler:
        """A grammar that begins once something has been generated (as llama_sampler_init_grammar_lazy_patterns).

        Args:
            vocab: the model's vocabulary.
            gbnf: the grammar.
            root: the rule to start from.
            trigger_patterns: regular expressions (ECMAScript, on UTF-8 bytes) that are searched for in all text
                accepted so far, at every token. The grammar is given the text from the first group that matched on, or
                from the start of the match. Repetitions must have a bound ({0,100}, not * or +).
            trigger_tokens: token ids; the grammar is given the text from that token on.

        Raises:
            GrammarError: as for `grammar`; a pattern is invalid, too large, or repeats without a bound.
            ValueError: there is no trigger, or a token id is out of range.
        """
        compiled = _compiled(vocab, gbnf, root, None)
        patterns = [check_pattern(text) for text in strings("trigger_patterns", trigger_patterns)]
        tokens = [count("token id", t, 0, vocab.n_tokens - 1) for t in trigger_tokens]
        if not patterns and not tokens:
            raise ValueError("a lazy grammar needs trigger_patterns or trigger_tokens")
        return cls._grammar("grammar_lazy", vocab, compiled, patterns, tokens, lazy=True)

    @classmethod
    def _grammar(
        cls,
        kind: str,
        vocab: Vocab,
        compiled: CompiledGrammar,
        patterns: Sequence[bytes] = (),
        tokens: Sequence[int] = (),
        *,
        lazy: bool,
    ) -> Sampler:
        texts, _keep = c_strings(patterns)
        with vocab._resource, compiled._resource as pointer:
            sampler = lib.causerie_sampler_grammar(
                pointer, lazy, texts, len(patterns), ffi.new("llama_token[]", tokens), len(tokens)
            )
            check("llama.cpp refused the grammar or a trigger pattern", GrammarError)
            drain_log()
            return cls._make(kind, sampler, vocab=vocab, reads_vocab=True)


def _compiled(vocab: Vocab, gbnf: str, root: str, shown: Iterable[int] | None) -> CompiledGrammar:
    """The grammar, once it is sure that it can be worked with."""
    require_vocab(vocab)
    vocab._usable()
    for name, text in (("gbnf", gbnf), ("root", root)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
        if "\0" in text:
            raise GrammarError(f"{name} contains a NUL character")
    ids = None if shown is None else frozenset(count("token id", t, 0, vocab.n_tokens - 1) for t in shown)
    return vocab._grammars.compiled(vocab, gbnf, root, ids)
