"""Grammars that begin once a text came, found in time linear in what is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from causerie.errors import GrammarError
from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib
from causerie.llama._sampler_grammar import GrammarFactories
from causerie.llama._sampler_trigger import check_pattern
from causerie.llama._sampler_vocab import c_strings, strings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causerie.llama.sampler import Sampler
    from causerie.llama.vocab import Vocab

__all__ = ["LazyFactories", "Section"]


class Section(NamedTuple):
    """Parts of a text in which nothing triggers, such as thinking.

    Attributes:
        opening: what they begin with; "": only the beginning of the text can be one.
        closings: what they may end with, which may trigger itself.
        begun: whether the text begins inside of one.
    """

    opening: str
    closings: tuple[str, ...]
    begun: bool = False


class LazyFactories(GrammarFactories):
    """Class methods that make lazy grammars."""

    @classmethod
    def grammar_after(
        cls,
        vocab: Vocab,
        gbnf: str,
        root: str = "root",
        *,
        words: Sequence[str] = (),
        patterns: Sequence[str] = (),
        outside: Section | None = None,
        shown: Iterable[int] | None = None,
    ) -> Sampler:
        """A grammar that begins with the first trigger in what is generated; the trigger is part of what it matches.

        Other than with `grammar_lazy` only the last 256 bytes are searched, triggers may be kept from counting in parts
        of the text, and a token that ends beyond its trigger with what the grammar does not allow is excluded.

        Args:
            vocab: the model's vocabulary.
            gbnf: the grammar.
            root: the rule to start from.
            words: texts that trigger.
            patterns: regular expressions that trigger, as for `grammar_lazy`; ^ is the beginning of the text, and what
                is matched has at most 256 bytes.
            outside: the parts in which nothing triggers.
            shown: as for `grammar`; before the trigger all tokens may come.

        Raises:
            GrammarError: as for `grammar`; a trigger or tag is empty or holds a NUL character; a pattern is invalid,
                too large, or repeats without a bound.
            ValueError: there is no trigger.
        """
        given = [_raw(word) for word in strings("words", words)]
        checked = [check_pattern(pattern) for pattern in strings("patterns", patterns)]
        if not given and not checked:
            raise ValueError("a lazy grammar needs words or patterns that trigger it")
        quiet = outside or Section("", ())
        opening = _raw(quiet.opening) if quiet.opening else b""
        closings, keep_closings = c_strings([_raw(text) for text in quiet.closings])
        word_array, keep_words = c_strings(given)
        pattern_array, keep_patterns = c_strings(checked)
        grammar = cls.grammar(vocab, gbnf, root, shown=shown)
        with grammar._use() as pointer, vocab._resource:
            grammar._give_up()  # native code takes it over, also where it fails
            lazy = lib.causerie_sampler_lazy(
                pointer, vocab._pointer, word_array, len(given), pattern_array, len(checked), opening, closings,
                len(quiet.closings), quiet.begun,
            )  # fmt: skip
        del keep_closings, keep_words, keep_patterns
        check("making a lazy grammar", GrammarError)
        if lazy == ffi.NULL:
            raise GrammarError("llama.cpp refused a trigger")
        return cls._make("grammar_lazy", lazy, vocab=vocab, reads_vocab=True)


def _raw(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a trigger must be a str, not {type(text).__name__}")
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"a trigger is not valid Unicode: {error}") from None
    if not raw or b"\0" in raw:
        raise GrammarError(f"a trigger must have bytes, and no NUL character: {text!r}")
    return raw
