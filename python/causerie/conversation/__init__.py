"""Conversations: what a person talks to. The engine that serves them, their replies, and streams of chunks."""

from causerie.conversation.conversation import Conversation
from causerie.conversation.engine import Engine
from causerie.conversation.reply import Chunk, Reply, Report, Timings, TokenLogprob, Usage
from causerie.conversation.run_stream import AsyncRunStream, RunStream
from causerie.conversation.snapshot import Snapshot
from causerie.conversation.stream import AsyncStream, Stream
from causerie.conversation.text_filters import KeywordRemover, PatternRedactor, PrefixRemover
from causerie.conversation.transform_names import register_transform, transform_name, transform_named
from causerie.conversation.transforms import OutputTransform, atransformed, transformed

__all__ = [
    "AsyncRunStream",
    "AsyncStream",
    "Chunk",
    "Conversation",
    "Engine",
    "KeywordRemover",
    "OutputTransform",
    "PatternRedactor",
    "PrefixRemover",
    "Reply",
    "Report",
    "RunStream",
    "Snapshot",
    "Stream",
    "Timings",
    "TokenLogprob",
    "Usage",
    "atransformed",
    "register_transform",
    "transform_name",
    "transform_named",
    "transformed",
]
