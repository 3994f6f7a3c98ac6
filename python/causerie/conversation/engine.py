"""The engine that people use: the token engine, with templates and conversations."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from causerie.chat.chat_template import ChatTemplate
from causerie.chat.options import SamplingOptions
from causerie.chat.plain_template import PlainTemplate, TextTemplate
from causerie.chat.prompt import PromptEncoder
from causerie.conversation._pump import Pump
from causerie.conversation.conversation import Conversation
from causerie.conversation.history import History, examples_as_messages
from causerie.conversation.overflow import as_overflow
from causerie.conversation.settings import Settings
from causerie.conversation.tool_offer import ToolOffer, as_toolbox
from causerie.conversation.transforms import as_history_transform, as_input_transforms, as_output_transforms
from causerie.engine import TokenEngine
from causerie.errors import TemplateError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from causerie.chat.messages import Message
    from causerie.chat.tools import ToolLike
    from causerie.conversation.overflow import Overflow
    from causerie.conversation.transforms import HistoryTransform, InputTransform, OutputTransformLike
    from causerie.llama.model import Model

__all__ = ["Engine", "TemplateLike"]

TemplateLike: TypeAlias = ChatTemplate | TextTemplate | str
"""A chat template, what writes messages as plain text, or Jinja."""


class Engine(TokenEngine):
    """Serves any number of conversations with one model, from any thread or task.

    Args:
        model: an alias ("smollm2"), a path, "hf:owner/repo:file", or a loaded `llama.Model`.
        sampling: options for all conversations: `SamplingOptions`, or a mapping of their names.
        template: a chat template in Jinja instead of the model's own, or a `TextTemplate` such as `RolePrefix`.
        **options: as for `TokenEngine`: n_ctx, max_resident, n_threads, ...

    Raises:
        ModelLoadError, OutOfMemoryError, UnsupportedError, TypeError, ValueError: as `TokenEngine` and
            `SamplingOptions`.
        TemplateError: the template is malformed.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        sampling: SamplingOptions | Mapping[str, Any] | None = None,
        template: TemplateLike | None = None,
        **options: Any,
    ) -> None:
        self.sampling = SamplingOptions.of(sampling)
        super().__init__(model, **options)
        self._encoders: dict[str | None, tuple[ChatTemplate, PromptEncoder]] = {}
        self._encoders_lock = threading.Lock()
        self._conversations = count(1)
        self._default_template = template
        self.pump = Pump()
        if template is not None:
            try:
                self.encoder(None)
            except BaseException:
                self.close()
                raise

    @property
    def template(self) -> ChatTemplate:
        """The chat template of conversations that are given none.

        Raises:
            TemplateError: the model has none.
        """
        return self._template_and_encoder(None)[0]

    def encoder(self, template: TemplateLike | None) -> PromptEncoder:
        """What turns histories into tokens with a template; None: the default one."""
        return self._template_and_encoder(template)[1]

    def _template_and_encoder(self, template: TemplateLike | None) -> tuple[ChatTemplate, PromptEncoder]:
        self.require_open()
        if isinstance(template, TextTemplate):
            template = PlainTemplate(template)
        key = template.source if isinstance(template, ChatTemplate) else template
        with self._encoders_lock:
            if key not in self._encoders:
                made = self._made(self._default_template if template is None else template)
                self._encoders[key] = made, PromptEncoder(made, self.model.vocab)
            return self._encoders[key]

    def _made(self, template: TemplateLike | None) -> ChatTemplate:
        if isinstance(template, TextTemplate):
            return PlainTemplate(template)
        if isinstance(template, ChatTemplate):
            return template
        if template is None:
            if self.model.chat_template() is None:
                raise TemplateError(
                    "the model's file has no chat template: give one in Jinja, or causerie.RolePrefix(), as "
                    "Engine(..., template=...) or engine.conversation(template=...)"
                )
            return ChatTemplate.from_model(self.model)
        vocab = self.model.vocab
        bos, eos = ("" if token is None else vocab.text(token) for token in (vocab.bos, vocab.eos))
        return ChatTemplate(template, bos_token=bos, eos_token=eos)

    def conversation(
        self,
        system: str | None = None,
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        examples: Iterable[tuple[str, str] | Message | Mapping[str, Any]] = (),
        sampling: SamplingOptions | Mapping[str, Any] | None = None,
        template: TemplateLike | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        replay_thinking: bool = False,
        tools: Iterable[ToolLike] = (),
        tool_format: Literal["template", "generic"] = "template",
        max_tokens: int | None = None,
        overflow: Overflow = "error",
        input_transforms: str | InputTransform | Sequence[str | InputTransform] = (),
        output_transform: str | OutputTransformLike | Sequence[str | OutputTransformLike] | None = None,
        history_transform: str | HistoryTransform | None = None,
        name: str = "",
    ) -> Conversation:
        """A new conversation. Nothing is evaluated before it is needed.

        Args:
            system: what the model is told first.
            messages: what was said before: `Message` objects or dicts in the OpenAI shape; may begin with the system
                text.
            examples: pairs of what a user says and what the assistant answers, or messages; they follow the system
                text, and stay when turns are dropped.
            sampling: options for this conversation; what they do not set comes from the engine, then the model's file.
            template: a chat template instead of the engine's.
            template_kwargs: variables for the template.
            thinking: whether the model is to think first, where its template knows about it.
            replay_thinking: whether the model is shown what it thought in earlier turns, where its template does so.
                Otherwise it sees only what it thought since the last user message.
            tools: what the model may ask to be called: typed functions, `Tool`s or dicts in the OpenAI shape.
            tool_format: "template": tools are offered and called as the model's template has it; "generic": in plain
                text, for templates that take no tools.
            max_tokens: longest reply; short for the option of that name.
            overflow: what to do with a prompt that does not fit: "error", "trim" (drops the oldest turns), or a
                function that is given the conversation, the pending message included, and returns the messages to go
                on with.
            input_transforms: applied to what the user says, one after the other; the history has the result. A str here
                and below is the name of one that was registered (`register_transform`).
            output_transform: changes a reply's text on its way out: one that is supplied (`KeywordRemover`, for
                example), what makes an `OutputTransform` for each reply, or a generator function that is given chunks
                and gives others; or several, one behind the other. The history keeps what the model wrote.
            history_transform: what the model is shown instead of the history, which stays as it is.
            name: for people, in `cache_map`.

        Raises:
            TemplateError: the model has no chat template, or it refuses the messages.
            TypeError, ValueError, ToolError: an argument or a message is wrong.
            UnsupportedError: the template takes no tools.
        """
        head: list[Message | Mapping[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        fixed = [*head, *examples_as_messages(examples)]
        given = list(messages)
        if not fixed and given and _role(given[0]) == "system":
            fixed, given = given[:1], given[1:]
        history = History.of([*fixed, *given], head=len(fixed))
        own = SamplingOptions.of(sampling)
        if max_tokens is not None:
            own = SamplingOptions(max_tokens=max_tokens).over(own)
        settings = Settings(
            encoder=self.encoder(template),
            sampling=own,
            template_kwargs={} if template_kwargs is None else template_kwargs,
            thinking=thinking,
            overflow=as_overflow(overflow),
            input_transforms=as_input_transforms(input_transforms),
            output_transforms=as_output_transforms(output_transform),
            history_transform=as_history_transform(history_transform),
            offer=ToolOffer(as_toolbox(tools)),
            replay_thinking=replay_thinking,
            tool_format=tool_format,
        )
        settings.require_support()
        if history.messages:
            # What the template refuses is refused here; the history transform waits for something to reply to.
            replace(settings, history_transform=None).encode(history)
        name = name or f"conversation {next(self._conversations)}"
        return Conversation(self, self.sequence(name), settings, history)


def _role(message: Message | Mapping[str, Any]) -> object:
    return message.get("role") if isinstance(message, dict) else getattr(message, "role", None)
