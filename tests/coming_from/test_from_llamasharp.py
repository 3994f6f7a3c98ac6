"""Every row of the table for LLamaSharp, as it stands there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coming_from_rows import (
    Names,
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
    true,
    usable,
    value_of,
    written,
)

from causerie import Message, llama

ROWS = table("LLamaSharp")
HISTORY = "System: Be brief.\nUser: Hi.\nAssistant: Hello.\nAssistant:"
CHECKS: dict[str, Any] = {
    "LLamaWeights.LoadFromFile(params)": is_a(llama.Model),
    "weights.CreateContext(params)": is_a(llama.Context),
    "new BatchedExecutor(weights, params)": engine,
    "batchedExecutor.Model": is_a(llama.Model),
    "batchedExecutor.Dispose()": equals(None),
    "batchedExecutor.IsDisposed": equals(False),
    "new InteractiveExecutor(context)": conversation,
    "new StatelessExecutor(weights, params) { ApplyTemplate = true }": reply,
    "statelessExecutor.InferAsync(prompt)": lambda found, names: reply(found, names) and found.usage.prompt_tokens <= 4,
    "executor.InferAsync(null)": lambda found, names: (
        reply(found, names) and names["chat"].messages[-1].text == "Hello." + found.text
    ),
    "executor.PrefillPromptAsync(prompt)": usable,
    "new ChatSession(executor)": conversation,
    "new ChatSession(executor, history)": conversation,
    "ChatSession.InitializeSessionFromHistoryAsync(executor, history)": equals(None),
    "session.History": lambda found, names: found == names["messages"],
    "session.AddMessage(message)": told("system", "user", "assistant", "user"),
    "session.AddSystemMessage(text)": told("system", chat="blank"),
    "session.AddUserMessage(text)": told("system", "user", "assistant", "user"),
    "session.AddAssistantMessage(text)": told("system", "user", "assistant", chat="asked"),
    "session.ProcessSystemMessage(text)": equals(None),
    "session.RemoveLastMessage()": told("system"),
    "session.ReplaceUserMessage(oldMessage, newMessage)": lambda found, names: (
        names["chat"].messages[1:] == (Message("user", "Bye."),)
    ),
    "session.ChatAsync(message, inferenceParams)": chunks,
    "session.ChatAsync(history, inferenceParams)": chunks,
    "session.RegenerateAssistantMessageAsync()": lambda found, names: (
        chunks(found, names) and told("system", "user", "assistant")(found, names)
    ),
    'session.WithHistoryTransform(new LLamaTransforms.DefaultHistoryTransform("User", "Assistant"))': (
        lambda found, names: found.render("Hi.") == "User: Hi.\nAssistant:"
    ),
    "historyTransform.HistoryToText(history)": equals(HISTORY),
    "historyTransform.TextToHistory(role, text)": equals((Message("user", "Hi."),)),
    "session.SaveSession(path)": written,
    "session.LoadSession(path)": conversation,
    "session.GetSessionState()": lambda found, names: found.messages == names["messages"],
    "session.LoadSession(state)": conversation,
    "sessionState.Save(path)": lambda found, names: names["file"].stat().st_size > 500,
    "SessionState.Load(path)": lambda found, names: found.messages == names["messages"],
    "session.AddInputTransform(transform)": lambda found, names: (
        found.add_user(" Hi. ") is None and found.messages[0].text == "Hi."
    ),
    "new LLamaTransforms.NaiveTextInputTransform()": conversation,
    "session.WithOutputTransform(new LLamaTransforms.KeywordTextOutputStreamTransform(keywords))": conversation,
    "outputTransform.Transform(tokens)": equals(["Hi."]),
    "history.ToJson()": lambda found, names: Message.list_from_json(found) == names["messages"],
    "ChatHistory.FromJson(text)": lambda found, names: found == names["messages"],
    "inferenceParams.AntiPrompts": reply,
    "inferenceParams.MaxTokens": lambda found, names: found.usage.completion_tokens == 2,
    "inferenceParams.TokensKeep": conversation,
    "new DefaultSamplingPipeline { Temperature = 0.7f, Seed = 1 }": reply,
    'new Grammar(text, "root")': lambda found, names: found.text == "yes",
    "cancellationToken": usable,
    "batchedExecutor.Create()": conversation,
    "conversation.Prompt(text)": told("system", "user", "assistant", "user"),
    "conversation.Prompt(tokens)": lambda found, names: names["context"].memory.seq_pos_max(0) == 3,
    "conversation.Sample()": lambda found, names: found.dtype == np.float32 and len(found) > 0,
    "conversation.Sample(sampler)": is_a(int),
    "conversation.ConversationId": lambda found, names: found.startswith("conversation "),
    "conversation.Fork()": conversation,
    "conversation.Save(path)": written,
    "conversation.Save()": lambda found, names: found.messages == names["messages"],
    "state.Size": is_a(int),
    "batchedExecutor.Load(path)": conversation,
    "batchedExecutor.Load(state)": conversation,
    "conversation.Rewind(tokens)": lambda found, names: names["context"].memory.seq_pos_max(0) == 1,
    "conversation.Modify(modifier)": equals(None),
    "kv.Remove(start, count)": lambda found, names: names["context"].memory.seq_pos_max(0) == 2,
    "kv.Add(start, end, delta)": lambda found, names: names["context"].memory.seq_pos_max(0) == 3,
    "kv.Divide(start, end, divisor)": lambda found, names: names["context"].memory.seq_pos_max(0) == 1,
    "conversation.TokenCount": lambda found, names: found > 3,
    "conversation.Dispose()": closed,
    "conversation.IsDisposed": equals(False),
    "batchedExecutor.BatchQueueCount": equals(0),
    "context.Tokenize(text)": ids,
    "new LLamaTemplate(weights)": lambda found, names: "Be brief." in found,
    "new LLamaEmbedder(weights, params)": embeds,
}


def test_every_row_is_checked() -> None:
    assert [theirs for theirs, ours in ROWS.items() if ours is not None] == list(CHECKS)


@pytest.mark.parametrize("theirs", CHECKS)
def test_row(theirs: str, names: Names) -> None:
    assert true(CHECKS[theirs](value_of(str(ROWS[theirs]), names), names), names)
