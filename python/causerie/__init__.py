"""Conversations on llama.cpp, from Python.

`causerie.llama` has the primitives. Names are loaded when they are first used, so that `import causerie` costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from causerie.errors import (
    BusyError,
    CacheFullError,
    CauserieError,
    ClosedError,
    ContextOverflowError,
    DecodeError,
    DeviceError,
    GrammarError,
    HelperDiedError,
    ModelLoadError,
    NativeError,
    NotFiniteError,
    OutOfMemoryError,
    SchemaError,
    StateError,
    StateWarning,
    TemplateError,
    ToolError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from causerie import llama, models
    from causerie._build import BuildInfo, build_info, doctor
    from causerie.chat.chat_template import ChatTemplate
    from causerie.chat.messages import Message
    from causerie.chat.options import SamplingOptions
    from causerie.chat.plain_template import RolePrefix, TextTemplate
    from causerie.chat.response_format import Choices, Grammar, Regex, ResponseFormat
    from causerie.chat.tool_call import ToolCall
    from causerie.chat.tools import Tool, ToolBox, tool
    from causerie.chat_model import ChatExample, ChatMessage, ChatModel, ChatModelResponse, ChatSession
    from causerie.conversation.conversation import Conversation
    from causerie.conversation.engine import Engine
    from causerie.conversation.reply import Chunk, Reply, Report, Timings, TokenLogprob, Usage
    from causerie.conversation.run_stream import AsyncRunStream, RunStream
    from causerie.conversation.snapshot import Snapshot
    from causerie.conversation.stream import AsyncStream, Stream
    from causerie.conversation.text_filters import KeywordRemover, PatternRedactor, PrefixRemover
    from causerie.conversation.transform_names import register_transform
    from causerie.conversation.transforms import OutputTransform, atransformed, transformed
    from causerie.engine.adapters import Adapter

__all__ = [
    "Adapter",
    "AsyncRunStream",
    "AsyncStream",
    "BuildInfo",
    "BusyError",
    "CacheFullError",
    "CauserieError",
    "ChatExample",
    "ChatMessage",
    "ChatModel",
    "ChatModelResponse",
    "ChatSession",
    "ChatTemplate",
    "Choices",
    "Chunk",
    "ClosedError",
    "ContextOverflowError",
    "Conversation",
    "DecodeError",
    "DeviceError",
    "Engine",
    "Grammar",
    "GrammarError",
    "HelperDiedError",
    "KeywordRemover",
    "Message",
    "ModelLoadError",
    "NativeError",
    "NotFiniteError",
    "OutOfMemoryError",
    "OutputTransform",
    "PatternRedactor",
    "PrefixRemover",
    "Regex",
    "Reply",
    "Report",
    "ResponseFormat",
    "RolePrefix",
    "RunStream",
    "SamplingOptions",
    "SchemaError",
    "Snapshot",
    "StateError",
    "StateWarning",
    "Stream",
    "TemplateError",
    "TextTemplate",
    "Timings",
    "TokenLogprob",
    "Tool",
    "ToolBox",
    "ToolCall",
    "ToolError",
    "UnsupportedError",
    "Usage",
    "atransformed",
    "build_info",
    "doctor",
    "llama",
    "models",
    "register_transform",
    "tool",
    "transformed",
]

_WHERE = {
    "Adapter": "causerie.engine.adapters",
    "BuildInfo": "causerie._build",
    "build_info": "causerie._build",
    "doctor": "causerie._build",
    "AsyncRunStream": "causerie.conversation.run_stream",
    "AsyncStream": "causerie.conversation.stream",
    "RunStream": "causerie.conversation.run_stream",
    "ChatTemplate": "causerie.chat.chat_template",
    "ChatModel": "causerie.chat_model",
    "ChatSession": "causerie.chat_model",
    "ChatExample": "causerie.chat_model",
    "ChatMessage": "causerie.chat_model",
    "ChatModelResponse": "causerie.chat_model",
    "Choices": "causerie.chat.response_format",
    "Grammar": "causerie.chat.response_format",
    "Regex": "causerie.chat.response_format",
    "ResponseFormat": "causerie.chat.response_format",
    "Tool": "causerie.chat.tools",
    "ToolBox": "causerie.chat.tools",
    "tool": "causerie.chat.tools",
    "Chunk": "causerie.conversation.reply",
    "Conversation": "causerie.conversation.conversation",
    "Engine": "causerie.conversation.engine",
    "KeywordRemover": "causerie.conversation.text_filters",
    "PatternRedactor": "causerie.conversation.text_filters",
    "PrefixRemover": "causerie.conversation.text_filters",
    "RolePrefix": "causerie.chat.plain_template",
    "TextTemplate": "causerie.chat.plain_template",
    "atransformed": "causerie.conversation.transforms",
    "register_transform": "causerie.conversation.transform_names",
    "transformed": "causerie.conversation.transforms",
    "Message": "causerie.chat.messages",
    "OutputTransform": "causerie.conversation.transforms",
    "Reply": "causerie.conversation.reply",
    "Report": "causerie.conversation.reply",
    "Snapshot": "causerie.conversation.snapshot",
    "SamplingOptions": "causerie.chat.options",
    "Stream": "causerie.conversation.stream",
    "Timings": "causerie.conversation.reply",
    "TokenLogprob": "causerie.conversation.reply",
    "ToolCall": "causerie.chat.tool_call",
    "Usage": "causerie.conversation.reply",
}
_MODULES = {"llama", "models"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"causerie.{name}")
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
        globals()[name] = value
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("causerie")
    raise AttributeError(f"module 'causerie' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
