"""The templates of an engine: a part of `Engine`."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from causerie.chat.chat_template import ChatTemplate
from causerie.chat.plain_template import PlainTemplate, TextTemplate
from causerie.chat.prompt import PromptEncoder
from causerie.engine import TokenEngine
from causerie.errors import TemplateError

if TYPE_CHECKING:
    from causerie.llama.model import Model

__all__ = ["KnowsTemplates", "TemplateLike"]

TemplateLike: TypeAlias = "ChatTemplate | TextTemplate | str | os.PathLike[str]"
"""A chat template, what writes messages as plain text, Jinja, or the path of a file of Jinja (not a str)."""


class KnowsTemplates(TokenEngine):
    """A token engine with a default template, and what makes prompts with it and with others."""

    def __init__(
        self, model: Model | str | os.PathLike[str], *, template: TemplateLike | None = None, **options: Any
    ) -> None:
        super().__init__(model, **options)
        self._default_template = template
        self._encoders: dict[str | None, tuple[ChatTemplate, PromptEncoder]] = {}
        self._encoders_lock = threading.Lock()

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

    def is_default(self, encoder: PromptEncoder) -> bool:
        """Whether it is that of the default template."""
        with self._encoders_lock:
            default = self._encoders.get(None)
        return default is not None and default[1] is encoder

    def _template_and_encoder(self, template: TemplateLike | None) -> tuple[ChatTemplate, PromptEncoder]:
        self.require_open()
        if isinstance(template, TextTemplate):
            template = PlainTemplate(template)
        if isinstance(template, os.PathLike):  # each time anew: the file may have changed
            template = self._from_file(template)
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
        if isinstance(template, os.PathLike):
            return self._from_file(template)
        return ChatTemplate(template, **self._tokens())

    def _from_file(self, path: os.PathLike[str]) -> ChatTemplate:
        return ChatTemplate.from_file(path, **self._tokens())

    def _tokens(self) -> dict[str, str]:
        vocab = self.model.vocab
        texts = ("" if token is None else vocab.text(token) for token in (vocab.bos, vocab.eos))
        return dict(zip(("bos_token", "eos_token"), texts, strict=True))
