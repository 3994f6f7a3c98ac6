"""Tools for templates that know none: told in the system text, called and answered in plain text.

To be switched on where it is wanted (``tool_format="generic"``). The template is given messages of roles that every
template has; what people, tools and models wrote stays text, and never becomes a control token.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from causerie.chat.chat_template import Prompt
from causerie.chat.frozen_json import freeze
from causerie.chat.generic_grammar import Choice, Thinking, generic_grammar
from causerie.chat.generic_parsing import GenericReplyParser
from causerie.chat.messages import Message, as_messages
from causerie.chat.whole_replies import Written
from causerie.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from causerie.chat.parsing import ReplyReader
    from causerie.chat.prompt import Encoded, PromptEncoder

__all__ = ["GenericPrompt", "encode_generic", "generic_messages"]

Ids: TypeAlias = Written | tuple[int, ...]

_INSTRUCTION = """You can use these tools:

{tools}

To use tools, reply with a JSON object like this one, and nothing behind it:
{example}
You are then told the results, and can answer or use tools again. If you need no tool, just answer."""
_RESULTS = "The tools gave these results:"
_EXAMPLE = {"tool_calls": [{"name": "the name of a tool", "arguments": {"the name of a parameter": "its value"}}]}


@dataclass(frozen=True, slots=True)
class GenericPrompt(Prompt):
    """A prompt whose reply may call tools in plain text.

    Attributes:
        takes_calls: whether it may; a reply to a prompt with ``tool_choice="none"`` is text whatever it says.
    """

    takes_calls: bool = True

    def parse(self, text: str, partial: bool = False) -> Message:
        """As `Prompt.parse`."""
        if not self.takes_calls:
            return Prompt.parse(self, text, partial=partial)
        parser = GenericReplyParser(self)
        parser.feed(text)
        return parser.finish(partial=partial)

    @property
    def grammar_begins(self) -> str:
        """As `Prompt.grammar_begins`."""
        return ""

    def reply_parser(self) -> ReplyReader:
        """As `Prompt.reply_parser`."""
        return GenericReplyParser(self) if self.takes_calls else Prompt.reply_parser(self)


def generic_messages(
    messages: Iterable[Message | Mapping[str, Any]],
    generated: Sequence[Ids | None] | None = None,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    system_role: bool = True,
) -> tuple[tuple[Message, ...], tuple[Ids | None, ...]]:
    """A history with tools as one without.

    Args:
        messages: the history.
        generated: by message, the ids that the model generated for it.
        tools: those that are offered, in the OpenAI shape.
        system_role: whether the template knows system messages; else the first user message tells of the tools.

    Returns:
        The messages, and the ids that were generated for them: results that follow each other become one message.
    """
    history = as_messages(messages)
    ids = (None,) * len(history) if generated is None else tuple(generated)
    found: list[tuple[Message, Ids | None]] = []
    calls: dict[str, tuple[int, str]] = {}
    for is_result, group in groupby(zip(history, ids, strict=True), lambda pair: pair[0].role == "tool"):
        if is_result:
            found.append((Message("user", _results_text([message for message, _ in group], calls)), None))
            continue
        for message, own in group:
            calls.update({call.id: (number, call.name) for number, call in enumerate(message.tool_calls)})
            found.append(_plain_calls(message, own) if message.tool_calls else (message, own))
    if tools:
        _instruct(found, _instruction(tools), system_role=system_role)
    return tuple(message for message, _ in found), tuple(own for _, own in found)


def _plain_calls(message: Message, own: Ids | None) -> tuple[Message, Ids | None]:
    """An assistant's message with its calls as text: as the model wrote it, if that says the same and no more."""
    calls = {"tool_calls": [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]}
    said, text = message.text, json.dumps(calls, ensure_ascii=False)
    text = f"{said}\n{text}" if said else text
    if not isinstance(own, Written):
        return replace(message, content=text, tool_calls=()), own
    if own.whole and own.text.startswith(said) and _read(own.text[len(said) :]) == calls:
        return replace(message, content=own.text, tool_calls=()), own.whole
    return replace(message, content=text, tool_calls=()), None


