"""What a conversation was created with, what one call changes of it, and the prompts that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat.content import as_content
from causerie.chat.frozen_json import freeze
from causerie.chat.generic_tools import encode_generic
from causerie.chat.messages import Message, as_message
from causerie.chat.option_checks import CHECKS, require_known
from causerie.chat.options import SamplingOptions
from causerie.chat.response_format import as_response_format
from causerie.chat.tool_call import set_field
from causerie.chat.validation import without_old_thinking
from causerie.conversation.tool_offer import ToolOffer, as_toolbox
from causerie.errors import TemplateError, UnsupportedError

if TYPE_CHECKING:
    from causerie.chat.chat_template import Prompt
    from causerie.chat.content import ContentLike
    from causerie.chat.prompt import Encoded, PromptEncoder
    from causerie.chat.response_format import ResponseFormat
    from causerie.conversation.history import History
    from causerie.conversation.overflow import Overflow
    from causerie.conversation.transforms import HistoryTransform, InputTransform, OutputTransformLike

__all__ = ["Settings"]

# Options of the offer of tools, by their names in a call.
_OFFER_OPTIONS = {
    "tools": "tools", "tool_choice": "choice", "parallel_tool_calls": "parallel", "validate_calls": "validate",
}  # fmt: skip
_PROMPT_OPTIONS = (
    "response_format", "template_kwargs", "thinking", "replay_thinking", "tool_format", *_OFFER_OPTIONS,
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Everything of a conversation but its messages. Immutable: forks share it.

    Attributes:
        encoder: makes prompts with the conversation's template.
        sampling: options of the conversation.
        template_kwargs: variables for the template.
        thinking: whether the model is to think; None: as the template has it.
        offer: the tools.
        tool_format: how the model is told of tools and calls them: as its "template" does it, or in plain text,
            "generic".
        replay_thinking: whether the model is shown what it thought in earlier turns.
        response_format: what the reply has to be, besides text.
        overflow: what to do with a prompt that does not fit.
        input_transforms, output_transforms, history_transform: as for `Engine.conversation`, by no name but themselves.
    """

    encoder: PromptEncoder
    sampling: SamplingOptions
    template_kwargs: Mapping[str, Any]
    thinking: bool | None
    overflow: Overflow
    input_transforms: tuple[InputTransform, ...] = ()
    output_transforms: tuple[OutputTransformLike, ...] = ()
    history_transform: HistoryTransform | None = None
    response_format: ResponseFormat | None = None
    offer: ToolOffer = field(default_factory=ToolOffer)
    replay_thinking: bool = False
    tool_format: Literal["template", "generic"] = "template"

    def __post_init__(self) -> None:
        if self.tool_format not in {"template", "generic"}:
            raise ValueError(f'tool_format must be "template" or "generic", not {self.tool_format!r}')
        if not isinstance(self.replay_thinking, bool):
            raise TypeError(f"replay_thinking must be a bool, not {type(self.replay_thinking).__name__}")
        if not (self.thinking is None or isinstance(self.thinking, bool)):
            raise TypeError(f"thinking must be a bool, not {type(self.thinking).__name__}")
        if not isinstance(self.template_kwargs, Mapping):
            raise TypeError(f"template_kwargs must be a dict, not {type(self.template_kwargs).__name__}")
        set_field(self, "template_kwargs", freeze(self.template_kwargs))

    def with_options(self, options: Mapping[str, Any]) -> Settings:
        """For one call: its options win.

        Raises:
            TypeError, ValueError: an option is unknown, of the wrong type or out of range.
            SchemaError: the response format cannot be enforced.
        """
        if not options:
            return self
        require_known(options, (*CHECKS, *_PROMPT_OPTIONS))
        sampling = {name: value for name, value in options.items() if name not in _PROMPT_OPTIONS}
        changes = {name: options[name] for name in _PROMPT_OPTIONS if options.get(name) is not None}
        if "response_format" in changes:
            if options.get("grammar"):
                raise ValueError("a reply cannot have both a grammar and a response_format: give one of them")
            changes["response_format"] = as_response_format(changes["response_format"])
            sampling["grammar"] = changes["response_format"].grammar
        offer = {_OFFER_OPTIONS[name]: changes.pop(name) for name in _OFFER_OPTIONS if name in changes}
        if offer:
            if "tools" in offer:
                offer["tools"] = as_toolbox(offer["tools"])
            changes["offer"] = replace(self.offer, **offer)
        found = replace(self, sampling=SamplingOptions.of(sampling).over(self.sampling), **changes)
        return replace(found, template_kwargs={**self.template_kwargs, **found.template_kwargs})

    def user_message(self, content: ContentLike) -> Message:
        """What a user says, behind the input transforms; they are given text parts one by one."""
        message = as_message(Message("user", as_content(content)))
        if not self.input_transforms:
            return message
        if isinstance(message.content, str):
            return replace(message, content=self._transformed(message.content))
        parts = [
            {**part, "text": self._transformed(part["text"])} if part["type"] == "text" else part
            for part in message.content
        ]
        return replace(message, content=tuple(parts))

    def _transformed(self, text: str) -> str:
        for transform in self.input_transforms:
            text = transform(text)
        return text

    def encode(self, history: History, *, add_generation_prompt: bool = True, continue_last: bool = False) -> Encoded:
        """The prompt for a history, as the history transform shows it.

        Raises:
            TemplateError, ValueError: as `PromptEncoder.encode`.
        """
        if self.history_transform is not None:
            history = history.adopted(self.history_transform(history.messages))
        messages = history.messages if self.replay_thinking else without_old_thinking(history.messages)
        offer, template = self.offer, self.encoder.template
        options: dict[str, Any] = {
            "template_kwargs": self.template_kwargs,
            "thinking": self.thinking,
            "add_generation_prompt": add_generation_prompt,
            "continue_last": continue_last,
        }
        self.require_support()
        if self.tool_format == "generic":
            return encode_generic(
                self.encoder,
                messages,
                history.generated,
                tools=offer.tools.to_list(),
                callable_names=[tool.name for tool in offer.callable],
                tool_choice=offer.mode,
                parallel_tool_calls=offer.parallel is not False,
                **options,
            )
        several = template.capabilities["supports_parallel_tool_calls"] if offer.parallel is None else offer.parallel
        calling: dict[str, Any] = {"tool_choice": offer.mode, "parallel_tool_calls": several and bool(len(offer.tools))}
        encoded = self.encoder.encode(messages, history.generated, tools=offer.tools.to_list(), **calling, **options)
        return encoded if offer.only is None else replace(encoded, prompt=self._narrowed(encoded.prompt, calling))

    def require_support(self) -> None:
        """Raise if the tools cannot be offered.

        Raises:
            UnsupportedError, SchemaError: as `ToolOffer.require_support`.
        """
        if len(self.offer.tools):
            generic = self.tool_format == "generic"
            self.offer.require_support(generic or self.encoder.template.capabilities["supports_tools"])

    def schema_grammar(self) -> str:
        """llama.cpp's grammar for replies whose text follows a schema; "": it has none for this template's format."""
        kwargs = dict(self.template_kwargs)
        try:
            return self.encoder.template.apply(
                [Message("user", "?")], thinking=self.thinking, response_schema={"type": "object"}, **kwargs
            ).grammar
        except (UnsupportedError, TemplateError):
            return ""

    def _narrowed(self, prompt: Prompt, calling: Mapping[str, Any]) -> Prompt:
        """The prompt with the grammar and the parser for the one tool that has to be called; all are told of."""
        only = self.encoder.template.apply(
            [Message("user", "?")],
            tools=[tool.to_dict() for tool in self.offer.callable],
            thinking=self.thinking,
            **calling,
            **self.template_kwargs,
        )
        return replace(
            prompt,
            grammar=only.grammar,
            grammar_lazy=only.grammar_lazy,
            grammar_triggers=only.grammar_triggers,
            parser=only.parser,
            preserved_tokens=only.preserved_tokens,
        )
