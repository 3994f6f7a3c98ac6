"""Every row of the table for LiteRtLmSharp, as it stands there."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from coming_from_rows import (
    Names,
    answered,
    chunks,
    closed,
    conversation,
    embeds,
    engine,
    equals,
    ids,
    is_a,
    reply,
    table,
    told,
    usable,
    value_of,
)

from causerie import ContextOverflowError, Timings, llama

ROWS = table("LiteRT-LM (LiteRtLmSharp)")
CHECKS: dict[str, Any] = {
    "LiteRtEngine.Load(new LiteRtEngineOptions { ModelPath = path, MaxNumTokens = 128 })": engine,
    "options.NumThreads, options.PrefillChunkSize": engine,
    "options.Backend = LiteRtBackend.Cpu": is_a(llama.Model),
    "LiteRtModelInfo.Read(path)": lambda found, names: found["general.architecture"] == "llama",
    "engine.Dispose()": equals(None),
    "engine.CreateConversation()": conversation,
    "conversationOptions.SystemMessage": lambda found, names: found.messages[0].role == "system",
    "conversationOptions.History": conversation,
    "conversationOptions.HistoryJson": lambda found, names: found.messages == names["messages"],
    "conversationOptions.Sampler": conversation,
    "conversationOptions.MaxOutputTokens": lambda found, names: found.send("Hi.").usage.completion_tokens <= 4,
    "conversationOptions.EnableThinking": conversation,
    "conversationOptions.FilterThinkingFromKvCache": conversation,
    "conversationOptions.ThinkingTokenBudget": conversation,
    "conversationOptions.PromptTemplate": lambda found, names: found.render("Hi.") == "user: Hi.\nassistant:",
    "conversationOptions.ExtraContext": lambda found, names: found.render("Hi.").startswith("glad"),
    "conversationOptions.Tools": lambda found, names: bool(
        found.send("Weather in Brno?", tool_choice="required", max_tokens=60).tool_calls
    ),
    "conversationOptions.EnableConstrainedDecoding": lambda found, names: (
        set(found.tool_calls[0].arguments) == {"city"}
    ),
    "conversationOptions.StreamToolCalls": lambda found, names: {"tool_call_delta"} <= {chunk.kind for chunk in found},
    "conversation.Send(text)": is_a(str),
    "conversation.SendRaw(messageJson)": told("system", "user", "assistant", "user"),
    "conversation.SendAsync(text)": reply,
    "conversation.SendStreamingAsync(text)": chunks,
    "response.ToolCalls": lambda found, names: {call.name for call in found} == {"weather"},
    "conversation.SendToolResults(results)": told("user", "assistant", "tool", chat="asking"),
    "conversation.SendToolResultsAsync(results)": reply,
    "response.IsToolCall": answered,
    "conversation.RenderMessage(text)": lambda found, names: "Hi." in found,
    "conversation.RenderMessageRaw(messageJson)": lambda found, names: "Hi." in found,
    "conversation.RenderPreface()": lambda found, names: "Be brief." in found,
    "conversation.CancelProcess()": usable,
    "conversation.Clone()": conversation,
    "conversation.TokenCount": lambda found, names: found > 3,
    "conversation.IsContextFull": equals(False),
    "conversation.Dispose()": closed,
    "conversation.GetBenchmarkInfo()": is_a(Timings),
    "catch (LiteRtContextOverflowException)": equals(ContextOverflowError),
    "sendOptions.Constraint": lambda found, names: found.text == "yes",
    "sendOptions.MaxOutputTokens": lambda found, names: found.usage.completion_tokens == 2,
    "sendOptions.EnableThinking": reply,
    "sendOptions.ThinkingTokenBudget": reply,
    "sendOptions.RepetitionPenalties": reply,
    "sendOptions.NoRepeatNgram": reply,
    "sendOptions.SuppressTokens": reply,
    "LiteRtMessage.Serialize(messages)": is_a(str),
    "LiteRtMessage.Deserialize(json)": lambda found, names: found == names["messages"],
    "engine.Tokenize(text)": ids,
    "engine.Detokenize(tokens)": is_a(str),
    "engine.GetStartToken()": is_a(int),
    "engine.GetStopTokens()": equals(True),
    "LiteRtEngine.SetMinLogLevel(level)": lambda found, names: (
        logging.getLogger("causerie.llama").level == logging.ERROR
    ),
    "conversationOptions.LoraPath": lambda found, names: len(found.adapters) == 1 and conversation(found, names),
    "new LiteRtEmbeddingEngine(...)": embeds,
}


@pytest.fixture(autouse=True)
def level_as_before() -> Any:
    before = logging.getLogger("causerie.llama").level
    yield
    logging.getLogger("causerie.llama").setLevel(before)


def test_every_row_is_checked() -> None:
    assert [theirs for theirs, ours in ROWS.items() if ours is not None] == list(CHECKS)


@pytest.mark.parametrize("theirs", CHECKS)
def test_row(theirs: str, names: Names) -> None:
    assert CHECKS[theirs](value_of(str(ROWS[theirs]), names), names)
