"""`causerie models`: what is cached, and fetching, finding and removing it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from causerie.cli.progress import fetch_progress
from causerie.cli.text import size
from causerie.errors import ModelLoadError
from causerie.models import aliases, default_cache_dir, list_cached, remove, resolve

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

__all__ = ["models", "resolve_model"]


def resolve_model(name: str) -> Path:
    """The model's file, fetched with a bar on stderr where it is not here yet."""
    with fetch_progress(name) as progress:
        return resolve(name, progress=progress)


def models(args: argparse.Namespace) -> int:
    """Run `causerie models ACTION`; returns the exit code."""
    if args.action == "fetch":
        print(resolve_model(args.name))
    elif args.action == "path":
        print(_cached_path(args.name))
    elif args.action == "remove":
        freed = remove(args.name)
        print(f"causerie: removed {args.name} ({size(freed)})", file=sys.stderr)
    else:
        _list()
    return 0


def _list() -> None:
    cached = list_cached()
    rows = [(model.name, size(model.size), str(model.path)) for model in cached]
    here = {model.name for model in cached}
    for name, alias in aliases().items():
        if name not in here:
            rows.append((name, size(alias.size), f"not here yet: causerie models fetch {name}"))
    width = max(len(name) for name, _, _ in rows)
    for name, amount, where in rows:
        print(f"{name:<{width}}  {amount:>9}  {where}")
    print(f"causerie: the cache is {default_cache_dir()}", file=sys.stderr)


def _cached_path(name: str) -> Path:
    """Where a model is, without the network.

    Raises:
        ModelLoadError: it is not on this machine.
    """
    cached = {model.name: model.path for model in list_cached()}
    if name in cached:
        return cached[name]
    if name in aliases():
        raise ModelLoadError(f"{name!r} is not cached: causerie models fetch {name}", path=name)
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, which happens in resolve()
    return resolve(name)
