"""Lists of chat sessions in, one response per session out: a facade over `Engine`, in the shape of ModelFarm's."""

from causerie.chat_model.data import ChatExample, ChatMessage, ChatSession
from causerie.chat_model.model import ChatModel
from causerie.chat_model.response import (
    Candidate,
    ChatError,
    ChatModelResponse,
    ChatPromptResponse,
    Metadata,
    TokenCountMetadata,
)
from causerie.chat_model.stream import AsyncChatStream, ChatStream

__all__ = [
    "AsyncChatStream",
    "Candidate",
    "ChatError",
    "ChatExample",
    "ChatMessage",
    "ChatModel",
    "ChatModelResponse",
    "ChatPromptResponse",
    "ChatSession",
    "ChatStream",
    "Metadata",
    "TokenCountMetadata",
]
