"""What one reply is made with: its grammar, its samplers, and what reads it. The one place where they are made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from causerie.chat.reply_grammar import ReplyGrammar, tools_grammar
from causerie.chat.reply_reading import bytes_reader, preserved_ids
from causerie.chat.sampling_chain import sampling_chain
from causerie.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.chat.options import SamplingOptions
    from causerie.chat.prompt import Encoded
    from causerie.chat.reply_reading import BytesReader
    from causerie.chat.sampling_chain import Choice
    from causerie.conversation.settings import Settings
    from causerie.llama.model import Model

__all__ = ["Answering"]


@dataclass(frozen=True)
class Answering:
    """How a reply is to be generated and read; all its candidates alike.

    Args:
        encoded: the prompt.
        settings: of this call.
        options: all options of this call.
        model: the model.
        begun: what of the reply is there already, for one that goes on.

    Raises:
        UnsupportedError: tools are offered together with a constraint on the text, or have to be called in a format of
            which llama.cpp has no grammar.
    """

    encoded: Encoded
    settings: Settings
    options: SamplingOptions
    model: Model
    begun: bytes = b""

    def __post_init__(self) -> None:
        _ = self.grammar

    @cached_property
    def grammar(self) -> ReplyGrammar | None:
        """What the reply has to follow."""
        offer, constraint = self.settings.offer, self.options.grammar
        if not offer.callable:
            return ReplyGrammar(constraint) if constraint else None
        if constraint:
            raise UnsupportedError(
                "a reply cannot both call tools and follow a grammar or response_format: give one, or "
                'tool_choice="none"'
            )
        required = offer.mode == "required"
        found = tools_grammar(self.encoded.prompt, [tool.to_dict() for tool in offer.callable], required=required)
        if required and found is None:
            raise UnsupportedError(
                "llama.cpp has no grammar for calls in this template's format, so that none can be required: give "
                'another template, or tool_format="generic"'
            )
        return found

    @cached_property
    def preserved(self) -> frozenset[int]:
        """Tokens whose text the reader has to see."""
        return preserved_ids(self.encoded.prompt, self.model.vocab)

    def choice(self, seed: int | None, undo: Callable[[Callable[[], object]], object]) -> Choice:
        """Samplers for one candidate; ``undo`` is given what frees them."""
        grammar = None if self.grammar is None else self.grammar.sampler(self.model.vocab)
        if grammar is not None:
            undo(grammar.close)
        choice = sampling_chain(self.options, self.model, seed=seed, grammar=grammar)
        undo(choice.close)
        choice.prime(self.encoded.ids)
        return choice

    def reader(self) -> BytesReader:
        """What reads one candidate."""
        offer = self.settings.offer
        return bytes_reader(
            self.encoded.prompt,
            self.options.stop or (),
            several=offer.parallel is not False,
            check=offer.check if len(offer.tools) else None,
            begun=self.begun,
        )
