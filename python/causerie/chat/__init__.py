"""Messages, the prompts that templates make of them, and the text of replies: what a conversation is made of.

Importing it loads no native code.
"""

from __future__ import annotations

from causerie.chat.chat_template import ChatTemplate, Prompt
from causerie.chat.content import KNOWN_PARTS, Content, PartsPolicy
from causerie.chat.frozen_json import FrozenDict, FrozenList, freeze, thaw
from causerie.chat.messages import Message, Role, as_message, as_messages
from causerie.chat.options import SamplingOptions
from causerie.chat.parsing import ReplyDelta, ReplyParser
from causerie.chat.reply_text import ReplyText
from causerie.chat.stops import StopMatcher
from causerie.chat.tool_call import ToolCall
from causerie.chat.utf8 import Utf8Assembler

__all__ = [
    "KNOWN_PARTS",
    "ChatTemplate",
    "Content",
    "FrozenDict",
    "FrozenList",
    "Message",
    "PartsPolicy",
    "Prompt",
    "ReplyDelta",
    "ReplyParser",
    "ReplyText",
    "Role",
    "SamplingOptions",
    "StopMatcher",
    "ToolCall",
    "Utf8Assembler",
    "as_message",
    "as_messages",
    "freeze",
    "thaw",
]
