"""From options to samplers: the chain that chooses each token, and the grammar beside it."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.chat.options import DEFAULTS
from causerie.chat.row_sampler import row_sampler
from causerie.llama.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from causerie.chat.options import SamplingOptions
    from causerie.llama.model import Model
    from causerie.llama.sampler import SamplerChain
    from causerie.llama.vocab import Vocab

__all__ = ["Choice", "sampling_chain"]


@dataclass(frozen=True, eq=False)
class Choice:
    """How the next token is chosen. It owns its samplers.

    Attributes:
        chain: ends with a sampler that chooses; None: the largest logit wins.
        grammar: excludes what the grammar does not allow next; to be applied before the chain, and to accept what was
            generated, not the prompt. None: there is none.
        preselect: k > 0: the chain begins with top_k, so it does with the k largest logits, of tokens that the grammar
            allows, what it would do with all. 0: the chain needs the whole row.
        history: how many of the last tokens the penalties and DRY look at.
    """

    chain: SamplerChain | None = None
    grammar: Sampler | None = None
    preselect: int = 0
    history: int = 0

    @property
    def needs_history(self) -> bool:
        """Whether what the chain does depends on the tokens before: `prime` it with the prompt."""
        return self.history > 0

    def prime(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        """Let the chain, not the grammar, accept the end of a prompt, as far as penalties and DRY look back.

        Does nothing if neither is in the chain.

        Args:
            ids: the token ids so far, in order.

        Raises:
            TypeError, ValueError: one is not an id of the vocabulary.
            ClosedError: the samplers, or their model, are closed.
        """
        if self.chain is not None and self.history:
            for token in ids[-self.history :]:
                self.chain.accept(token)

    def close(self) -> None:
        """Free the samplers. Idempotent."""
        for sampler in (self.chain, self.grammar):
            if sampler is not None:
                sampler.close()


def sampling_chain(
    options: SamplingOptions, model: Model, *, seed: int | None, grammar: Sampler | None = None
) -> Choice:
    """The samplers for these options, in llama.cpp's order; what would change nothing is left out.

    First logit_bias (with what the model's file asks never to generate) and the functions in ``samplers``, then
    penalties, DRY, top_n_sigma, top_k, typical_p, top_p, min_p, XTC, temperature, and then what draws: by probability,
    or adaptively. With mirostat it draws behind the temperature, and the samplers from the penalties to XTC are left
    out. At temperature 0 the largest logit wins, of those that typical_p and XTC leave.

    Args:
        options: what is not set is taken from `DEFAULTS`. Their own ``seed`` is not looked at.
        model: whose vocabulary it is.
        seed: 0..2**32-1 for everything random here; None: a random one.
        grammar: what the reply follows instead of the options' grammar; the choice owns it. It stays the caller's if
            this fails.

    Raises:
        GrammarError: the grammar is malformed (``.line``, ``.column``), or llama.cpp cannot work with it.
        ValueError: ``logit_bias`` has an id that is not of this vocabulary.
        UnsupportedError: the model has no vocabulary for the grammar or DRY.
        ClosedError: the model is closed.
    """
    o: Any = options.over(DEFAULTS)  # Any: what is used below is not None now
    vocab = model.vocab
    with ExitStack() as made:
        if grammar is None and o.grammar:
            grammar = Sampler.grammar(vocab, o.grammar, shown=())
            made.callback(grammar.close)
        parts = []
        for sampler in _parts(o, vocab, seed):
            made.callback(sampler.close)
            parts.append(sampler)
        if parts and o.temperature == 0:
            parts.append(Sampler.greedy())
            made.callback(parts[-1].close)
        chain = Sampler.chain(parts) if parts else None
        made.pop_all()  # nothing went wrong: the chain owns its parts, and the caller all
    begins_with_top_k = chain is not None and chain.names[0] == "top-k" and not o.samplers
    history = max(o.repeat_last_n if _penalises(o) else 0, o.dry_penalty_last_n if _dries(o) else 0)
    return Choice(chain, grammar, o.top_k if begins_with_top_k else 0, history)


def _parts(o: Any, vocab: Vocab, seed: int | None) -> Iterator[Sampler]:
    yield from _edits(o, vocab)
    if not o.mirostat and (o.temperature > 0 or o.typical_p < 1 or _excludes_top(o)):
        yield from _cuts(o, vocab.n_tokens, seed)
    if o.temperature > 0:
        yield from _draw(o, vocab, seed)


def _penalises(o: Any) -> bool:
    changes = o.repeat_penalty != 1 or o.frequency_penalty != 0 or o.presence_penalty != 0
    return bool(changes and o.repeat_last_n > 0 and not o.mirostat)


def _dries(o: Any) -> bool:
    return bool(o.dry_multiplier > 0 and o.dry_penalty_last_n > 0 and not o.mirostat)


def _excludes_top(o: Any) -> bool:
    return bool(o.xtc_probability > 0 and o.xtc_threshold <= 0.5)


def _edits(o: Any, vocab: Vocab) -> Iterator[Sampler]:
    """What changes single logits, and so which is the largest."""
    bias = {token: value for token, value in o.logit_bias.items() if value != 0}
    if unknown := [token for token in bias if token >= vocab.n_tokens]:
        raise ValueError(f"logit_bias: token id {unknown[0]} is not in 0..{vocab.n_tokens - 1}, the model's vocabulary")
    bias.update(dict.fromkeys(vocab.suppress_tokens, -math.inf))
    if bias:
        yield Sampler.logit_bias(vocab, bias)
    for function in o.samplers:
        yield row_sampler(function, vocab.n_tokens)
    if _penalises(o):
        yield Sampler.penalties(
            vocab, last_n=o.repeat_last_n, repeat=o.repeat_penalty, freq=o.frequency_penalty, present=o.presence_penalty
        )
    if _dries(o):
        yield Sampler.dry(
            vocab,
            o.dry_multiplier,
            base=o.dry_base,
            allowed_length=o.dry_allowed_length,
            last_n=o.dry_penalty_last_n,
            seq_breakers=o.dry_sequence_breakers,
        )


def _cuts(o: Any, n_vocab: int, seed: int | None) -> Iterator[Sampler]:
    """What leaves some of the tokens; only typical_p and XTC may drop the largest logit."""
    if o.top_n_sigma > 0:
        yield Sampler.top_n_sigma(o.top_n_sigma)
    if 0 < o.top_k < n_vocab:
        yield Sampler.top_k(o.top_k)
    if o.typical_p < 1:
        yield Sampler.typical(o.typical_p)
    if o.top_p < 1:
        yield Sampler.top_p(o.top_p)
    if o.min_p > 0:
        yield Sampler.min_p(o.min_p)
    if _excludes_top(o):
        yield Sampler.xtc(o.xtc_probability, o.xtc_threshold, seed=seed)


def _draw(o: Any, vocab: Vocab, seed: int | None) -> Iterator[Sampler]:
    if o.dynatemp_range > 0 and not o.mirostat:
        yield Sampler.temperature_dynamic(o.temperature, o.dynatemp_range, exponent=o.dynatemp_exponent)
    elif o.temperature != 1:
        yield Sampler.temperature(o.temperature)
    if o.mirostat == 1:
        yield Sampler.mirostat(vocab, o.mirostat_tau, o.mirostat_eta, seed=seed)
    elif o.mirostat == 2:
        yield Sampler.mirostat_v2(o.mirostat_tau, o.mirostat_eta, seed=seed)
    elif o.adaptive_target >= 0:
        yield Sampler.adaptive_p(o.adaptive_target, decay=o.adaptive_decay, seed=seed)
    else:
        yield Sampler.dist(seed)