def _results_text(results: Iterable[Message], calls: Mapping[str, tuple[int, str]]) -> str:
    """Results in the order of their calls, each as a line of JSON; what is JSON itself stands there without escapes."""
    found = []
    for message in results:
        number, name = calls.get(message.tool_call_id or "", (0, message.name or "tool"))
        found.append((number, json.dumps({"name": name, "result": _value(message.text)}, ensure_ascii=False)))
    found.sort(key=lambda item: item[0])
    return "\n".join((_RESULTS, *(line for _, line in found)))


def _value(text: str) -> Any:
    found = _read(text)
    return text if found is None and text != "null" else found


def _read(text: str) -> Any:
    """The value of JSON text; None for other text."""
    try:
        return freeze(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _instruction(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return _INSTRUCTION.format(tools="\n".join(lines), example=json.dumps(_EXAMPLE))


def _instruct(found: list[tuple[Message, Ids | None]], instruction: str, *, system_role: bool) -> None:
    """Tell of the tools: behind the system text, or in front of what the user says first."""
    if system_role and found and found[0][0].role == "system":
        found[0] = _with_text(found[0][0], instruction, in_front=False), None
    elif system_role:
        found.insert(0, (Message("system", instruction), None))
    else:
        for index, (message, own) in enumerate(found):
            if message.role == "user":
                found[index] = _with_text(message, instruction, in_front=True), own
                return


def _with_text(message: Message, text: str, *, in_front: bool) -> Message:
    content = message.content
    if isinstance(content, str):
        parts = [text, content] if in_front else [content, text]
        return replace(message, content="\n\n".join(part for part in parts if part))
    part = {"type": "text", "text": text}
    return replace(message, content=(part, *content) if in_front else (*content, part))


def encode_generic(
    encoder: PromptEncoder,
    messages: Iterable[Message | Mapping[str, Any]],
    generated: Sequence[Ids | None] | None = None,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    callable_names: Iterable[str] | None = None,
    tool_choice: str = "auto",
    parallel_tool_calls: bool = False,
    **options: Any,
) -> Encoded:
    """As `PromptEncoder.encode`, for tools in plain text; ``prompt`` of the result is a `GenericPrompt`.

    Args:
        encoder: makes the prompt.
        messages: the history.
        generated: by message, the ids the model generated for it: text and calls.
        tools: those that are offered, in the OpenAI shape.
        callable_names: those of them that may be called in this reply; None: all. The prompt tells of all of them, so
            that it stays the same whatever may be called next.
        tool_choice: "auto", "none" or "required".
        parallel_tool_calls: whether there may be several calls.
        **options: as for `PromptEncoder.encode`.

    Raises:
        SchemaError: the parameters of a tool cannot be enforced.
        UnsupportedError: a response schema together with tools that may be called.
        TemplateError, ValueError: as `PromptEncoder.encode`.
    """
    known = encoder.template.capabilities
    plain, ids = generic_messages(messages, generated, tools=tools, system_role=known["supports_system_role"])
    if tools and tool_choice != "none" and options.get("response_schema") is not None:
        raise UnsupportedError("a reply cannot both follow a response_schema and call tools: give one")
    encoded = encoder.encode(plain, ids, **options)
    if not tools:
        return encoded
    names = None if callable_names is None else set(callable_names)
    offered = [tool for tool in tools if names is None or tool["function"]["name"] in names]
    grammar = encoded.prompt.grammar or generic_grammar(
        offered, cast("Choice", tool_choice), several=parallel_tool_calls, thinking=_thinking(encoded.prompt)
    )
    own = {field.name: getattr(encoded.prompt, field.name) for field in fields(encoded.prompt)}
    prompt = GenericPrompt(**{**own, "grammar": grammar}, takes_calls=tool_choice != "none")
    return replace(encoded, prompt=prompt)


def _thinking(prompt: Prompt) -> Thinking | None:
    start, ends = prompt.thinking_start_tag.strip(), tuple(filter(None, map(str.strip, prompt.thinking_end_tags)))
    if not (prompt.supports_thinking and start and ends):
        return None
    text = prompt.text.rstrip()
    if text.endswith(ends):
        return None  # it has been told not to
    return Thinking(text.endswith(start), start, ends)
