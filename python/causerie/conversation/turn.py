"""A reply that is being generated, with its candidates: who may wait for it, and how it becomes part of the history."""

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

    Args:
        engine: where they are generated.
        candidates: the first one is the conversation's own.
        how: "new": the reply is a new message; "continue": it goes on with the last one.
        commit: joins it to the history, once, and leaves reply or error here.
    """

    def __init__(
        self,
        engine: TokenEngine,
        candidates: list[Candidate],
        how: Literal["new", "continue"],
        commit: Callable[[Turn], None],
    ) -> None:
        self._engine = engine
        self.candidates = candidates
        self.how = how
        self._commit = commit
        self.reply: Reply | None = None
        self.error: BaseException | None = None
        self.committed = False

    @property
    def generations(self) -> list[Generation]:
        """The candidates' generations."""
        return [candidate.generation for candidate in self.candidates]

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        for candidate in self.candidates:  # noqa: SIM110 - asked for every token
            if candidate.generation.finish_reason is None:
                return False
        return True

    @property
    def cancelled(self) -> bool:
        """Whether somebody wanted it to end."""
        return all(generation.cancelled for generation in self.generations)

    def abandon(self) -> None:
        """Nobody reads it any more. For finalizers: takes no lock and waits for nobody."""
        for generation in self.generations:
            generation.abandon()

    def cancel(self) -> None:
        """End it, from any thread."""
        for generation in self.generations:
            self._engine.cancel(generation)

    def ready(self) -> bool:
        """Whether a chunk can be read, or nothing more will come."""
        for candidate in self.candidates:
            if candidate.chunks:
                return True
        return self.done

    def wait(self, ready: Callable[[], bool] | None = None) -> None:
        """Wait until `ready()`, or the end of all; runs the engine's steps meanwhile."""
        while not (self.done or (ready is not None and ready())):
            running = [generation for generation in self.generations if not generation.done]
            if running:
                self._wait_for_any(running, ready)

    def _wait_for_any(self, running: list[Generation], ready: Callable[[], bool] | None) -> None:
        first, others = running[0], running[1:]

        def forward() -> None:
            for listener in tuple(first.listeners):
                listener()

        for other in others:
            other.listeners.append(forward)
        try:
            self._engine.wait(first, ready)
        finally:
            for other in others:
                other.listeners.remove(forward)

    def next_chunk(self) -> Chunk | None:
        """The next chunk that is there; None: none is. Candidates take turns by what came first."""
        if self.done:
            for candidate in self.candidates:
                candidate.flush()
        fullest = self.candidates[0]
        for candidate in self.candidates:
            if len(candidate.chunks) > len(fullest.chunks):
                fullest = candidate
        return fullest.chunks.popleft() if fullest.chunks else None

    def settle(self) -> None:
        """After the end: join the history, whatever ended it. Idempotent."""
        if not self.committed:
            self._commit(self)

    def finish(self) -> Reply:
        """After the end: the reply, which has joined the history.

        Raises:
            BaseException: what ended the generation; the history is as it was when it began.
        """
        self.settle()
        if self.error is not None:
            raise self.error
        if self.reply is None:
            raise AssertionError("a reply was committed without a result")
        return self.reply
