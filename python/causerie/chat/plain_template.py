"""Messages as plain text, for models without a chat template: names before what is said, and stop strings from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from causerie.chat.chat_template import ChatTemplate, Prompt
from causerie.chat.frozen_json import checked_text
from causerie.chat.messages import Message, Role, as_messages
from causerie.errors import TemplateError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self

__all__ = ["PlainTemplate", "RolePrefix", "TextTemplate"]


@runtime_checkable
class TextTemplate(Protocol):
    """Messages as text, where there is no Jinja for it: what ``template=`` takes besides."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end a reply: what begins the next message."""

    @property
    def reply_prefix(self) -> str:
        """What the text ends with where a reply begins. In a history one blank may stand between it and the reply."""

    def to_text(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The messages as text, ending with `reply_prefix` if a reply is asked for.

        Each message's text goes in as it is, or without blanks around it.

        Raises:
            TemplateError: there is no way to say one of them.
        """


@dataclass(frozen=True)
class RolePrefix:
    r"""A name before what each says, as in ``"User: Hi.\nAssistant: Hello.\nUser: ..."``. A `TextTemplate`.

    Args:
        user, assistant, system: the names; system "": the system text stands there without a name.
        mark: what divides a name from what is said.

    Raises:
        TypeError: an argument is not a str.
        ValueError: a name is empty, or two are alike, or one has a line break.
    """

    user: str = "User"
    assistant: str = "Assistant"
    system: str = "System"
    mark: str = ":"

    def __post_init__(self) -> None:
        for what in ("user", "assistant", "system", "mark"):
            value = checked_text(getattr(self, what), what)
            if "\n" in value or (not value and what != "system"):
                raise ValueError(f"{what} must be a name within a line, not {value!r}")
        if len({self.user, self.assistant, self.system}) < 3:
            raise ValueError("the names must differ")

    @property
    def _names(self) -> dict[str, Role]:
        """By what a message begins with: who says it."""
        roles: dict[Role, str] = {"user": self.user, "assistant": self.assistant, "system": self.system}
        return {f"{name}{self.mark}": role for role, name in roles.items() if name}

    @property
    def stops(self) -> tuple[str, ...]:
        """See `TextTemplate.stops`: a line that begins with a name."""
        return tuple(f"\n{name}" for name in self._names)

    @property
    def reply_prefix(self) -> str:
        """See `TextTemplate.reply_prefix`."""
        return f"{self.assistant}{self.mark}"

    def to_text(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """See `TextTemplate.to_text`.

        Raises:
            TemplateError: there is a tool's message, or a call of one.
        """
        names = {role: name for name, role in self._names.items()}
        lines = []
        for message in messages:
            if message.role == "tool" or message.tool_calls:
                raise TemplateError("names before texts cannot express tools: give a chat template in Jinja")
            name, text = names.get(message.role, ""), message.text
            lines.append(f"{name} {text}" if name and text else name or text)
        return "\n".join([*lines, self.reply_prefix] if add_generation_prompt else lines)

    def from_text(self, text: str) -> tuple[Message, ...]:
        """The messages that a text tells: what `to_text` was given, if no text in it has a line like a new message.

        Raises:
            ValueError: it does not begin with a name.
        """
        return tuple(self._messages(checked_text(text, "the text")))

    def _messages(self, text: str) -> Iterator[Message]:
        if not text:
            return
        role: Role | None = None if self.system else "system"
        said: list[str] = []
        for number, line in enumerate(text.split("\n")):
            name = next((name for name in self._names if line.startswith(name)), None)
            if name is None:
                said.append(line)
            else:
                if number and role:
                    yield Message(role, "\n".join(said))
                role, said = self._names[name], [line[len(name) :].removeprefix(" ")]
            if role is None:
                raise ValueError(f"the text must begin with one of {', '.join(self._names)}, not {line!r}")
        if role:
            yield Message(role, "\n".join(said))


class PlainTemplate(ChatTemplate):
    """A `TextTemplate` in the place of a `ChatTemplate`.

    Args:
        text_template: writes the messages.
    """

    def __init__(self, text_template: TextTemplate) -> None:
        self.text_template = text_template

    @property
    def source(self) -> str:
        """What tells it from others: there is no Jinja."""
        return repr(self.text_template)

    @property
    def reply_prefix(self) -> str:
        """See `TextTemplate.reply_prefix`."""
        return self.text_template.reply_prefix

    @property
    def capabilities(self) -> dict[str, bool]:
        """As of a `ChatTemplate`: texts only."""
        names = ("object_arguments", "parallel_tool_calls", "preserve_reasoning", "reasoning_effort", "thinking")
        more = ("tool_calls", "tools", "typed_content")
        found = {f"supports_{name}": False for name in (*names, *more)}
        return {**found, "supports_string_content": True, "supports_system_role": True}

    def apply(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        parallel_tool_calls: bool = False,  # noqa: ARG002 - as of a `ChatTemplate`
        thinking: bool | None = None,  # noqa: ARG002
        response_schema: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: int | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> Prompt:
        """Write messages; see `ChatTemplate.apply`. Thinking is left out, and variables mean nothing.

        Raises:
            TemplateError: they cannot be written, or there are tools.
            UnsupportedError: a response_schema.
        """
        if tools and tool_choice != "none":
            raise TemplateError("plain text cannot offer tools: give a chat template in Jinja")
        if response_schema is not None:
            raise UnsupportedError("llama.cpp knows no response_schema for plain text: give a grammar")
        text = self.text_template.to_text(
            as_messages(messages), add_generation_prompt=add_generation_prompt and not continue_final_message
        )
        return Prompt(checked_text(text, "what to_text gives"), stops=self.text_template.stops)

    def close(self) -> None:
        """Nothing: there is nothing to free."""

    def __enter__(self) -> Self:
        return self
