"""The samplers of llama.h that are made for one vocabulary, with their options checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from causerie.errors import UnsupportedError
from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib
from causerie.llama._sampler_factories import SamplerFactories
from causerie.llama._sampler_options import LARGE, MAX_HISTORY, count, number, seed_value
from causerie.llama.vocab import Vocab

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causerie.llama.sampler import Sampler

__all__ = ["VocabSamplerFactories", "c_strings", "require_vocab", "strings", "unsorted"]

_MAX_BREAKER_BYTES = 40
_MAX_BIAS = 1e9


def require_vocab(vocab: Vocab) -> None:
    """TypeError unless it is a vocabulary."""
    if not isinstance(vocab, Vocab):
        raise TypeError(f"vocab must be a model's vocabulary (model.vocab), not {type(vocab).__name__}")


def _breaker(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a sequence breaker must be a str, not {type(text).__name__}")
    raw = text.encode()
    if not 1 <= len(raw) <= _MAX_BREAKER_BYTES or b"\0" in raw:
        raise ValueError(f"a sequence breaker must have 1..{_MAX_BREAKER_BYTES} bytes and no NUL character: {text!r}")
    return raw


def strings(name: str, values: Sequence[str]) -> Sequence[str]:
    """The values; TypeError if they are one text, whose characters would be taken for them."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} must be a sequence of str, not one {type(values).__name__}")
    return tuple(values)


def c_strings(texts: Sequence[bytes]) -> tuple[Any, Any]:
    """A char *[] and the memory it points into."""
    keep = [ffi.new("char[]", text) for text in texts]
    return ffi.new("char *[]", keep), keep


class VocabSamplerFactories(SamplerFactories):
    """Class methods that make samplers for a vocabulary.

    What reads the vocabulary itself (dry, infill, grammars) works with its model only, keeps that in memory, and is
    closed with it. The others work with any vocabulary of the same size.
    """

    @classmethod
    def mirostat(
        cls, vocab: Vocab, tau: float = 5.0, eta: float = 0.1, *, m: int = 100, seed: int | None = None
    ) -> Sampler:
        """Chooses so that the text's surprise stays near tau (llama_sampler_init_mirostat).

        Mirostat 1.0, https://arxiv.org/abs/2007.14966.

        Args:
            vocab: the model's vocabulary, for its size.
            tau: surprise aimed at, in bits, >= 0.
            eta: learning rate, >= 0.
            m: tokens considered in estimating the distribution's shape, >= 2.
            seed: as for `dist`.
        """
        require_vocab(vocab)
        pointer = lib.llama_sampler_init_mirostat(
            vocab.n_tokens, seed_value(seed), number("tau", tau, 0.0, LARGE), number("eta", eta, 0.0, LARGE),
            count("m", m, 2),
        )  # fmt: skip
        return cls._make("mirostat", pointer, vocab=vocab)

    @classmethod
    def penalties(
        cls, vocab: Vocab, *, last_n: int = 64, repeat: float = 1.0, freq: float = 0.0, present: float = 0.0
    ) -> Sampler:
        """Lowers the logits of tokens accepted lately (llama_sampler_init_penalties).

        Args:
            vocab: the model's vocabulary, for its size.
            last_n: how many accepted tokens count; 0: none.
            repeat: positive logits are divided by it, others multiplied, > 0; 1: no change.
            freq: subtracted once for each time the token occurs.
            present: subtracted once if it occurs at all.
        """
        require_vocab(vocab)
        pointer = lib.llama_sampler_init_penalties(
            vocab.n_tokens, count("last_n", last_n, 0, MAX_HISTORY), number("repeat", repeat, 1 / LARGE, LARGE),
            number("freq", freq, -LARGE, LARGE), number("present", present, -LARGE, LARGE),
        )  # fmt: skip
        return cls._make("penalties", pointer, vocab=vocab)

    @classmethod
    def dry(
        cls,
        vocab: Vocab,
        multiplier: float = 0.8,
        *,
        base: float = 1.75,
        allowed_length: int = 2,
        last_n: int = 1024,
        seq_breakers: Sequence[str] = ("\n", ":", '"', "*"),
    ) -> Sampler:
        """Lowers the logits of tokens that would go on repeating what was accepted before (llama_sampler_init_dry).

        By multiplier * base ** (length of the repetition - allowed_length);
        https://github.com/oobabooga/text-generation-webui/pull/5677.

        Args:
            vocab: the model's vocabulary.
            multiplier: >= 0; 0: no change.
            base: >= 1.
            allowed_length: repetitions shorter than this many tokens are let through.
            last_n: how many accepted tokens are searched for repetitions; 0: none.
            seq_breakers: texts across which nothing counts as repeated, each of at most 40 bytes.
        """
        require_vocab(vocab)
        vocab._usable()
        texts, _keep = c_strings([_breaker(text) for text in strings("seq_breakers", seq_breakers)])
        with vocab._resource:
            pointer = lib.llama_sampler_init_dry(
                vocab._pointer, number("multiplier", multiplier, 0.0, LARGE), number("base", base, 1.0, LARGE),
                count("allowed_length", allowed_length), count("last_n", last_n, 0, MAX_HISTORY), texts, len(texts),
            )  # fmt: skip
            return cls._make("dry", pointer, vocab=vocab, reads_vocab=True)

    @classmethod
    def logit_bias(cls, vocab: Vocab, bias: Mapping[int, float]) -> Sampler:
        """Adds a number to the logits of some tokens (llama_sampler_init_logit_bias).

        Args:
            vocab: the model's vocabulary, for its size.
            bias: token id -> number in -1e9..1e9, or -inf to exclude the token.
        """
        require_vocab(vocab)
        entries = [
            (count("token id", token, 0, vocab.n_tokens - 1), _bias(token, value)) for token, value in bias.items()
        ]
        array = ffi.new("llama_logit_bias[]", entries)
        pointer = lib.llama_sampler_init_logit_bias(vocab.n_tokens, len(entries), array)
        return cls._make("logit_bias", unsorted(pointer, "logit_bias"), vocab=vocab)

    @classmethod
    def infill(cls, vocab: Vocab) -> Sampler:
        """For filling in the middle, behind top_k and top_p (llama_sampler_init_infill).

        Joins tokens that begin alike, drops improbable ones, and prefers to end. On a whole row it is very slow: its
        time grows with the square of the candidates.

        Raises:
            UnsupportedError: the vocabulary has neither an EOT nor an EOS token.
        """
        require_vocab(vocab)
        vocab._usable()
        if vocab.eot is None and vocab.eos is None:
            raise UnsupportedError("infill needs a vocabulary with an EOT or EOS token")
        with vocab._resource:
            return cls._make("infill", lib.llama_sampler_init_infill(vocab._pointer), vocab=vocab, reads_vocab=True)


def _bias(token: int, value: float) -> float:
    if value == -math.inf:
        return value
    return number(f"bias of token {token}", value, -_MAX_BIAS, _MAX_BIAS)


def unsorted(pointer: Any, kind: str) -> Any:
    """The native sampler, made to tell those behind it that candidates are no longer sorted (llama.cpp's does not)."""
    check(f"making the sampler {kind}")
    return pointer if pointer == ffi.NULL else lib.causerie_sampler_unsorted(pointer)
