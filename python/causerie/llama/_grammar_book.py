"""The grammars that a model has been used with lately, compiled, with all that their samplers have found out.

Each takes some 32 MB at most (native/src/grammar_sampler.cpp), and far less where it does not count or nest far.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from causerie.errors import GrammarError
from causerie.llama._errors import check
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib

if TYPE_CHECKING:
    from causerie.llama.vocab import Vocab

__all__ = ["CompiledGrammar", "GrammarBook"]

_MOST = 16


class _Trie(Handle):
    """The texts of a vocabulary's tokens (causerie_vocab_trie)."""

    def __init__(self, vocab: Vocab) -> None:
        with vocab._resource:
            pointer = lib.causerie_vocab_trie_new(vocab._pointer)
            check("preparing the vocabulary for grammars")
        self._own(Resource("vocabulary for grammars", pointer, lib.causerie_vocab_trie_free), vocab._model)


class CompiledGrammar(Handle):
    """A grammar for one vocabulary (causerie_grammar); closed with the model."""

    def __init__(self, vocab: Vocab, trie: _Trie, gbnf: bytes, root: bytes, shown: frozenset[int] | None) -> None:
        ids = ffi.new("llama_token[]", sorted(shown or ()))
        with vocab._resource, trie._resource as prepared:
            pointer = lib.causerie_grammar_new(prepared, vocab._pointer, gbnf, root, shown is None, ids, len(ids))
            check("llama.cpp refused the grammar", GrammarError)
            drain_log()
        self._own(Resource("grammar", pointer, lib.causerie_grammar_free), vocab._model)


def _is_token(vocab: Vocab, text: str) -> bool:
    return vocab.tokenize(text, add_special=False, parse_special=True).size == 1


class GrammarBook:
    """The grammars used last with one vocabulary. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trie: _Trie | None = None
        self._kept: OrderedDict[tuple[str, str, frozenset[int] | None], CompiledGrammar] = OrderedDict()

    def compiled(self, vocab: Vocab, gbnf: str, root: str, shown: frozenset[int] | None) -> CompiledGrammar:
        """A grammar, compiled now or before.

        Args:
            vocab: the model's.
            gbnf: the grammar, without NUL characters.
            root: the rule to start from.
            shown: control tokens whose text counts; None: all of them.

        Raises:
            GrammarError: it is malformed, or cannot be worked with.
        """
        key = (gbnf, root, shown)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        # Half a megabyte and several milliseconds, which only those who use grammars have to pay.
        from causerie.llama._sampler_gbnf import parse
        from causerie.llama._sampler_gbnf_graph import require_usable

        try:
            raw, start = gbnf.encode(), root.encode()
        except UnicodeEncodeError as error:
            raise GrammarError(f"the grammar is not valid Unicode: {error}") from None
        require_usable(parse(gbnf, root, lambda text: _is_token(vocab, text), vocab.n_tokens))
        with self._lock:
            if self._trie is None:
                self._trie = _Trie(vocab)
            made = CompiledGrammar(vocab, self._trie, raw, start, shown)
            self._kept[key] = made
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return made
