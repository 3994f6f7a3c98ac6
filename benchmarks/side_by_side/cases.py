"""All that is measured, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cases_alone import binding, one_conversation, starting, structured
from .cases_together import branches, latency, parking, saving, together, turns
from .sizes import OURS, QUICK, SYSTEMS, Sizes

if TYPE_CHECKING:
    from .case import Case

__all__ = ["OURS", "QUICK", "SYSTEMS", "Sizes", "all_cases"]

GROUPS = (binding, one_conversation, together, turns, branches, parking, saving, structured, latency, starting)


def all_cases(sizes: Sizes) -> list[Case]:
    """Everything, in the order in which it is measured and shown."""
    return [case for group in GROUPS for case in group(sizes)]
