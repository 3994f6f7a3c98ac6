"""The keywords of a call: ModelFarm's names and ours, as options of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.chat.option_checks import CHECKS, require_known
from causerie.chat.options import SamplingOptions
from causerie.conversation.overflow import as_overflow

if TYPE_CHECKING:
    from causerie.conversation.overflow import Overflow

__all__ = ["ALIASES", "CallOptions"]

ALIASES = {
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "candidateCount": "n",
    "topP": "top_p",
    "topK": "top_k",
    "stopSequences": "stop",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "logitBias": "logit_bias",
}
"""Other names of options, and what they are here."""

_DEFAULTS = SamplingOptions(max_tokens=1024, temperature=0.2)  # ModelFarm's
_OTHERS = ("overflow", "thinking", "template_kwargs")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """All that a call says about how to answer.

    Attributes:
        reply: options of each reply, by the names that `Conversation.respond` takes.
        overflow: as for `Engine.conversation`.
    """

    reply: Mapping[str, Any]
    overflow: Overflow

    @classmethod
    def of(cls, given: Mapping[str, Any], engine: SamplingOptions) -> CallOptions:
        """From the keywords of a call; None counts as not given.

        Args:
            given: the keywords.
            engine: the engine's own options, which win over the facade's defaults.

        Raises:
            TypeError: a keyword is unknown, given under two names, or of the wrong type.
            ValueError: a value is out of range.
        """
        require_known(given, (*ALIASES, *CHECKS, *_OTHERS))
        named: dict[str, Any] = {}
        origin: dict[str, str] = {}
        for keyword, value in given.items():
            name = ALIASES.get(keyword, keyword)
            if value is None:
                continue
            if name in named:
                raise TypeError(f"{origin[name]} and {keyword} mean the same: give one of them")
            named[name], origin[name] = value, keyword
        others = {name: named.pop(name) for name in _OTHERS if name in named}
        overflow = as_overflow(others.pop("overflow", "error"))
        _check_others(others)
        sampling = SamplingOptions.of(named).over(SamplingOptions(**_unset(engine)))
        return cls({**sampling.given(), **others}, overflow)


def _unset(engine: SamplingOptions) -> dict[str, Any]:
    """The facade's defaults for what the engine leaves open."""
    theirs = engine.given()
    return {name: value for name, value in _DEFAULTS.given().items() if name not in theirs}


def _check_others(others: Mapping[str, Any]) -> None:
    if not isinstance(others.get("thinking", True), bool):
        raise TypeError(f"thinking must be a bool, not {type(others['thinking']).__name__}")
    if not isinstance(others.get("template_kwargs", {}), Mapping):
        raise TypeError(f"template_kwargs must be a dict, not {type(others['template_kwargs']).__name__}")
