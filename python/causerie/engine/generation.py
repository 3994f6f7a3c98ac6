"""One request to the engine: evaluate a prompt, then choose tokens one after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from causerie.errors import ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from causerie.engine._slots import Slot
    from causerie.engine.sequence import Sequence
    from causerie.llama.step import Chooser, Chosen

__all__ = ["FinishReason", "Forcing", "Generation", "TokenSink", "prompt_ids"]

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "error"]


def prompt_ids(prompt: Iterable[int], n_vocab: int, n_ctx: int, *, more: bool) -> list[int]:
    """The ids of a prompt, checked.

    Args:
        prompt: the ids.
        n_vocab: ids there are.
        n_ctx: tokens of the longest sequence.
        more: whether a token is to be chosen behind it.

    Raises:
        ContextOverflowError: it leaves no room for a token; `.needed` and `.available`.
        ValueError: it is empty or holds ids out of range.
    """
    ids = [int(token) for token in prompt]
    if not ids:
        raise ValueError("the prompt is empty")
    if min(ids) < 0 or max(ids) >= n_vocab:
        raise ValueError(f"token ids must be in 0..{n_vocab - 1}")
    needed = len(ids) + more
    if needed > n_ctx:
        raise ContextOverflowError(
            f"the prompt needs {needed} tokens of context, there are {n_ctx}",
            needed=needed, available=n_ctx, kind="too_long",
        )  # fmt: skip
    return ids


class TokenSink(Protocol):
    """Takes the tokens of a generation, on whichever thread leads the engine; it must be quick and must not wait."""

    def token(self, chosen: Chosen) -> bool:
        """One more token; True: enough, it was the last. An exception ends this generation and no other."""
        ...


class Forcing(Protocol):
    """Puts tokens into a generation that nobody has chosen, on whichever thread leads the engine.

    What it raises ends this generation and no other.
    """

    @property
    def ahead(self) -> int | None:
        """How many tokens may be chosen before it hears of the first: it puts none in before the last of them.

        At least 1; None: any number.
        """

    def begin(self) -> tuple[int, ...]:
        """Ids that come first."""

    def after(self, token: int) -> tuple[int, ...]:
        """Ids that come behind this token, which was chosen."""


class Generation:
    """A prompt on its way through the engine, and what was generated behind it.

    Written by whoever leads the engine; read by anyone.

    Attributes:
        sequence: where it runs.
        target: ids of the prompt and of all tokens generated so far: what the memory shall hold before the next choice.
        n_prompt: how many of them are the prompt.
        cached: prompt tokens that did not have to be evaluated.
        evaluated: prompt tokens that were; cached + evaluated == n_prompt once a token was chosen.
        finish_reason: why it ended; None while it runs.
        error: what ended it, if finish_reason is "error".
        watched: whether somebody reads its tokens as they come. Where nobody does, several may be chosen in one go, and
            only its end is told to `listeners`.
        context_full: whether it ended because the context has no room for one more token.
        submitted, started, first_token, ended: `time.perf_counter` of these moments; 0.0: not yet.
    """

    def __init__(
        self,
        sequence: Sequence,
        prompt: list[int],
        chooser: Chooser | None,
        *,
        max_tokens: int | None,
        sink: TokenSink | None,
        forcing: Forcing | None,
        number: int,
    ) -> None:
        self.sequence = sequence
        self.target = prompt
        self.n_prompt = len(prompt)
        self.chooser = chooser
        self.max_tokens = max_tokens
        self.sink = sink
        self.forcing = forcing
        self.number = number
        self.ahead: int | None = None  # how many tokens may be chosen before `forcing` hears of the first
        self.cached = 0
        self.evaluated = 0
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None
        self.context_full = False
        self.submitted = time.perf_counter()
        self.started = self.first_token = self.ended = 0.0
        self.placed = False  # whether its prompt has a slot; taken back when it is preempted
        self.alone = False  # after a failed step: the next one is for this generation alone
        self.waits_for: tuple[Generation, int] | None = None  # another one is evaluating what this one needs first
        self.cancelled = False
        self.watched = True
        self.listeners: list[Callable[[], None]] = []  # called under the lock after every change that is told

    @property
    def slot(self) -> Slot:
        """Its place in the context, while it is `placed`."""
        slot = self.sequence.slot
        if slot is None:
            raise AssertionError("a placed generation has no slot")
        return slot

    @property
    def tokens(self) -> list[int]:
        """The generated ids so far, without the one that ends a turn."""
        return self.target[self.n_prompt :]

    @property
    def n_generated(self) -> int:
        """How many tokens were generated."""
        return len(self.target) - self.n_prompt

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None

    def abandon(self) -> None:
        """Nobody wants the rest: the next step leaves it out. May be called from anywhere, a finalizer included."""
        self.cancelled = True

    def __repr__(self) -> str:
        state = self.finish_reason or ("running" if self.placed else "queued")
        return f"<Generation {self.number}: {self.n_prompt}+{self.n_generated} tokens, {state}>"
