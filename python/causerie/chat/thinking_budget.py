"""How long a reply may think: behind so many tokens, the end of its thinking is put in.

llama.cpp's server has a sampler for this (common/reasoning-budget). It knows the marks around the thinking as sequences
of tokens, and takes them for marks wherever they come. Here the text counts, however it was cut into tokens, and only
what is read as thinking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.chat.utf8 import Utf8Assembler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from causerie.chat.chat_template import Prompt
    from causerie.llama.model import Model
    from causerie.llama.sampler import Section

__all__ = ["ThinkingBudget", "ThinkingLimit"]

_MOST_WAITING = 3  # tokens that may complete a character


@dataclass(frozen=True)
class ThinkingLimit:
    """What a `ThinkingBudget` is made of, in this process or another one.

    Attributes:
        budget: so many tokens, >= 0.
        section: the marks.
        closing: ids that are put in: what ends the thinking.
        prompt: knows what is read as thinking.
        before: ids of the reply that are there already.
        message: ids that are put in before the mark, as a last thought.
    """

    budget: int
    section: Section
    closing: tuple[int, ...]
    prompt: Prompt
    before: tuple[int, ...] = ()
    message: tuple[int, ...] = ()

    def make(self, model: Model) -> ThinkingBudget:
        """What counts the tokens of one reply.

        Args:
            model: whose vocabulary it is.
        """
        made = ThinkingBudget(
            self.budget, self.section, self.closing, model.vocab.piece, self._reads_as_thinking, self.message
        )
        made.hear(self.before)
        return made

    def _reads_as_thinking(self, begun: str) -> bool:
        """Whether what follows this beginning of a reply is thinking."""
        return self.prompt.parse(f"{begun}Hm.", partial=True).thinking.endswith("Hm.")


class ThinkingBudget:
    """Counts the tokens between the marks of one reply, and tells when the thinking has to end. A `Forcing`.

    Args:
        budget: so many, >= 0.
        section: the marks.
        closing: ids that say the mark which ends the thinking.
        piece: the bytes of a token, those of control tokens too.
        is_thinking: whether what comes behind this beginning of a reply is thinking.
        message: ids that come before the mark, unless it has begun.
    """

    def __init__(
        self,
        budget: int,
        section: Section,
        closing: tuple[int, ...],
        piece: Callable[[int], bytes],
        is_thinking: Callable[[str], bool],
        message: tuple[int, ...] = (),
    ) -> None:
        self._left = budget
        self._opening = section.opening.encode()
        self._closings = tuple(text.encode() for text in section.closings)
        self._closing = closing
        self._last_words = (*message, *closing)
        self._longest = max(len(b"".join(map(piece, self._last_words))), *map(len, (self._opening, *self._closings)))
        self._piece = piece
        self._is_thinking = is_thinking
        self._said: list[bytes] = []
        self._tail = b""  # what may be the beginning of a mark
        self._inside = section.begun
        self._over = False
        self._waited = 0

    @property
    def ahead(self) -> int | None:
        """See `Forcing`."""
        if self._over:
            return None
        return max(1, self._left + (not self._inside))

    def hear(self, ids: Iterable[int]) -> None:
        """What of the reply is there already."""
        for token in ids:
            self._read(token)

    def begin(self) -> tuple[int, ...]:
        """See `Forcing`."""
        return self._due()

    def after(self, token: int) -> tuple[int, ...]:
        """See `Forcing`."""
        if self._over:
            return ()
        self._read(token)
        return self._due()

    def _read(self, token: int) -> None:
        piece = self._piece(token)
        self._said.append(piece)
        self._tail += piece
        passed = False
        while self._passed_mark():
            passed = True
        if self._inside and not passed:
            self._left -= 1
        self._tail = self._tail[-self._longest :]

    @property
    def _marks(self) -> tuple[bytes, ...]:
        return self._closings if self._inside else (self._opening,)

    def _passed_mark(self) -> bool:
        """Go to behind the next mark, if it is there."""
        ends = [place + len(mark) for mark in self._marks if (place := self._tail.find(mark)) >= 0]
        if not ends or self._over:
            return False
        self._tail = self._tail[min(ends) :]
        if self._inside:
            self._inside = False
        else:
            self._inside = self._is_thinking(self._text())
            self._over = not self._inside  # it is in the answer, where no thinking begins
        return True

    def _text(self) -> str:
        """The reply, to the end of the mark that was found last."""
        whole = b"".join(self._said)
        return whole[: len(whole) - len(self._tail)].decode("utf-8", "replace")

    def _due(self) -> tuple[int, ...]:
        """What has to be put in now, behind a whole character."""
        if not self._inside or self._left > 0:
            return ()
        if self._waited < _MOST_WAITING and _is_unfinished(self._tail):
            self._waited += 1
            return ()
        ids = self._rest()
        self._said.extend(map(self._piece, ids))
        self._inside, self._tail = False, b""
        return ids

    def _rest(self) -> tuple[int, ...]:
        """What is not there yet of the message and the mark, or of the mark."""
        for ids in (self._last_words, self._closing):
            pieces = [self._piece(token) for token in ids]
            for count in range(len(pieces) - 1, 0, -1):
                if self._tail.endswith(b"".join(pieces[:count])):
                    return ids[count:]
        return self._last_words


def _is_unfinished(tail: bytes) -> bool:
    """Whether it ends inside of a character."""
    assembler = Utf8Assembler()
    assembler.feed(tail[-4:])
    return bool(assembler.pending)
