"""The samplers of llama.h that work on probabilities alone: llama_sampler_init_*, with their options checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.errors import NativeError
from causerie.llama import _sampler_custom as custom_sampler
from causerie.llama._callbacks import CustomSampler
from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib
from causerie.llama._sampler_base import SamplerBase
from causerie.llama._sampler_options import INT32_MAX, LARGE, count, number, probability, seed_value
from causerie.llama._sampler_part import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.llama._sampler_custom import CustomFunction
    from causerie.llama.sampler import Sampler
    from causerie.llama.vocab import Vocab

__all__ = ["SamplerFactories"]

# Dividing by less could overflow; 0 is the limit that is meant.
_LEAST_TEMPERATURE = 1e-20


def _min_keep(value: int) -> int:
    return count("min_keep", value)


def _temperature(value: float) -> float:
    t = number("temperature", value, 0.0)
    if 0 < t < _LEAST_TEMPERATURE:
        raise ValueError(f"temperature {t} is too small to divide by: use 0, which keeps the best token only")
    return t


class SamplerFactories(SamplerBase):
    """Class methods that make samplers from numbers or from a Python function."""

    @classmethod
    def _wrap(cls, part: Part) -> Sampler:
        raise NotImplementedError

    @classmethod
    def _make(
        cls, kind: str, pointer: Any, *, vocab: Vocab | None = None, reads_vocab: bool = False, name: str = ""
    ) -> Sampler:
        """The Python object for a native sampler that was made just now; with a vocabulary, for that size of row."""
        check(f"making the sampler {kind}")
        if pointer == ffi.NULL:
            raise NativeError(f"llama.cpp made no sampler {kind}")
        model = vocab._model if vocab is not None and reads_vocab else None
        part = Part(kind, pointer, name, model, None if vocab is None else vocab.n_tokens)
        if kind == "custom":
            part.claim_functions()
        return cls._wrap(part)

    @classmethod
    def greedy(cls) -> Sampler:
        """Chooses the token with the largest logit (llama_sampler_init_greedy)."""
        return cls._make("greedy", lib.llama_sampler_init_greedy())

    @classmethod
    def dist(cls, seed: int | None = None) -> Sampler:
        """Chooses at random, by probability (llama_sampler_init_dist).

        Args:
            seed: 0..2**32-1, of which the last (LLAMA_DEFAULT_SEED) means, like None, a new random seed each time.
        """
        return cls._make("dist", lib.llama_sampler_init_dist(seed_value(seed)))

    @classmethod
    def top_k(cls, k: int) -> Sampler:
        """Keeps the k largest logits (llama_sampler_init_top_k; https://arxiv.org/abs/1904.09751); k <= 0: all."""
        return cls._make("top_k", lib.llama_sampler_init_top_k(count("k", k, -INT32_MAX)))

    @classmethod
    def top_p(cls, p: float, *, min_keep: int = 1) -> Sampler:
        """Keeps the most probable tokens that together reach p (llama_sampler_init_top_p).

        Nucleus sampling, https://arxiv.org/abs/1904.09751.

        Args:
            p: 0..1; 1: all.
            min_keep: tokens to keep in any case.
        """
        return cls._make("top_p", lib.llama_sampler_init_top_p(probability("p", p), _min_keep(min_keep)))

    @classmethod
    def min_p(cls, p: float, *, min_keep: int = 1) -> Sampler:
        """Keeps tokens at least p times as probable as the best one (llama_sampler_init_min_p).

        https://github.com/ggml-org/llama.cpp/pull/3841.

        Args:
            p: 0..1; 0: all.
            min_keep: tokens to keep in any case.
        """
        return cls._make("min_p", lib.llama_sampler_init_min_p(probability("p", p), _min_keep(min_keep)))

    @classmethod
    def typical(cls, p: float, *, min_keep: int = 1) -> Sampler:
        """Keeps the tokens whose information is nearest to the entropy and that together exceed p.

        Locally typical sampling (llama_sampler_init_typical), https://arxiv.org/abs/2202.00666.

        Args:
            p: 0..1; 1: all.
            min_keep: tokens to keep in any case.
        """
        return cls._make("typical", lib.llama_sampler_init_typical(probability("p", p), _min_keep(min_keep)))

    @classmethod
    def temperature(cls, t: float) -> Sampler:
        """Divides logits by t >= 0 (llama_sampler_init_temp); 0: all but the largest become -inf."""
        return cls._make("temperature", lib.llama_sampler_init_temp(_temperature(t)))

    @classmethod
    def temperature_dynamic(cls, t: float, delta: float, *, exponent: float = 1.0) -> Sampler:
        """Divides logits by a temperature that grows with the entropy (llama_sampler_init_temp_ext).

        https://arxiv.org/abs/2309.02772: low + (high - low) * (entropy / largest possible entropy) ** exponent, where
        low = max(0, t - delta) and high = t + delta.

        Args:
            t: middle of the range, >= 0.
            delta: half of its width, >= 0; 0: as `temperature`.
            exponent: >= 0.
        """
        pointer = lib.llama_sampler_init_temp_ext(
            _temperature(t), number("delta", delta, 0.0, LARGE), number("exponent", exponent, 0.0, LARGE)
        )
        return cls._make("temperature_dynamic", pointer)

    @classmethod
    def xtc(cls, p: float, t: float = 0.1, *, min_keep: int = 1, seed: int | None = None) -> Sampler:
        """Excludes top choices: with probability p, all tokens that reach t but the least probable of them.

        llama_sampler_init_xtc, https://github.com/oobabooga/text-generation-webui/pull/6335.

        Args:
            p: 0..1; 0: never.
            t: 0..1; above 0.5: never, as two tokens cannot reach it.
            min_keep: tokens to keep; if fewer would be left, nothing is excluded.
            seed: as for `dist`.
        """
        pointer = lib.llama_sampler_init_xtc(
            probability("p", p), probability("t", t), _min_keep(min_keep), seed_value(seed)
        )
        return cls._make("xtc", pointer)

    @classmethod
    def top_n_sigma(cls, n: float) -> Sampler:
        """Sets logits below max - n * standard deviation to -inf (llama_sampler_init_top_n_sigma); n <= 0: none.

        https://arxiv.org/abs/2411.07641.
        """
        return cls._make("top_n_sigma", lib.llama_sampler_init_top_n_sigma(number("n", n)))

    @classmethod
    def mirostat_v2(cls, tau: float = 5.0, eta: float = 0.1, *, seed: int | None = None) -> Sampler:
        """Chooses so that the text's surprise stays near tau (llama_sampler_init_mirostat_v2).

        Mirostat 2.0, https://arxiv.org/abs/2007.14966.

        Args:
            tau: surprise aimed at, in bits, >= 0.
            eta: learning rate, >= 0.
            seed: as for `dist`.
        """
        pointer = lib.llama_sampler_init_mirostat_v2(
            seed_value(seed), number("tau", tau, 0.0, LARGE), number("eta", eta, 0.0, LARGE)
        )
        return cls._make("mirostat_v2", pointer)

    @classmethod
    def adaptive_p(cls, target: float, *, decay: float = 0.9, seed: int | None = None) -> Sampler:
        """Chooses tokens whose probability is near a target over time (llama_sampler_init_adaptive_p).

        https://github.com/ggml-org/llama.cpp/pull/17927; recommended behind min_p alone.

        Args:
            target: 0..1; negative: as `dist`.
            decay: 0..0.99, how slowly it forgets: about 1 / (1 - decay) tokens.
            seed: as for `dist`.
        """
        pointer = lib.llama_sampler_init_adaptive_p(
            number("target", target, -1.0, 1.0), number("decay", decay, 0.0, 0.99), seed_value(seed)
        )
        return cls._make("adaptive_p", pointer)

    @classmethod
    def custom(
        cls,
        function: CustomFunction,
        *,
        accept: Callable[[int], object] | None = None,
        reset: Callable[[], object] | None = None,
        clone: Callable[[], Sampler] | None = None,
        name: str | None = None,
    ) -> Sampler:
        """A sampler written in Python.

        `function(candidates)` gets `Candidates` whose `logits` it may change in place (-inf excludes a token). As the
        first of a chain it sees the whole row: `candidates.logits[token]`. Behind a sampler that sorts or drops
        candidates, `candidates.ids` tells which is which. It returns

        - None: the logits as they are now;
        - a float array of the same length: these logits instead;
        - an int: the id of a candidate, which is thereby chosen (at the end of a chain).

        The arrays are copies: keeping them is harmless, changing them later has no effect. An exception ends the
        call to `sample`, `apply`, `accept`, `reset` or `clone` and reaches its caller; the sampler stays usable.
        The functions must not call into the sampler, or into the context that is being sampled (`BusyError`).

        Args:
            function: see above.
            accept: called with each token id that is accepted.
            reset: called by `Sampler.reset`.
            clone: called by `Sampler.clone`; returns a new `Sampler.custom(...)` with the same state. Without it
                copies share `function`, and a sampler with accept or reset cannot be copied.
            name: for `names`; by default the function's own.
        """
        functions = custom_sampler.build(function, accept, reset, clone)
        label = name if name is not None else getattr(function, "__name__", type(function).__name__)
        handle = functions.register()
        pointer = lib.causerie_sampler_custom(handle)
        if pointer == ffi.NULL:
            CustomSampler._alive.pop(handle, None)
        return cls._make("custom", pointer, name=label)
