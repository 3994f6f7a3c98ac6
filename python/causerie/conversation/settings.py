"""What a conversation was created with, and what one call changes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from causerie.chat.option_checks import CHECKS, require_known
from causerie.chat.options import SamplingOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from causerie.chat.messages import Message
    from causerie.chat.prompt import PromptEncoder
    from causerie.conversation.overflow import Overflow
    from causerie.conversation.transforms import OutputTransform

__all__ = ["Settings"]

_PROMPT_OPTIONS = ("template_kwargs", "thinking")


@dataclass(frozen=True)
class Settings:
    """Everything of a conversation but its messages. Immutable: forks share it.

    Attributes:
        encoder: makes prompts with the conversation's template.
        sampling: options of the conversation.
        template_kwargs: variables for the template.
        thinking: whether the model is to think; None: as the template has it.
        overflow: what to do with a prompt that does not fit.
        input_transforms, output_transform, history_transform: as for `Engine.conversation`.
    """

    encoder: PromptEncoder
    sampling: SamplingOptions
    template_kwargs: Mapping[str, Any]
    thinking: bool | None
    overflow: Overflow
    input_transforms: tuple[Callable[[str], str], ...]
    output_transform: Callable[[], OutputTransform] | None
    history_transform: Callable[[tuple[Message, ...]], Iterable[Message | Mapping[str, Any]]] | None

    def with_options(self, options: Mapping[str, Any]) -> Settings:
        """For one call: its options win.

        Raises:
            TypeError, ValueError: an option is unknown, of the wrong type or out of range.
        """
        if not options:
            return self
        require_known(options, (*CHECKS, *_PROMPT_OPTIONS))
        sampling = {name: value for name, value in options.items() if name not in _PROMPT_OPTIONS}
        thinking = options.get("thinking")
        if not (thinking is None or isinstance(thinking, bool)):
            raise TypeError(f"thinking must be a bool, not {type(thinking).__name__}")
        return replace(
            self,
            sampling=SamplingOptions.of(sampling).over(self.sampling),
            template_kwargs={**self.template_kwargs, **(options.get("template_kwargs") or {})},
            thinking=self.thinking if thinking is None else thinking,
        )
