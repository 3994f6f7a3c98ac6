"""Text to tokens and back (the llama_vocab part of llama.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import NativeError, UnsupportedError
from causerie.llama._deep_stack import longest_match, run
from causerie.llama._errors import check
from causerie.llama._grammar_book import GrammarBook
from causerie.llama._handle import Uncopyable
from causerie.llama._lib import ffi, lib
from causerie.llama._params import uint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causerie.llama.model import Model

__all__ = ["Vocab"]

_TYPES = {
    lib.LLAMA_VOCAB_TYPE_NONE: "none",
    lib.LLAMA_VOCAB_TYPE_SPM: "spm",
    lib.LLAMA_VOCAB_TYPE_BPE: "bpe",
    lib.LLAMA_VOCAB_TYPE_WPM: "wpm",
    lib.LLAMA_VOCAB_TYPE_UGM: "ugm",
    lib.LLAMA_VOCAB_TYPE_RWKV: "rwkv",
    lib.LLAMA_VOCAB_TYPE_PLAMO2: "plamo2",
    lib.LLAMA_VOCAB_TYPE_TEST: "test",
}
_INT32_MAX = 2**31 - 1
_INT32_MIN = -(2**31)


class Vocab(Uncopyable):
    """The vocabulary of a model: `model.vocab`. Thread-safe; lives as long as its model.

    Attributes:
        n_tokens: number of token ids (0 <= id < n_tokens).
        type: "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test" or "none".
        bos, eos, eot, sep, nl, pad, mask: special token ids, None where the model has none.
        fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep: fill-in-the-middle ids, None where the model has none.
        add_bos, add_eos, add_sep: what `tokenize(add_special=True)` puts around a text.
        suppress_tokens: ids that the model's file asks never to generate.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._resource = model._resource
        # What generating asks about every token, so that it is asked of llama.cpp once.
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self._eog: dict[int, bool] = {}
        self._grammars = GrammarBook()
        with self._resource as pointer:
            p = self._pointer = lib.llama_model_get_vocab(pointer)
            self.n_tokens: int = lib.llama_vocab_n_tokens(p)
            self.type: str = _TYPES.get(lib.llama_vocab_type(p), "unknown")
            self.add_bos: bool = lib.llama_vocab_get_add_bos(p)
            self.add_eos: bool = lib.llama_vocab_get_add_eos(p)
            self.add_sep: bool = lib.llama_vocab_get_add_sep(p)
            self.bos = self._special(lib.llama_vocab_bos(p))
            self.eos = self._special(lib.llama_vocab_eos(p))
            self.eot = self._special(lib.llama_vocab_eot(p))
            self.sep = self._special(lib.llama_vocab_sep(p))
            self.nl = self._special(lib.llama_vocab_nl(p))
            self.pad = self._special(lib.llama_vocab_pad(p))
            self.mask = self._special(lib.llama_vocab_mask(p))
            self.fim_pre = self._special(lib.llama_vocab_fim_pre(p))
            self.fim_suf = self._special(lib.llama_vocab_fim_suf(p))
            self.fim_mid = self._special(lib.llama_vocab_fim_mid(p))
            self.fim_pad = self._special(lib.llama_vocab_fim_pad(p))
            self.fim_rep = self._special(lib.llama_vocab_fim_rep(p))
            self.fim_sep = self._special(lib.llama_vocab_fim_sep(p))
            count = ffi.new("int32_t *")
            ids = lib.llama_vocab_get_suppress_tokens(p, count)
            self.suppress_tokens: tuple[int, ...] = tuple(ids[i] for i in range(count[0])) if ids != ffi.NULL else ()
            check("reading the vocabulary")

    @staticmethod
    def _special(token: int) -> int | None:
        return None if token == lib.LLAMA_TOKEN_NULL else token

    def _usable(self) -> None:
        if self.type == "none":
            raise UnsupportedError("this model's file has no vocabulary, so text cannot be tokenised")

    def _check_id(self, token: int) -> int:
        if not isinstance(token, (int, np.integer)) or isinstance(token, bool):
            raise TypeError(f"token id must be an int, not {type(token).__name__}")
        if not 0 <= token < self.n_tokens:
            raise IndexError(f"token id {token} is not in 0..{self.n_tokens - 1}")
        return int(token)

    def _ids(self, ids: Sequence[int] | NDArray[Any]) -> NDArray[np.int32]:
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError(f"token ids must be a flat sequence of ints, not {array.dtype} of shape {array.shape}")
        if array.size and (array.min() < 0 or array.max() >= self.n_tokens):
            raise IndexError(f"token ids must be in 0..{self.n_tokens - 1}, found {array.min()}..{array.max()}")
        return np.ascontiguousarray(array, dtype=np.int32)

    def tokenize(self, text: str | bytes, add_special: bool = True, parse_special: bool = False) -> NDArray[np.int32]:
        """Token ids of a text (llama_tokenize), int32 of shape (n,).

        Args:
            text: str, or bytes that llama.cpp reads as UTF-8.
            add_special: put BOS/EOS around it where the model is configured so.
            parse_special: let the text of control tokens ("<|im_end|>") become those tokens. Never for text of users.

        Raises:
            ValueError: the text is too long (more than 2**31 - 1 bytes, or a line of 8 MiB), or cannot be encoded: a
                str with lone surrogates, or bytes beyond Unicode. Other bytes that are not UTF-8 are tokenised, by
                some vocabularies as U+FFFD.
            UnsupportedError: the model has no vocabulary.
            ClosedError: the model is closed.
        """
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text must be str or bytes, not {type(text).__name__}")
        self._usable()
        raw = text.encode() if isinstance(text, str) else text
        if len(raw) > _INT32_MAX - 16:
            raise ValueError(f"a text of {len(raw)} bytes is too long for llama.cpp (at most {_INT32_MAX - 16})")
        depth = longest_match(raw) if self.type == "bpe" else 0
        return run(depth, lambda: self._tokenize(raw, add_special, parse_special))

    def _tokenize(self, raw: bytes, add_special: bool, parse_special: bool) -> NDArray[np.int32]:
        out = np.empty(len(raw) + 16, np.int32)
        with self._resource:
            for _ in range(2):
                n = lib.llama_tokenize(
                    self._pointer,
                    raw,
                    len(raw),
                    ffi.from_buffer("llama_token[]", out),
                    out.size,
                    add_special,
                    parse_special,
                )
                try:
                    check("tokenising")
                except NativeError as error:
                    if error.aborted:
                        raise
                    raise ValueError(f"llama.cpp cannot tokenise this text: {error}") from None
                if n >= 0:
                    return np.array(out[: int(n)])
                if n == _INT32_MIN:
                    break
                out = np.empty(-n, np.int32)
        raise ValueError(f"a text of {len(raw)} bytes gives more tokens than llama.cpp can count")

    def detokenize_bytes(
        self, ids: Sequence[int] | NDArray[Any], special: bool = False, remove_special: bool = False
    ) -> bytes:
        """The bytes of a text (llama_detokenize); they need not be valid UTF-8.

        Args:
            ids: token ids, flat.
            special: render control tokens as their text.
            remove_special: drop BOS and EOS where the model adds them.

        Raises:
            IndexError: an id is out of range.
        """
        self._usable()
        array = self._ids(ids)
        size = max(64, 8 * array.size)
        with self._resource:
            for _ in range(2):
                out = ffi.new("char[]", size)
                n = lib.llama_detokenize(
                    self._pointer,
                    ffi.from_buffer("llama_token[]", array),
                    array.size,
                    out,
                    size,
                    remove_special,
                    special,
                )
                check("detokenising")
                if n >= 0:
                    return bytes(ffi.buffer(out, n))
                size = -n
        raise ValueError(f"{array.size} tokens could not be turned into text")

    def detokenize(self, ids: Sequence[int] | NDArray[Any], special: bool = False, remove_special: bool = False) -> str:
        """The text of token ids, as `detokenize_bytes`; bytes that are not UTF-8 become U+FFFD."""
        return self.detokenize_bytes(ids, special, remove_special).decode("utf-8", "replace")

    def piece(self, token: int, special: bool = True, lstrip: int = 0) -> bytes:
        """The bytes one token stands for (llama_token_to_piece): perhaps part of a character.

        Args:
            token: the id.
            special: give the text of control tokens too, not b"".
            lstrip: how many leading spaces to drop at most.

        Raises:
            IndexError: the id is out of range.
        """
        simple = token.__class__ is int and not lstrip and self._resource.open
        if simple and (known := self._pieces.get((token, special))) is not None:
            return known
        token = self._check_id(token)
        lstrip = uint("lstrip", lstrip, 0, _INT32_MAX)
        self._usable()
        size = 64
        with self._resource:
            for _ in range(2):
                out = ffi.new("char[]", size)
                n = lib.llama_token_to_piece(self._pointer, token, out, size, lstrip, special)
                check("rendering a token")
                if n >= 0:
                    piece = bytes(ffi.buffer(out, n))
                    if not lstrip:
                        self._pieces[token, special] = piece
                    return piece
                size = -n
        raise ValueError(f"token {token} could not be rendered")

    def text(self, token: int) -> str:
        """The token as the vocabulary file spells it (llama_vocab_get_text), for example "Ġsea"."""
        token = self._check_id(token)
        self._usable()
        with self._resource:
            pointer = lib.llama_vocab_get_text(self._pointer, token)
            check("reading a token")
            return ffi.string(pointer).decode("utf-8", "replace")

    def score(self, token: int) -> float:
        """The token's score in the vocabulary file (llama_vocab_get_score)."""
        token = self._check_id(token)
        self._usable()
        with self._resource:
            return float(lib.llama_vocab_get_score(self._pointer, token))

    def attributes(self, token: int) -> int:
        """The token's attributes (llama_vocab_get_attr): bits lib.LLAMA_TOKEN_ATTR_*."""
        token = self._check_id(token)
        self._usable()
        with self._resource:
            return int(lib.llama_vocab_get_attr(self._pointer, token))

    def is_eog(self, token: int) -> bool:
        """Whether the token ends generation: EOS, EOT and the like (llama_vocab_is_eog)."""
        simple = token.__class__ is int and self._resource.open
        if simple and (known := self._eog.get(token)) is not None:
            return known
        token = self._check_id(token)
        with self._resource:
            answer = self._eog[token] = bool(lib.llama_vocab_is_eog(self._pointer, token))
            return answer

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token, not text (llama_vocab_is_control)."""
        token = self._check_id(token)
        self._usable()
        with self._resource:
            return bool(lib.llama_vocab_is_control(self._pointer, token))

    def __len__(self) -> int:
        return self.n_tokens
