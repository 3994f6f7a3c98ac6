"""The options of one generation, and what they inherit where they are not set. Pure Python; no pointers."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Union

from causerie.chat.option_checks import CHECKS, require_known

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from causerie.llama.model import Model

__all__ = ["DEFAULTS", "RowSampler", "SamplingOptions", "file_defaults", "resolve"]

logger = logging.getLogger("causerie.chat")

RowSampler = Callable[["NDArray[np.float32]"], Union["ArrayLike", None]]
"""A sampler in Python: gets the logits, float32 of shape (n_vocab,), and changes them in place or returns others."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SamplingOptions:
    """What may be chosen for one generation. None everywhere means "not set": inherited.

    Immutable, hashable and, unless ``samplers`` are not, picklable. The samplers work in llama.cpp's usual order,
    whatever the order here: logit_bias, samplers, penalties, DRY, top_n_sigma, top_k, typical_p, top_p, min_p, XTC,
    temperature, and then the draw. Numbers of numpy are taken as well.

    Attributes:
        max_tokens: most tokens to generate, >= 1; -1: no limit of its own, also where one would be inherited.
        thinking_budget: most tokens to think, where the model's template has thinking; then its end is put in. 0: none;
            -1: no limit of its own, also where one would be inherited.
        thinking_budget_message: what is put in before that end, as the model's last thought; "": nothing.
        temperature: divides the logits, >= 0; 0: the likeliest token, always (dynatemp, mirostat and adaptive_* then
            have no say); 1: no change.
        dynatemp_range: half the width of the range in which the temperature follows the entropy, 0..1e6; 0: none.
            https://arxiv.org/abs/2309.02772
        dynatemp_exponent: how it follows it, 0..1e6.
        top_k: keeps the k largest logits; 0 or -1: all.
        top_p: keeps the most probable tokens that together reach it, 0..1; 1: all. https://arxiv.org/abs/1904.09751
        min_p: keeps the tokens at least that times as probable as the best one, 0..1; 0: all.
        typical_p: keeps the tokens nearest to the expected information, 0..1; 1: all. https://arxiv.org/abs/2202.00666
        top_n_sigma: keeps the logits within so many standard deviations of the largest, -1..1e6; 0 or less: all.
            https://arxiv.org/abs/2411.07641
        xtc_probability: how often the top choices are excluded, 0..1; 0: never.
        xtc_threshold: all that are at least that probable but the last of them, 0..1; above 0.5: never.
        dry_multiplier: strength of the penalty against repeating what has been said, 0..1e6; 0: none.
        dry_base: by how much it grows with each token of the repetition, 1..1e6.
        dry_allowed_length: repetitions shorter than so many tokens are let through.
        dry_penalty_last_n: how many of the last tokens are searched, 0..2**24; 0: none.
        dry_sequence_breakers: texts across which nothing counts as repeated, of 1..40 bytes each.
        mirostat: 0: off; 1 or 2: which version draws, behind the temperature, in the place of all the samplers from the
            penalties on. https://arxiv.org/abs/2007.14966
        mirostat_tau: the surprise it aims at, in bits, 0..1e6.
        mirostat_eta: its learning rate, 0..1e6.
        adaptive_target: the probability near which tokens are drawn, 0..1; negative (to -1): off.
        adaptive_decay: how slowly that forgets, 0..0.99.
        repeat_penalty: divides positive logits of recent tokens, multiplies others, 1e-6..1e6; 1: no change.
        repeat_last_n: how many of the last tokens are recent for the penalties, 0..2**24; 0: none.
        frequency_penalty: subtracted for each time a recent token occurs, -1e6..1e6.
        presence_penalty: subtracted once if it occurs, -1e6..1e6.
        seed: 0..2**32-2; -1 (or 2**32-1, as in llama.h): a random one, also where a seed would be inherited.
        stop: a str or several, each of which ends the text and is not part of it.
        logit_bias: token id -> number to add, -1e9..1e9; -inf or False bans the token.
        logprobs: whether to report log-probabilities: True: of each token; n: also of the n likeliest at its place;
            False (kept as -1): not, also where it would be inherited.
        grammar: GBNF text that the reply has to match; "": none, also where one would be inherited.
        samplers: functions, or one, that get the logits of the next token, float32 of shape (n_vocab,), and change them
            in place or return others; -inf excludes a token.
        n: how many candidates, 1 to 1024.

    Raises:
        TypeError: a value is not of a type that its option takes.
        ValueError: it is NaN or out of range.
    """

    max_tokens: int | None = None
    thinking_budget: int | None = None
    thinking_budget_message: str | None = None
    temperature: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: str | Iterable[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | Iterable[str] | None = None
    logit_bias: Mapping[int, float] | None = None
    logprobs: int | None = None
    grammar: str | None = None
    samplers: RowSampler | Iterable[RowSampler] | None = None
    n: int | None = None

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(name, value))

    @classmethod
    def of(cls, value: SamplingOptions | Mapping[str, Any] | None) -> SamplingOptions:
        """Options from options, from a mapping of their names, or from nothing.

        Raises:
            TypeError: a name is unknown (the message proposes the one that is most like it), or as above.
            ValueError: as above.
        """
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise TypeError(f"options must be SamplingOptions or a mapping, not {type(value).__name__}")
        require_known(value, CHECKS)
        return cls(**value)

    def given(self) -> dict[str, Any]:
        """The options that are set, by name, in the form they are kept in."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}

    def over(self, other: SamplingOptions) -> SamplingOptions:
        """These options; what is not set here, from the other ones."""
        mine = self.given()
        return replace(other, **mine) if mine else other

    def __repr__(self) -> str:
        return f"SamplingOptions({', '.join(f'{name}={value!r}' for name, value in self.given().items())})"


DEFAULTS = SamplingOptions(
    thinking_budget_message="", temperature=0.8, dynatemp_range=0.0, dynatemp_exponent=1.0, top_k=40, top_p=0.95,
    min_p=0.05, typical_p=1.0,
    top_n_sigma=-1.0, xtc_probability=0.0, xtc_threshold=0.1, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2,
    dry_penalty_last_n=64, dry_sequence_breakers=("\n", ":", '"', "*"), mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1,
    adaptive_target=-1.0, adaptive_decay=0.9, repeat_penalty=1.0, repeat_last_n=64, frequency_penalty=0.0,
    presence_penalty=0.0, stop=(), logit_bias={}, samplers=(), n=1,
)  # fmt: skip
"""What llama.cpp's own programs do if nobody says otherwise; those that can be None are not set."""

