"""A reply that is being generated, with its candidates: who waits for it, who reads it, who ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.conversation.candidate import Candidate
    from causerie.conversation.reply import Chunk, Reply
    from causerie.engine import Generation, TokenEngine

__all__ = ["Turn"]


class Turn:
    """All candidates of one reply. Read by one consumer; may be cancelled by anyone.

    It knows nothing of its conversation, which lets it join the history once it is done (`Replying.settle`).

    Args:
        engine: where they are generated.
        candidates: the first one is the conversation's own.
        how: "new": the reply is a new message; "continue": it goes on with the last one.

    Attributes:
        generations: the candidates'.
        settled: whether it has joined the history, or is known not to.
        reply: then, what it has become;
        error: or what ended it.
    """

    def __init__(self, engine: TokenEngine, candidates: list[Candidate], how: Literal["new", "continue"]) -> None:
        self._engine = engine
        self.candidates = candidates
        self.generations: list[Generation] = [candidate.generation for candidate in candidates]
        self.how = how
        self.settled = False
        self.reply: Reply | None = None
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return all(generation.done for generation in self.generations)

    @property
    def ending(self) -> bool:
        """Whether all have ended, or shall."""
        return all(generation.done or generation.cancelled for generation in self.generations)

    @property
    def _failing(self) -> bool:
        """Whether one has failed and others still go on, in vain."""
        return any(generation.error is not None for generation in self.generations) and not self.ending

    def abandon(self) -> None:
        """Nobody reads it any more. For finalizers: takes no lock and waits for nobody."""
        for generation in self.generations:
            generation.abandon()

    def cancel(self) -> None:
        """End it, from any thread."""
        for generation in self.generations:
            self._engine.cancel(generation)

    def unwatch(self) -> None:
        """Nobody reads it before its end."""
        for generation in self.generations:
            generation.watched = False

    def ready(self) -> bool:
        """Whether a chunk can be read, or nothing more will come."""
        return any(candidate.chunks for candidate in self.candidates) or self.done

    def wait(self, ready: Callable[[], bool] | None = None) -> None:
        """Wait until `ready()`, or the end of all; runs the engine's steps meanwhile."""
        if ready is None:
            self.unwatch()

        def enough() -> bool:
            return self._failing or (ready is not None and ready())

        while not (self.done or (ready is not None and ready())):
            if self._failing:
                self.cancel()
            self._engine.wait_for(self.generations, enough)

    def next_chunk(self) -> Chunk | None:
        """The next chunk that is there; None: none is. Of several candidates, the one that is furthest ahead."""
        if self.done:
            for candidate in self.candidates:
                candidate.flush()
        fullest = max(self.candidates, key=lambda candidate: len(candidate.chunks))
        return fullest.chunks.popleft() if fullest.chunks else None

    def result(self) -> Reply:
        """Once it is settled: the reply.

        Raises:
            BaseException: what ended the generation.
        """
        if self.error is not None:
            raise self.error
        if self.reply is None:
            raise AssertionError("a reply was settled without a result")
        return self.reply
