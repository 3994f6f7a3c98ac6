"""Checks of generation options, one by one: what comes in, its range, and the form it is kept in. Pure Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from numbers import Real
from types import MappingProxyType
from typing import Any

from causerie.chat.frozen_json import checked_text
from causerie.chat.stops import as_stops

__all__ = ["CHECKS", "TokenBias", "require_known"]

_INT32_MAX = 2**31 - 1
_UINT32_MAX = 2**32 - 1
_FLOAT32_MAX = 3.4028234663852886e38
_LARGE = 1e6  # penalties and rates beyond this could add up to infinity
_MAX_HISTORY = 2**24  # tokens: more than any context
_MOST_CANDIDATES = 1024  # each is a sequence with a sampler of its own
_MAX_BIAS = 1e9
_LEAST_TEMPERATURE = 1e-20  # dividing by less could overflow
_MAX_BREAKER_BYTES = 40


class TokenBias(Mapping[int, float]):
    """What is added to the logits of some tokens: token id -> number, -inf to ban it. It cannot change.

    Raises:
        TypeError: not a mapping; an id is not an int, or a number none.
        ValueError: an id is negative, or a number NaN or out of range.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[int, float]) -> None:
        if not isinstance(values, Mapping):
            raise TypeError(f"logit_bias must be a mapping of token ids to numbers, not {type(values).__name__}")
        self._values = dict(_bias(token, value) for token, value in values.items())

    def __getitem__(self, token: int) -> float:
        return self._values[token]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


def _bias(token: Any, value: Any) -> tuple[int, float]:
    if isinstance(token, str):
        raise TypeError(f"logit_bias takes token ids, not text: model.vocab.tokenize({token!r}) gives them")
    token = _count("logit_bias: a token id", token, 0, _INT32_MAX)
    if value is False or value == -math.inf:
        return token, -math.inf
    return token, _number(f"logit_bias of token {token}", value, -_MAX_BIAS, _MAX_BIAS)


def _is_bool(value: Any) -> bool:
    """Whether it is a bool, numpy's too: before numpy 2.3 that is an index, with a warning."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _count(name: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int in low..high, numpy's too."""
    try:
        number = None if _is_bool(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not low <= number <= high:
        raise ValueError(f"{name} must be in {low}..{high}, not {number}")
    return number


def _number(name: str, value: Any, low: float, high: float) -> float:
    """``value`` as a float in low..high, so not NaN; numpy's too."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not low <= number <= high:
        raise ValueError(f"{name} must be in {low:g}..{high:g}, not {value}")
    return number


def _temperature(name: str, value: Any) -> float:
    number = _number(name, value, 0.0, _FLOAT32_MAX)
    if 0 < number < _LEAST_TEMPERATURE:
        raise ValueError(f"{name} {number} is too small to divide by: use 0, which takes the likeliest token")
    return number


def _max_tokens(name: str, value: Any) -> int:
    number = _count(name, value, -1, _INT32_MAX)
    if number == 0:
        raise ValueError(f"{name} must be in 1..{_INT32_MAX}, or -1 for no limit, not 0")
    return number


def _seed(name: str, value: Any) -> int:
    seed = _count(name, value, -1, _UINT32_MAX)
    return -1 if seed == _UINT32_MAX else seed  # LLAMA_DEFAULT_SEED: llama.h's own word for a random one


def _logprobs(name: str, value: Any) -> int:
    if isinstance(value, bool):
        return 0 if value else -1
    return _count(name, value, -1, _INT32_MAX)


def _items(name: str, value: Any, kind: str) -> tuple[Any, ...]:
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be {kind}, or several of them, not {type(value).__name__}")
    return tuple(value)


def _stop(name: str, value: Any) -> tuple[str, ...]:
    return as_stops(value if isinstance(value, str) else _items(name, value, "a str"))


def _breakers(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else _items(name, value, "a str")
    found = tuple(dict.fromkeys(checked_text(text, f"one of {name}") for text in texts))
    for text in found:
        if not 1 <= len(text.encode()) <= _MAX_BREAKER_BYTES or "\0" in text:
            raise ValueError(f"one of {name} must have 1..{_MAX_BREAKER_BYTES} bytes and no NUL character: {text!r}")
    return found


def _functions(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    functions = (value,) if callable(value) else _items(name, value, "a function of the logits")
    for function in functions:
        if not callable(function):
            raise TypeError(f"{name} must be functions of the logits, not {type(function).__name__}")
    return functions


def _text(name: str, value: Any) -> str:
    return checked_text(value, name)


def _bias_map(_name: str, value: Any) -> TokenBias:
    return value if isinstance(value, TokenBias) else TokenBias(value)


def _counted(low: int, high: int = _INT32_MAX) -> Callable[[str, Any], int]:
    return partial(_count, low=low, high=high)


def _ranged(low: float, high: float) -> Callable[[str, Any], float]:
    return partial(_number, low=low, high=high)


_probability = _ranged(0.0, 1.0)
_rate = _ranged(0.0, _LARGE)
_penalty = _ranged(-_LARGE, _LARGE)

CHECKS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "max_tokens": _max_tokens,
        "thinking_budget": _counted(-1),
        "thinking_budget_message": _text,
        "temperature": _temperature,
        "dynatemp_range": _rate,
        "dynatemp_exponent": _rate,
        "top_k": _counted(-1),
        "top_p": _probability,
        "min_p": _probability,
        "typical_p": _probability,
        "top_n_sigma": _ranged(-1.0, _LARGE),
        "xtc_probability": _probability,
        "xtc_threshold": _probability,
        "dry_multiplier": _rate,
        "dry_base": _ranged(1.0, _LARGE),
        "dry_allowed_length": _counted(0),
        "dry_penalty_last_n": _counted(0, _MAX_HISTORY),
        "dry_sequence_breakers": _breakers,
        "mirostat": _counted(0, 2),
        "mirostat_tau": _rate,
        "mirostat_eta": _rate,
        "adaptive_target": _ranged(-1.0, 1.0),
        "adaptive_decay": _ranged(0.0, 0.99),
        "repeat_penalty": _ranged(1 / _LARGE, _LARGE),
        "repeat_last_n": _counted(0, _MAX_HISTORY),
        "frequency_penalty": _penalty,
        "presence_penalty": _penalty,
        "seed": _seed,
        "stop": _stop,
        "logit_bias": _bias_map,
        "logprobs": _logprobs,
        "grammar": _text,
        "samplers": _functions,
        "n": _counted(1, _MOST_CANDIDATES),
    }
)
"""By option: ``check(name, value)`` gives the value as it is kept (a second check changes nothing), or raises."""


def require_known(names: Iterable[object], known: Iterable[str]) -> None:
    """Whether every name is one of ``known``.

    Raises:
        TypeError: one is not; the message proposes the name that is most like it.
    """
    options = list(known)
    for name in names:
        if name in options:
            continue
        alike = get_close_matches(str(name), options, n=1, cutoff=0.5)
        longer = [option for option in options if name and option.startswith(str(name))]
        guess = [*longer, *alike]
        hint = f"did you mean {guess[0]!r}?" if guess else f"there are {', '.join(options)}"
        raise TypeError(f"unknown option {name!r}: {hint}")
