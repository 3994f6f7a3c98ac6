"""A conversation at one moment, apart from any engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from causerie.chat.chat_template import ChatTemplate
from causerie.chat.plain_template import PlainTemplate, TextTemplate
from causerie.errors import StateError

if TYPE_CHECKING:
    from causerie.chat.messages import Message
    from causerie.chat.prompt import PromptEncoder
    from causerie.conversation.engine import Engine
    from causerie.conversation.history import History
    from causerie.conversation.reply import Report
    from causerie.conversation.settings import Settings
    from causerie.engine import Adapter, SequenceState

__all__ = ["OwnTemplate", "Snapshot", "TemplateText", "check_model", "encoder_for", "own_template"]


@dataclass(frozen=True)
class TemplateText:
    """A chat template in Jinja, as text.

    Attributes:
        source: the Jinja text.
        bos_token, eos_token: text of those tokens.
    """

    source: str
    bos_token: str = ""
    eos_token: str = ""


OwnTemplate: TypeAlias = TemplateText | TextTemplate
"""A template that is not the engine's."""


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """A conversation at one moment: made by `Conversation.snapshot`, for `Engine.restore`, as often as you like.

    Nothing of it changes, whatever becomes of the conversation or its engine. Functions are referred to, not copied.

    Attributes:
        name: the conversation's.
        model: `Model.fingerprint`, and the model in words.
        history, settings: messages and options.
        template: its own one; None: that of the engine it is restored in.
        report: figures of the last reply.
        context_full: whether that one ended because the context was full.
        adapters: LoRA adapters it is evaluated with.
        state: what is evaluated of it; None: nothing.
    """

    name: str
    model: tuple[str, str]
    history: History
    settings: Settings
    template: OwnTemplate | None
    report: Report | None = None
    context_full: bool = False
    adapters: tuple[Adapter, ...] = ()
    state: SequenceState | None = field(default=None)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history."""
        return self.history.messages

    @property
    def nbytes(self) -> int:
        """Bytes of what is evaluated."""
        return 0 if self.state is None else self.state.nbytes

    def settings_for(self, engine: Engine) -> Settings:
        """The options, with a template that belongs to an engine.

        Raises:
            StateError: the engine has another model; `.expected` and `.found`.
            TemplateError: the engine has no template, and it needs one.
        """
        check_model(engine, self.model)
        return replace(self.settings, encoder=encoder_for(engine, self.template))

    def __repr__(self) -> str:
        evaluated = 0 if self.state is None else len(self.state)
        return f"<Snapshot of {self.name!r}: {len(self.messages)} messages, {evaluated} tokens evaluated>"

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("a snapshot refers to functions and a template: Conversation.save writes a file")


def check_model(engine: Engine, model: tuple[str, str]) -> None:
    """StateError if an engine has another model."""
    mine = engine.model.fingerprint, engine.model.desc
    if mine[0] != model[0]:
        raise StateError(
            f"this conversation is with another model: {model[1]} ({model[0]}); the engine has {mine[1]} ({mine[0]})",
            expected=mine[0],
            found=model[0],
        )


def own_template(engine: Engine, settings: Settings) -> OwnTemplate | None:
    """The template of a conversation, if it is not the engine's."""
    encoder = settings.encoder
    if engine.is_default(encoder):
        return None
    template: ChatTemplate = encoder.template
    if isinstance(template, PlainTemplate):
        return template.text_template
    return TemplateText(template.source, template.bos_token, template.eos_token)


def encoder_for(engine: Engine, template: OwnTemplate | None) -> PromptEncoder:
    """What makes prompts in an engine, with its own template or another one.

    Raises:
        TemplateError: the engine has none, or the other one is malformed.
    """
    if isinstance(template, TemplateText):
        made = ChatTemplate(template.source, bos_token=template.bos_token, eos_token=template.eos_token)
        return engine.encoder(made)
    return engine.encoder(template)
