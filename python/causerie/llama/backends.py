"""Backends that were compiled and have no device here: what is known about why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from causerie.llama._lib import startup_log
from causerie.llama._plugins import is_registered

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["why_no_device"]

_FAILED = re.compile(r"(?:\w+: )?(?P<reason>.*\b(?:failed|error|invalid)\b.*)", re.IGNORECASE)
# What CUDA says where the driver's library is missing.
_NO_DRIVER = "CUDA driver version is insufficient for CUDA runtime version"


def why_no_device(name: str, log: Iterable[str] = startup_log) -> str:
    """What a backend said, or that it did not start; empty: it started, and found nothing.

    Args:
        name: ggml's name of it.
        log: what was said when backends were started.
    """
    said = [match["reason"].strip() for line in log if name.lower() in line.lower() and (match := _FAILED.match(line))]
    if said:
        return "; ".join(said).replace(_NO_DRIVER, f"no driver, or one that is too old ({_NO_DRIVER})")
    return "" if is_registered(name) else "it does not start"
