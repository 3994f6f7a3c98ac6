"""The sampler that the command line asks for."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from causerie.llama.sampler import Sampler

if TYPE_CHECKING:
    import argparse

    from causerie.llama.model import Model

__all__ = ["build_sampler", "settings"]

# llama.cpp's own defaults, by llama.h's short names.
_DEFAULTS = {"temp": 0.8, "top_k": 40.0, "top_p": 0.95, "min_p": 0.05}
_OPTIONS = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def settings(args: argparse.Namespace, recommended: dict[str, str]) -> dict[str, float]:
    """Each setting from the command line, else from the model's file, else llama.cpp's default."""
    chosen = {}
    for name, default in _DEFAULTS.items():
        given = getattr(args, _OPTIONS[name])
        try:
            chosen[name] = float(recommended.get(name, default) if given is None else given)
        except ValueError:  # a file with nonsense in it is still a model
            chosen[name] = default
    return chosen


def build_sampler(args: argparse.Namespace, model: Model) -> Sampler:
    """top-k, top-p, min-p, temperature, then chance; with temperature 0 the likeliest token."""
    chosen = settings(args, dict(model.sampling_defaults))
    if chosen["temp"] <= 0:
        return Sampler.chain([Sampler.greedy()])
    links = [Sampler.top_p(chosen["top_p"]), Sampler.min_p(chosen["min_p"]), Sampler.temperature(chosen["temp"])]
    if chosen["top_k"] >= 1:
        links.insert(0, Sampler.top_k(int(chosen["top_k"])))
    seed = secrets.randbits(31) if args.seed is None else args.seed
    return Sampler.chain([*links, Sampler.dist(seed)])