# llama.h's short names for what a file recommends. Its order of samplers ("sequence") is not followed.
_FILE_NAMES = {
    "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold", "temp": "temperature", "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty", "mirostat": "mirostat", "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}  # fmt: skip
_WHOLE = {"top_k", "repeat_last_n", "mirostat"}

_known_files: weakref.WeakKeyDictionary[Model, SamplingOptions] = weakref.WeakKeyDictionary()


def file_defaults(model: Model) -> SamplingOptions:
    """The options that the model's file recommends (``model.sampling_defaults``).

    What makes no sense there is left out, with a warning to the log, once per model: the model is as good without.
    """
    found = _known_files.get(model)
    if found is None:
        found = SamplingOptions()
        for key, text in model.sampling_defaults.items():
            found = _from_file(_FILE_NAMES.get(key), text).over(found)
        _known_files[model] = found
    return found


def _from_file(name: str | None, text: str) -> SamplingOptions:
    if name is None:
        return SamplingOptions()
    try:
        value = float(text)
        return SamplingOptions.of({name: int(value) if name in _WHOLE and value.is_integer() else value})
    except (TypeError, ValueError) as error:
        logger.warning("ignoring %s = %r, which the model's file recommends: %s", name, text, error)
        return SamplingOptions()


def resolve(*levels: SamplingOptions | Mapping[str, Any] | None, model: Model) -> SamplingOptions:
    """The options that count: each from the first level that sets it, else from the model's file, else `DEFAULTS`.

    Args:
        levels: the nearest first: of the call, of the conversation, of the engine.
        model: whose file is asked.

    Returns:
        Options of which only these can be None: max_tokens and thinking_budget (no limit), seed (random), logprobs and
        grammar (none).

    Raises:
        TypeError, ValueError: as `SamplingOptions.of`.
    """
    found = DEFAULTS
    for level in (file_defaults(model), *reversed(levels)):
        found = SamplingOptions.of(level).over(found)
    return replace(
        found,
        max_tokens=None if found.max_tokens == -1 else found.max_tokens,
        thinking_budget=None if found.thinking_budget == -1 else found.thinking_budget,
        seed=None if found.seed == -1 else found.seed,
        logprobs=None if found.logprobs == -1 else found.logprobs,
        grammar=found.grammar or None,
    )
