"""Chat templates as llama.cpp renders them: messages in, prompt text and what the reply must look like out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from causerie.errors import TemplateError
from causerie.llama._errors import check
from causerie.llama._handle import Handle, Resource
from causerie.llama._lib import drain_log, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.llama.model import Model

__all__ = ["ReplyFormat", "Template"]

# llama.cpp's Jinja engine recurses: its stack (native/src/large_stack.h) suffices for any source of this size. The
# largest template that llama.cpp ships has 20 KiB.
_MAX_SOURCE_BYTES = 128 * 1024
# llama.cpp's strftime_now() always tells the present. For another time, a macro of that name stands in front of the
# template; it knows the formats that the template may ask for.
_DATED = "{%- macro strftime_now(format) -%}{{- strftime_then[format] -}}{%- endmacro %}{{- '' }}"
_DATE_FORMAT = re.compile(r"""(["'])((?:(?!\1).)*%[a-zA-Z-](?:(?!\1).)*)\1""")


def _take(text: Any) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(ffi.string(text).decode("utf-8", "replace"))
    finally:
        lib.causerie_string_free(text)
    return result


def _dates(source: str, when: int) -> dict[str, str]:
    """A time in each format that a template names."""
    try:
        parts = time.localtime(when)
    except (OverflowError, OSError) as error:
        raise ValueError(f"no calendar knows the time {when}: {error}") from error
    return {found[1]: time.strftime(found[1], parts) for found in _DATE_FORMAT.findall(source)}


class Template(Handle):
    """A Jinja chat template, run by llama.cpp's own engine. Needs no weights.

    Args:
        source: the Jinja text.
        bos_token, eos_token: text of those tokens, for templates that use them.

    Raises:
        TemplateError: the source is not valid Jinja.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if not isinstance(source, str):
            raise TypeError(f"a chat template is a str of Jinja, not {type(source).__name__}")
        if not source.strip():
            raise TemplateError("the chat template is empty")
        self._open(None, source, bos_token, eos_token)

    @classmethod
    def from_model(cls, model: Model, name: str | None = None) -> Template:
        """The template in the model's file.

        Args:
            model: the model.
            name: a named template such as "tool_use"; None: the default one.

        Raises:
            TemplateError: the file has no such template.
        """
        source = model.chat_template(name)
        if source is None:
            which = "chat template" if name is None else f"chat template named {name!r}"
            raise TemplateError(f"the model's file has no {which}: give one, as Template(source)")
        vocab = model.vocab
        self = cls.__new__(cls)
        bos, eos = ("" if t is None else vocab.text(t) for t in (vocab.bos, vocab.eos))
        self._open(model, source, bos, eos)
        return self

    def _open(self, model: Model | None, source: str, bos: str, eos: str) -> None:
        self.source = source
        self._tokens = (bos, eos)
        self._dated: Template | None = None
        self._capabilities: dict[str, bool] | None = None
        texts = [t.encode() for t in (source, bos, eos)]
        if len(texts[0]) > _MAX_SOURCE_BYTES:
            raise TemplateError(f"the chat template has {len(texts[0])} bytes, more than {_MAX_SOURCE_BYTES}")
        if any(b"\0" in t for t in texts):
            raise TemplateError("the chat template contains a NUL character")
        pointer = lib.causerie_template_new(*texts)
        check("reading the chat template", TemplateError)
        drain_log()
        parent = None if model is None else model._resource
        self._own(Resource("template", pointer, lib.causerie_template_free, parent), model)

    @property
    def bos_token(self) -> str:
        """The text that was given for it."""
        return self._tokens[0]

    @property
    def eos_token(self) -> str:
        """The text that was given for it."""
        return self._tokens[1]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        parallel_tool_calls: bool = False,
        thinking: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        reasoning_format: str = "auto",
        json_schema: Mapping[str, Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        now: int | None = None,
    ) -> dict[str, Any]:
        """Render messages (common_chat_templates_apply).

        Args:
            messages: OpenAI-shaped dicts.
            tools: OpenAI-shaped tool definitions.
            tool_choice: "auto", "none" or "required".
            parallel_tool_calls: whether the reply may hold several calls.
            thinking: whether the template's thinking mode is on, where it has one.
            add_generation_prompt: end with the start of an assistant's turn.
            continue_final_message: end inside the last message, an assistant's, instead.
            reasoning_format: "auto": "parser" tells thinking from text; "none": it leaves thinking in the text.
            json_schema: what the reply must be: "grammar" enforces it, as far as llama.cpp knows its keywords.
            kwargs: variables for the template.
            now: seconds since the epoch, for templates that print the date (in local time); None: the present.

        Returns:
            "prompt" (text), "stops" (strings), "grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens",
            "generation_prompt", "format", "parser", "supports_thinking", "thinking_start_tag", "thinking_end_tags".

        Raises:
            TemplateError: the template refused the messages, or they are malformed.
            TypeError, ValueError: they are not JSON.
        """
        if isinstance(messages, (str, bytes)) or not all(isinstance(m, Mapping) for m in messages):
            raise TypeError("messages must be a sequence of mappings with 'role' and 'content'")
        variables, template = dict(kwargs or {}), self
        inputs: dict[str, Any] = {
            "messages": [dict(m) for m in messages],
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            "enable_thinking": thinking,
            "add_generation_prompt": add_generation_prompt,
            "reasoning_format": reasoning_format,
        }
        if continue_final_message:
            inputs["continue_final_message"] = True
        if json_schema is not None:
            inputs["json_schema"] = json.dumps(json_schema)
        if tools:
            inputs["tools"] = [dict(t) for t in tools]
        if now is not None:
            inputs["now"] = now
            if "strftime_now" in self.source:
                template = self._with_dates()
                variables["strftime_then"] = _dates(self.source, now)
        if variables:
            inputs["kwargs"] = variables
        raw = json.dumps(inputs, ensure_ascii=False).encode()
        with self._resource, template._resource as pointer:
            text = lib.causerie_template_apply(pointer, raw)
            check("rendering the chat template", TemplateError)
        drain_log()
        return _take(text)

    def _with_dates(self) -> Template:
        if self._dated is None:
            bos, eos = self._tokens
            self._dated = Template(_DATED + self.source, bos_token=bos, eos_token=eos)
        return self._dated

    @property
    def capabilities(self) -> dict[str, bool]:
        """What the template can express, as llama.cpp found out by rendering probes; it does so once."""
        with self._resource as pointer:
            if self._capabilities is None:
                text = lib.causerie_template_caps(pointer)
                check("reading the template's capabilities", TemplateError)
                self._capabilities = _take(text)
            return dict(self._capabilities)


class ReplyFormat(Handle):
    """llama.cpp's parser for the replies to one prompt. Thread-safe.

    Args:
        format, parser, generation_prompt: what `Template.render` told with the prompt.

    Raises:
        TemplateError: they are malformed.
    """

    def __init__(self, format: str, parser: str, generation_prompt: str) -> None:  # noqa: A002 - llama.cpp's word
        params = {"format": format, "parser": parser, "generation_prompt": generation_prompt}
        pointer = lib.causerie_parser_new(json.dumps(params, ensure_ascii=False).encode())
        check("reading the format of replies", TemplateError)
        self._own(Resource("reply format", pointer, lib.causerie_parser_free))

    def parse(self, text: str, *, partial: bool = False) -> dict[str, Any]:
        """Take a reply apart (common_chat_parse).

        Args:
            text: the reply.
            partial: ``text`` is only its beginning.

        Returns:
            "content", "reasoning_content", and "tool_calls": dicts with "id" ("" where the format has none), "name" and
            "arguments", the text of a JSON object, which may break off where ``text`` does.

        Raises:
            TemplateError: the text does not fit the format.
        """
        raw = text.encode()
        with self._resource as pointer:
            found = lib.causerie_parser_parse(pointer, raw, len(raw), partial)
            check("reading the reply", TemplateError)
        drain_log()
        return _take(found)
