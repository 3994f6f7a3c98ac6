"""Conversations: what a person talks to. The engine that serves them, their replies, and streams of chunks."""

from causerie.conversation.conversation import Conversation
from causerie.conversation.engine import Engine
from causerie.conversation.reply import Chunk, Reply, Report, Timings, TokenLogprob, Usage
from causerie.conversation.stream import AsyncStream, Stream
from causerie.conversation.transforms import KeywordRemover, OutputTransform

__all__ = [
    "AsyncStream",
    "Chunk",
    "Conversation",
    "Engine",
    "KeywordRemover",
    "OutputTransform",
    "Reply",
    "Report",
    "Stream",
    "Timings",
    "TokenLogprob",
    "Usage",
]
