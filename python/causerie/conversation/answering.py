"""What one reply is made with: its grammar, its samplers, and what reads it. The one place where they are made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from causerie.chat.choosing import ChooserRecipe
from causerie.chat.generic_tools import GenericPrompt
from causerie.chat.messages import Message
from causerie.chat.reply_grammar import ReplyGrammar, answer_grammar, thinking_section, tools_grammar
from causerie.chat.reply_reading import PlainReader, bytes_reader, is_plain, preserved_ids
from causerie.chat.text_ids import text_ids
from causerie.chat.thinking_budget import ThinkingLimit
from causerie.conversation.constraint import Constraint
from causerie.errors import TemplateError, UnsupportedError

if TYPE_CHECKING:
    from causerie.chat.chat_template import Prompt
    from causerie.chat.options import SamplingOptions
    from causerie.chat.prompt import Encoded
    from causerie.chat.reply_reading import BytesReader
    from causerie.conversation.constraint import Begun
    from causerie.conversation.settings import Settings
    from causerie.llama.model import Model

__all__ = ["Answering"]


def _is_read_as_text(prompt: Prompt) -> bool:
    """Whether a reply that is nothing but a text is read as that text."""
    try:
        return prompt.parse("A text.") == Message("assistant", "A text.")
    except TemplateError:
        return False


@dataclass(frozen=True)
class Answering:
    """How a reply is to be generated and read; all its candidates alike.

    Args:
        encoded: the prompt.
        settings: of this call.
        options: all options of this call.
        model: the model.
        goes_on: whether the reply goes on with the last message.
        unfinished: the bytes of a character at the end of that message which are only its beginning.
        begun: what that message has to follow as a whole.

    Raises:
        UnsupportedError: tools are offered together with a constraint on the text, or have to be called in a format of
            which llama.cpp has no grammar; thinking is limited in a format that has no marks around it.
    """

    encoded: Encoded
    settings: Settings
    options: SamplingOptions
    model: Model
    goes_on: bool = False
    unfinished: bytes = b""
    begun: Begun | None = None

    def __post_init__(self) -> None:
        _ = self.grammar
        self.thinking_limit()

    @cached_property
    def grammar(self) -> ReplyGrammar | None:
        """What the reply has to follow."""
        offer, constraint = self.settings.offer, self.options.grammar
        if not offer.callable:
            if self.begun is not None:
                return self.begun.constraint.grammar
            return self._constraint(constraint) if constraint else self._without_calls
        if constraint or self.begun is not None:
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

    def _constraint(self, gbnf: str) -> ReplyGrammar:
        """What makes the text follow a grammar, and leaves the thinking before it free."""
        prompt = self.encoded.prompt
        if self.goes_on or is_plain(prompt):
            return ReplyGrammar(gbnf)
        of_schema = self.settings.schema_grammar()
        found = answer_grammar(prompt, gbnf, of_schema) if of_schema else None
        if found is None and self.settings.thinking is not True and _is_read_as_text(prompt):
            return ReplyGrammar(gbnf)
        if found is None:
            raise UnsupportedError(
                "this template's format has no place for a grammar or response_format: turn thinking off "
                "(thinking=False), or give another template"
            )
        return found

    @property
    def _without_calls(self) -> ReplyGrammar | None:
        """The grammar of a reply that must not call the tools it knows of, where the format has one."""
        prompt = self.encoded.prompt
        return ReplyGrammar(prompt.grammar) if isinstance(prompt, GenericPrompt) and prompt.grammar else None

    def _grammar_begun(self) -> tuple[int, ...]:
        """The beginning of the message that the grammar has to have seen; a new constraint is on the rest."""
        if self.begun is not None:
            return self.begun.ids
        if not self.goes_on or not self.settings.offer.callable:
            return ()
        ids = text_ids(self.model.vocab, self.encoded.begun or "", inside=True)
        return self.encoded.begun_ids or tuple(ids)

    @property
    def constraint(self) -> Constraint | None:
        """What the text follows, to be remembered with it."""
        if self.begun is not None:
            return self.begun.constraint
        if not self.options.grammar or self.grammar is None:
            return None
        return Constraint(self.grammar, self.settings.response_format)

    @property
    def text_before(self) -> str:
        """What the reader does not tell of a text that its constraint is on."""
        return self.begun.text if self.begun is not None and self._is_text else ""

    def thinking_limit(self) -> ThinkingLimit | None:
        """What ends the thinking of a candidate in time; None: nothing has to."""
        budget, prompt = self.options.thinking_budget, self.encoded.prompt
        if budget is None or self._is_text:
            return None
        section = thinking_section(prompt)
        if section is None:
            if not self.settings.encoder.template.capabilities["supports_thinking"]:
                return None
            raise UnsupportedError(
                "this template's format has no mark at the end of its thinking that could be put in: leave "
                "thinking_budget out, or give another template"
            )
        vocab = self.model.vocab
        message = self.options.thinking_budget_message or ""
        if any(mark and mark in message for mark in (section.opening, *section.closings)):
            raise ValueError("a thinking_budget_message cannot hold a mark that begins or ends the thinking")
        closing = text_ids(vocab, prompt.thinking_end_tags[0], trusted=True, inside=True)
        ids, text = self.before
        before = ids or text_ids(vocab, text.decode("utf-8", "replace"), inside=True)
        # Where a reply is read, its prompt does not matter: it need not go to another process.
        return ThinkingLimit(
            budget, section, tuple(closing), replace(prompt, text="", grammar=""), tuple(before),
            tuple(text_ids(vocab, message, inside=True)),
        )  # fmt: skip

    @cached_property
    def preserved(self) -> frozenset[int]:
        """Tokens whose text the reader has to see."""
        return preserved_ids(self.encoded.prompt, self.model.vocab)

    @property
    def before(self) -> tuple[tuple[int, ...], bytes]:
        """What of the message is there already for a reader: ids and bytes; of a text only an unfinished character."""
        return ((), self.unfinished) if self._is_text else (self.encoded.begun_ids, self._begun())

    def recipe(self, seed: int | None) -> ChooserRecipe:
        """How one candidate's tokens are chosen."""
        return ChooserRecipe(self.options, seed, self.grammar, self._grammar_begun())

    def reader(self) -> BytesReader:
        """What reads one candidate."""
        offer, prompt, stops = self.settings.offer, self.encoded.prompt, self.options.stop or ()
        if self._is_text:
            return PlainReader(stops, prompt.stops, self.unfinished)
        check = offer.check if len(offer.tools) else None
        return bytes_reader(prompt, stops, several=offer.parallel is not False, check=check, begun=self._begun())

    @property
    def _is_text(self) -> bool:
        """Whether it goes on with what is text and nothing else."""
        return self.goes_on and (self.encoded.begun is None or is_plain(self.encoded.prompt))

    def _begun(self) -> bytes:
        """The beginning of the message, as its ids say it."""
        if not self.encoded.begun_ids:
            return (self.encoded.begun or "").encode("utf-8", "replace")
        piece = self.model.vocab.piece
        return b"".join(
            piece(token, special=token in self.preserved, lstrip=int(not place))
            for place, token in enumerate(self.encoded.begun_ids)
        )
