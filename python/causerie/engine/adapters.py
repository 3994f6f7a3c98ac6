"""LoRA adapters as engines and conversations name them: files, and how strongly each is applied."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeAlias

__all__ = ["Adapter", "AdaptersLike", "as_adapters"]

AdaptersLike: TypeAlias = (
    "str | os.PathLike[str] | Adapter | Mapping[str | os.PathLike[str], float]"
    " | Iterable[str | os.PathLike[str] | Adapter | tuple[str | os.PathLike[str], float]] | None"
)
"""A file, an `Adapter`, several of these or pairs of file and scale, or a mapping of files to scales."""

_FLOAT_MAX = 3.4028234663852886e38


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter, applied with a scale. Two are equal if their content and scale are, wherever their files lie.

    Attributes:
        path: of a GGUF file; or "hf:owner/repo:file".
        scale: what its changes are multiplied with.
        fingerprint: of its content, 32 hex digits; "": it was not loaded yet.
    """

    path: str = field(compare=False)
    scale: float = 1.0
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)):
            raise TypeError(f"an adapter's path must be a str or a path, not {type(self.path).__name__}")
        if isinstance(self.scale, bool) or not isinstance(self.scale, Real):
            raise TypeError(f"an adapter's scale must be a number, not {type(self.scale).__name__}")
        if not abs(self.scale) <= _FLOAT_MAX:  # false for nan too
            raise ValueError(f"an adapter's scale must be a finite float32, not {self.scale}")
        object.__setattr__(self, "path", os.fspath(self.path))
        object.__setattr__(self, "scale", float(self.scale))


def as_adapters(given: AdaptersLike) -> tuple[Adapter, ...]:
    """Adapters, however they were named: one file, several, pairs of file and scale, or a mapping of these.

    Raises:
        TypeError: something else.
        ValueError: a scale is not finite.
    """
    if given is None:
        return ()
    if isinstance(given, (str, os.PathLike, Adapter)):
        given = (given,)
    if isinstance(given, Mapping):
        given = given.items()
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise TypeError(f"adapters must be files, or pairs of file and scale, not {type(given).__name__}")
    return tuple(_as_adapter(each) for each in given)


def _as_adapter(given: Any) -> Adapter:
    if isinstance(given, Adapter):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Adapter(os.fspath(given))
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (str, os.PathLike)):
        return Adapter(os.fspath(given[0]), given[1])
    raise TypeError(f'an adapter is the path of a file, or a pair as in [("style.gguf", 0.5)], not {given!r}')
