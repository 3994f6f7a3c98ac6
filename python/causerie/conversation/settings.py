"""What a conversation was created with, what one call changes of it, and the prompts that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from causerie.chat.content import as_content
from causerie.chat.frozen_json import freeze
from causerie.chat.messages import Message, as_message
from causerie.chat.option_checks import CHECKS, require_known
from causerie.chat.options import SamplingOptions
from causerie.chat.response_format import as_response_format
from causerie.chat.tool_call import set_field

if TYPE_CHECKING:
    from causerie.chat.content import ContentLike
    from causerie.chat.prompt import Encoded, PromptEncoder
    from causerie.chat.response_format import ResponseFormat
    from causerie.conversation.history import History
    from causerie.conversation.overflow import Overflow
    from causerie.conversation.transforms import HistoryTransform, InputTransform, OutputTransformLike

__all__ = ["Settings"]

_PROMPT_OPTIONS = ("response_format", "template_kwargs", "thinking")


@dataclass(frozen=True)
class Settings:
    """Everything of a conversation but its messages. Immutable: forks share it.

    Attributes:
        encoder: makes prompts with the conversation's template.
        sampling: options of the conversation.
        template_kwargs: variables for the template.
        thinking: whether the model is to think; None: as the template has it.
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

    def __post_init__(self) -> None:
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
        return self.encoder.encode(
            history.messages,
            history.generated,
            add_generation_prompt=add_generation_prompt,
            continue_last=continue_last,
            template_kwargs=self.template_kwargs,
            thinking=self.thinking,
        )
