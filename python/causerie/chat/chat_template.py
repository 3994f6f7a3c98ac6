"""A model's chat template: messages in, the prompt's text and what the reply will look like out. Needs no weights."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causerie.chat.messages import Message, as_messages
from causerie.chat.parsing import ReplyParser, parse_reply
from causerie.errors import TemplateError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Self

    from causerie.chat.parsing import ReplyReader
    from causerie.llama.model import Model
    from causerie.llama.template import Template

__all__ = ["ChatTemplate", "Prompt"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a template makes of messages.

    Attributes:
        text: the prompt. Its control tokens cannot be told from such text in a message: tokenise it only where every
            message is trusted, and otherwise let `PromptEncoder` make the ids.
        grammar: GBNF that the reply follows, "" for none.
        stops: strings that end the reply.
        format: llama.cpp's name for the way the reply is to be read.
        generation_prompt: the end of ``text`` that begins the reply; "" if no reply was asked for.
        preserved_tokens: texts of tokens that must come out as they are for the reply to be read.
        grammar_lazy: whether the grammar holds only from a trigger on.
        grammar_triggers: the triggers: dicts with "type", "value" and "token", as llama.cpp numbers them.
        parser: llama.cpp's parser for the reply, in its own notation.
        supports_thinking: whether the template knows about thinking.
        thinking_start_tag, thinking_end_tags: what surrounds thinking in the reply; "" and () where unknown.
    """

    text: str
    grammar: str = ""
    stops: tuple[str, ...] = ()
    format: str = ""
    generation_prompt: str = ""
    preserved_tokens: tuple[str, ...] = ()
    grammar_lazy: bool = False
    grammar_triggers: tuple[Mapping[str, Any], ...] = ()
    parser: str = ""
    supports_thinking: bool = False
    thinking_start_tag: str = ""
    thinking_end_tags: tuple[str, ...] = ()

    def parse(self, text: str, partial: bool = False) -> Message:
        """A reply to this prompt as a message: content, thinking, tool calls.

        For a reply that is still arriving see `ReplyParser`.

        Args:
            text: what was generated behind the prompt, control tokens among `preserved_tokens` included.
            partial: ``text`` is only a beginning: what may have begun something else is held back, and a call that is
                not complete is left out.

        Raises:
            TypeError: ``text`` is not a str.
            TemplateError: it does not fit the format, or a call in it is malformed or breaks off.
        """
        return parse_reply(self, text, partial=partial)

    @property
    def grammar_begins(self) -> str:
        """What of ``text`` the grammar, unless it is lazy, wants to see before the reply."""
        return self.generation_prompt

    def reply_parser(self) -> ReplyReader:
        """What reads a reply to this prompt while it arrives."""
        return ReplyParser(self)


class ChatTemplate:
    """A Jinja chat template, run by llama.cpp's own engine. Thread-safe.

    Args:
        source: the Jinja text.
        bos_token, eos_token: text of those tokens, for templates that use them.

    Raises:
        TypeError: ``source`` is not a str.
        TemplateError: it is not valid Jinja.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        from causerie.llama.template import Template

        self._template: Template = Template(source, bos_token=bos_token, eos_token=eos_token)

    @classmethod
    def from_model(cls, model: Model, name: str | None = None) -> ChatTemplate:
        """The template in a model's file (``vocab_only=True`` is enough to load).

        Args:
            model: the model.
            name: a named template such as "tool_use"; None: the default one.

        Raises:
            TemplateError: the file has no such template.
        """
        from causerie.llama.template import Template

        self = cls.__new__(cls)
        self._template = Template.from_model(model, name)
        return self

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, bos_token: str = "", eos_token: str = "") -> ChatTemplate:
        """The template in a file of Jinja, UTF-8.

        Args:
            path: the file.
            bos_token: as for `ChatTemplate`.
            eos_token: as for `ChatTemplate`.

        Raises:
            TemplateError: the file cannot be read, is not UTF-8, or is not valid Jinja.
        """
        name = os.fspath(path)
        try:
            source = Path(path).read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise TemplateError(f"the chat template {name!r} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise TemplateError(f"the chat template {name!r} is not UTF-8: byte {error.start}") from error
        try:
            return cls(source, bos_token=bos_token, eos_token=eos_token)
        except TemplateError as error:
            raise TemplateError(f"{name!r}: {error}") from error

    @property
    def source(self) -> str:
        """The Jinja text."""
        return self._template.source

    @property
    def bos_token(self) -> str:
        """The text that the template was given for it."""
        return self._template.bos_token

    @property
    def eos_token(self) -> str:
        """The text that the template was given for it."""
        return self._template.eos_token

    @property
    def capabilities(self) -> dict[str, bool]:
        """What the template can express, as llama.cpp found out by rendering probes.

        For example "supports_tools", "supports_tool_calls", "supports_system_role", "supports_thinking".
        """
        return self._template.capabilities

    @property
    def reply_prefix(self) -> str:
        """What replies are generated right behind although histories have a blank there; "": that is not so."""
        return ""

    def apply(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        parallel_tool_calls: bool = False,
        thinking: bool | None = None,
        response_schema: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: int | None = None,
        **kwargs: Any,
    ) -> Prompt:
        """Render messages.

        Args:
            messages: `Message` objects or OpenAI-shaped dicts.
            tools: OpenAI-shaped tool definitions.
            tool_choice: "auto", "none" or "required".
            parallel_tool_calls: whether the reply may hold several calls.
            thinking: whether the model is to think, where the template knows about it; None: llama.cpp's default (yes).
            response_schema: JSON schema of the reply's content: ``grammar`` enforces it, as far as llama.cpp knows its
                keywords. Not together with tools, unless ``tool_choice`` is "none".
            add_generation_prompt: end with the start of an assistant's turn.
            continue_final_message: end inside the last message instead, which an assistant has begun.
            now: the time that templates which print the date are told, in seconds since the epoch; None: the present.
            **kwargs: variables for the template.

        Raises:
            TemplateError: the template refused the messages.
            TypeError, ValueError: they are malformed.
            UnsupportedError: ``response_schema`` together with tools, or with a format of replies that knows none.
            ClosedError: the template is closed.
        """
        if response_schema is not None and tools and tool_choice != "none":
            raise UnsupportedError(
                "llama.cpp cannot read replies that follow a response_schema or call tools: give one"
            )
        found = self._template.render(
            [message.to_dict() for message in as_messages(messages)],
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            thinking=thinking is not False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            json_schema=response_schema,
            kwargs=kwargs,
            now=now,
        )
        if response_schema is not None and not found["grammar"]:
            raise UnsupportedError("llama.cpp knows no response_schema in this template's format: give a grammar")
        return Prompt(
            text=found["prompt"],
            grammar=found["grammar"],
            stops=tuple(found["stops"]),
            format=found["format"],
            generation_prompt=found["generation_prompt"],
            preserved_tokens=tuple(found["preserved_tokens"]),
            grammar_lazy=found["grammar_lazy"],
            grammar_triggers=tuple(found["grammar_triggers"]),
            parser=found["parser"],
            supports_thinking=found["supports_thinking"],
            thinking_start_tag=found["thinking_start_tag"],
            thinking_end_tags=tuple(found["thinking_end_tags"]),
        )

    def close(self) -> None:
        """Free it. Closing twice is fine; later use raises `ClosedError`."""
        self._template.close()

    def __enter__(self) -> Self:
        self._template.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
