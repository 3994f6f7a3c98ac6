"""`causerie fit`: what of a model fits where, without loading it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from causerie.cli.models import resolve_model
from causerie.cli.text import size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from causerie.llama.fitting import Fit

__all__ = ["fit"]


def fit(args: argparse.Namespace) -> int:
    """Run `causerie fit MODEL`; returns 0, or 1 if it does not fit."""
    path = resolve_model(args.model)
    from causerie import llama
    from causerie.errors import CauserieError

    try:
        found = llama.fit(
            path,
            margin=args.margin << 20,
            model={"devices": args.devices, "rpc": args.rpc or ()},
            n_ctx=args.n_ctx,
            type_k=args.type_k,
            type_v=args.type_v,
        )
    except ValueError as error:  # an unknown device or type
        raise CauserieError(str(error)) from error
    if args.json:
        facts = {
            "fits": found.fits,
            "reason": found.reason,
            "n_ctx": found.n_ctx,
            **found.model_options,
            "devices": [asdict(use) for use in found.devices],
        }
        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(_lines(found)))
    return 0 if found.fits else 1


def _lines(found: Fit) -> Iterator[str]:
    yield "it fits" if found.fits else f"it does not fit: {found.reason}"
    layers = "all" if found.n_gpu_layers < 0 else str(found.n_gpu_layers)
    devices = [use for use in found.devices if use.kind != "cpu"]
    yield f"layers     {layers} on other devices than the CPU" if devices else "layers     all on the CPU"
    yield f"context    {found.n_ctx} tokens"
    for use in found.devices:
        model, cache, compute = size(use.model_bytes), size(use.cache_bytes), size(use.compute_bytes)
        yield f"{use.name:<10} {use.layers} layers: {model} of weights, {cache} of cache, {compute} to compute with"
    if found.tensor_buft_overrides:
        yield f"and {len(found.tensor_buft_overrides)} patterns of tensors that stay elsewhere: --json lists them"
