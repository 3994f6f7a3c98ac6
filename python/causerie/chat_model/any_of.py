"""Several replies that are waited for as one: until something is new in any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from causerie.conversation.candidate import Candidate
    from causerie.engine import Generation, TokenEngine

__all__ = ["AnyOf"]


class AnyOf:
    """Candidates of any number of replies on one engine. For one wait.

    Args:
        engine: where they are generated.
        candidates: those of them that have ended are left out.
        chunks: whether text is news too, and not only an end.
    """

    def __init__(self, engine: TokenEngine, candidates: Iterable[Candidate], *, chunks: bool) -> None:
        self._engine = engine
        self._candidates = [candidate for candidate in candidates if not candidate.generation.done]
        self._chunks = chunks
        self.generations: list[Generation] = [candidate.generation for candidate in self._candidates]

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return all(generation.done for generation in self.generations)

    def ready(self) -> bool:
        """Whether there is news. Called by any thread, and often."""
        if self._chunks and any(candidate.chunks for candidate in self._candidates):
            return True
        return not self.generations or any(generation.done for generation in self.generations)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, or the end of all; runs the engine's steps meanwhile."""
        self._engine.wait_for(self.generations, ready)
