"""The tools that a reply may call: which of them, whether it has to, and how many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from causerie.chat.tool_call import set_field
from causerie.chat.tools import Tool, ToolBox
from causerie.errors import ToolError, UnsupportedError

if TYPE_CHECKING:
    from causerie.chat.tool_call import ToolCall

__all__ = ["ToolChoice", "ToolOffer", "as_toolbox"]

ToolChoice: TypeAlias = 'Literal["auto", "none", "required"] | Mapping[str, Any]'
"""Whether a reply calls tools: "auto", "none", "required", or which one: {"name": ...}, or OpenAI's shape of that."""

_CHOICES = ("auto", "none", "required")


def as_toolbox(tools: Any) -> ToolBox:
    """Tools as a `ToolBox`; one that is given is taken as it is.

    Raises:
        TypeError, ValueError, SchemaError: as `ToolBox`.
    """
    if isinstance(tools, ToolBox):
        return tools
    if isinstance(tools, (str, bytes, Mapping, Tool)) or callable(tools) or not isinstance(tools, Iterable):
        raise TypeError(f"tools must be a list of tools, not one {type(tools).__name__}")
    return ToolBox(tools)


@dataclass(frozen=True)
class ToolOffer:
    """What a reply may call.

    Args:
        tools: all that the model is told of.
        choice: a `ToolChoice`.
        parallel: whether a reply may hold several calls; None: if the template can write them.
        validate: whether a call whose arguments do not match its tool ends the reply with `ToolError`.

    Raises:
        TypeError, ValueError: an argument is wrong; ``choice`` is "required" and there are no tools, or asks for one
            that is not there.
    """

    tools: ToolBox = field(default_factory=ToolBox)
    choice: ToolChoice = "auto"
    parallel: bool | None = None
    validate: bool = True

    def __post_init__(self) -> None:
        choice, name = _choice(self.choice)
        if name is not None and name not in self.tools:
            known = ", ".join(tool.name for tool in self.tools) or "none"
            raise ValueError(f"tool_choice asks for {name!r}, which is not among the tools (there are: {known})")
        if choice == "required" and not len(self.tools):
            raise ValueError('tool_choice="required" needs tools')
        for option, value in (("parallel_tool_calls", self.parallel), ("validate_calls", self.validate)):
            if not (value is None or isinstance(value, bool)):
                raise TypeError(f"{option} must be a bool, not {type(value).__name__}")
        set_field(self, "choice", {"name": name} if name is not None else choice)

    @property
    def mode(self) -> Literal["auto", "none", "required"]:
        """Whether a reply calls tools, in llama.cpp's words; one that has to call a certain one is "required"."""
        if not len(self.tools):
            return "none"
        return self.choice if isinstance(self.choice, str) else "required"

    @property
    def only(self) -> str | None:
        """The tool that has to be called; None: any of them."""
        return None if isinstance(self.choice, str) else self.choice["name"]

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that this reply may call."""
        if self.mode == "none":
            return ()
        return tuple(self.tools) if self.only is None else (self.tools[self.only],)

    def check(self, call: ToolCall) -> None:
        """ToolError if a call is of no tool that may be called, or its arguments do not match; `.call` is the call."""
        if not self.validate:
            return
        try:
            ToolBox(self.callable)[call.name].check(call.arguments)
        except ToolError as error:
            path = getattr(error, "path", "$")
            raise ToolError(f"the model's call: {error}", tool=call.name, path=path, call=call) from error

    def require_support(self, takes_tools: bool) -> None:
        """Raise if the tools cannot be offered.

        Args:
            takes_tools: whether the template can tell a model about them.

        Raises:
            UnsupportedError: it takes no tools; or calls cannot be checked, as jsonschema is not installed.
            SchemaError: a tool's raw schema is none.
        """
        if not takes_tools:
            raise UnsupportedError(
                "this chat template takes no tools: give another one, as engine.conversation(template=...), or tell "
                'the model of the tools in plain text, with tool_format="generic"'
            )
        if self.validate:
            for tool in self.callable:
                tool.require_checkable()


def _choice(value: Any) -> tuple[Literal["auto", "none", "required"], str | None]:
    if isinstance(value, str):
        if value not in _CHOICES:
            raise ValueError(f'tool_choice must be "auto", "none", "required" or {{"name": ...}}, not {value!r}')
        return value, None  # type: ignore[return-value]  # it is one of the three
    if not isinstance(value, Mapping):
        raise TypeError(f"tool_choice must be a str or a dict, not {type(value).__name__}")
    inner = value.get("function") if value.get("type") == "function" and set(value) == {"type", "function"} else value
    if not isinstance(inner, Mapping) or set(inner) != {"name"} or not isinstance(inner["name"], str):
        raise ValueError(f'a tool_choice that asks for one tool is {{"name": ...}}, not {value!r}')
    return "required", inner["name"]
