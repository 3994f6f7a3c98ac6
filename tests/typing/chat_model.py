"""Read by mypy --strict and never run: what the types of the list-of-sessions facade promise to a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import assert_type

import causerie
from causerie.chat_model import (
    AsyncChatStream,
    Candidate,
    ChatExample,
    ChatMessage,
    ChatModel,
    ChatModelResponse,
    ChatPromptResponse,
    ChatSession,
    ChatStream,
    Metadata,
)


def made() -> list[ChatSession]:
    one = ChatSession(
        context="You are terse.",
        examples=[ChatExample(input=ChatMessage(content="1 + 1"), output=ChatMessage("2")), ("2 + 2", "4")],
        messages=[ChatMessage(author="USER", content="Hi."), "Hello.", {"content": "Go on."}],
    )
    assert_type(one.messages, tuple[ChatMessage, ...])
    assert_type(one.examples, tuple[ChatExample, ...])
    assert_type(one.examples[0].input, ChatMessage)
    assert_type(one.to_messages(), list[causerie.Message])
    assert_type(one.model_dump(), dict[str, Any])
    return [one, ChatSession(), ChatSession(None)]


def asked(engine: causerie.Engine) -> None:
    ChatModel(Path("model.gguf"), n_ctx=512)
    ChatModel(engine)
    ChatModel(engine.model, sampling={"temperature": 0})
    with ChatModel("smollm2") as model:
        assert_type(model, ChatModel)
        response = model.chat(made(), max_output_tokens=50, temperature=0.2, candidateCount=2, topP=0.9)
        assert_type(response, ChatModelResponse)
        assert_type(response.metadata, Metadata | None)
        assert_type(response.responses, tuple[ChatPromptResponse, ...])
        assert_type(response.responses[0].candidates, tuple[Candidate, ...])
        assert_type(response.responses[0].candidates[0].message.content, str)
        if response.metadata is not None:
            assert_type(response.metadata.inputTokenCount.tokens, int)
        error = response.responses[0].error
        if error is not None:
            assert_type(error.exception, Exception)
        model.chat(prompts=[{"messages": ["Hi."]}])
        with model.stream_chat(made(), 50, 0.2) as stream:
            assert_type(stream, ChatStream)
            for item in stream:
                assert_type(item, ChatModelResponse)
                assert_type(item.responses[0].index, int)
        assert_type(stream.response, ChatModelResponse)
        assert_type(model.engine, causerie.Engine)


async def asked_later(model: ChatModel) -> None:
    assert_type(await model.async_chat(made()), ChatModelResponse)
    assert_type(model.async_stream_chat(made()), AsyncChatStream)
    async for item in model.async_stream_chat(made(), temperature=0):
        assert_type(item, ChatModelResponse)


def wrong_uses(model: ChatModel) -> None:
    ChatMessage(None)  # type: ignore[arg-type]
    ChatSession(messages=[3])  # type: ignore[list-item]
    model.chat("Hi.")  # type: ignore[arg-type]
    model.chat(ChatSession())  # type: ignore[arg-type]
    model.chat(made()).responses.append(3)  # type: ignore[attr-defined]
