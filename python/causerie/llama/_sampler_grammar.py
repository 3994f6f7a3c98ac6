"""The grammar samplers of llama.h: what would crash llama.cpp, or make it print, is refused before it gets there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.errors import GrammarError
from causerie.llama._errors import call_log, check
from causerie.llama._lib import drain_log, ffi, lib
from causerie.llama._sampler_gbnf import parse
from causerie.llama._sampler_gbnf_graph import require_usable
from causerie.llama._sampler_options import count
from causerie.llama._sampler_trigger import check_pattern
from causerie.llama._sampler_vocab import VocabSamplerFactories, c_strings, require_vocab, strings, unsorted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causerie.llama.sampler import Sampler
    from causerie.llama.vocab import Vocab

__all__ = ["GrammarFactories"]


class GrammarFactories(VocabSamplerFactories):
    """Class methods that make grammar samplers."""

    @classmethod
    def grammar(cls, vocab: Vocab, gbnf: str, root: str = "root") -> Sampler:
        """Excludes tokens that a GBNF grammar does not allow next (llama_sampler_init_grammar).

        The format is described in llama.cpp's grammars/README.md.

        Args:
            vocab: the model's vocabulary.
            gbnf: the grammar.
            root: the rule to start from.

        Raises:
            GrammarError: it is malformed (`.line`, `.column`), or llama.cpp cannot work with it (left recursion, rules
                that are undefined or begin in too many ways, too many repetitions; `.rule`).
            UnsupportedError: the model has no vocabulary.
        """
        raw, start = _check_grammar(vocab, gbnf, root)
        return cls._grammar(
            "grammar", vocab, lambda: lib.llama_sampler_init_grammar(vocab._pointer, raw, start), "the grammar"
        )

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
        """A grammar that begins once something has been generated (llama_sampler_init_grammar_lazy_patterns).

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
        raw, start = _check_grammar(vocab, gbnf, root)
        texts, _keep = c_strings([check_pattern(text) for text in strings("trigger_patterns", trigger_patterns)])
        tokens = ffi.new("llama_token[]", [count("token id", t, 0, vocab.n_tokens - 1) for t in trigger_tokens])
        if not len(texts) and not len(tokens):
            raise ValueError("a lazy grammar needs trigger_patterns or trigger_tokens")
        return cls._grammar(
            "grammar_lazy", vocab,
            lambda: lib.llama_sampler_init_grammar_lazy_patterns(
                vocab._pointer, raw, start, texts, len(texts), tokens, len(tokens)
            ),
            "the grammar or a trigger pattern",
        )  # fmt: skip

    @classmethod
    def _grammar(cls, kind: str, vocab: Vocab, make: Callable[[], Any], what: str) -> Sampler:
        with vocab._resource:
            pointer = make()
            reason = call_log()
            check(f"llama.cpp refused {what}", GrammarError)
            drain_log()
            if pointer == ffi.NULL:
                raise GrammarError(f"llama.cpp refused {what}: {reason or 'no reason given'}")
            return cls._make(kind, unsorted(pointer, kind), vocab=vocab, reads_vocab=True)


def _check_grammar(vocab: Vocab, gbnf: str, root: str) -> tuple[bytes, bytes]:
    """Both as llama.cpp takes them, once it is sure that it can."""
    require_vocab(vocab)
    vocab._usable()
    for name, text in (("gbnf", gbnf), ("root", root)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
        if "\0" in text:
            raise GrammarError(f"{name} contains a NUL character")
    try:
        raw, start = gbnf.encode(), root.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"the grammar is not valid Unicode: {error}") from None
    rules = parse(
        gbnf, root, lambda text: vocab.tokenize(text, add_special=False, parse_special=True).size == 1, vocab.n_tokens
    )
    require_usable(rules)
    return raw, start
