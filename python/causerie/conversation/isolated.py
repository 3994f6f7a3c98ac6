"""`Engine(..., isolate=True)`: conversations here, and what they evaluate in a helper process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.conversation.engine import Engine
from causerie.engine.isolated import IsolatedTokenEngine
from causerie.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.chat.choosing import ChooserRecipe
    from causerie.chat.thinking_budget import ThinkingLimit

__all__ = ["IsolatedEngine"]


class IsolatedEngine(Engine, IsolatedTokenEngine):
    """What `Engine(..., isolate=True)` gives: an `Engine` that outlives the process that its model is in.

    Messages, templates, tools, transforms and parsing stay in this process; samplers written in Python cannot be used.
    """

    def chooser(self, recipe: ChooserRecipe, ids: Sequence[int]) -> Any:
        """The recipe itself, once it is known to make a chooser: the helper makes its own.

        Raises:
            UnsupportedError: it has a sampler that is written in Python.
            Exception: as `ChooserRecipe.make`.
        """
        if recipe.options.samplers:
            raise UnsupportedError("a sampler written in Python cannot be called from another process: isolate=True")
        recipe.make(self.model, ids).close()
        return recipe

    def forcing(self, limit: ThinkingLimit) -> Any:
        """The limit itself: the helper makes of it what puts in tokens."""
        return limit
