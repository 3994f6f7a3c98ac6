"""Every row of the table for node-llama-cpp, as it stands there."""

from __future__ import annotations

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
    written,
)

from causerie import llama

ROWS = table("node-llama-cpp")
CHECKS: dict[str, Any] = {
    "getLlama()": lambda found, names: "cpu" in found,
    "resolveModelFile(uri)": lambda found, names: found == names["path"],
    "llama.loadModel({modelPath})": is_a(llama.Model),
    "model.createContext({contextSize: 128, sequences: 2})": engine,
    "model.createContext({lora: path})": lambda found, names: (
        len(found.conversation().adapters) == 1 and engine(found, names)
    ),
    "context.getSequence()": conversation,
    "new LlamaChatSession({contextSequence, systemPrompt})": lambda found, names: found.messages[0].role == "system",
    "new LlamaChatSession({contextSequence, chatWrapper})": lambda found, names: (
        found.render("Hi.") == "user: Hi.\nassistant:"
    ),
    "new LlamaChatSession({contextSequence, contextShift})": conversation,
    "session.prompt(text)": is_a(str),
    "session.promptWithMeta(text)": reply,
    "meta.stopReason": lambda found, names: found in {"stop", "length"},
    "session.prompt(text, {onTextChunk})": chunks,
    "session.prompt(text, {signal})": usable,
    "session.prompt(text, {responsePrefix})": reply,
    "session.prompt(text, {budgets: {thoughtTokens: 20}})": reply,
    "session.prompt(text, {maxTokens, temperature, topK, topP, minP, seed})": reply,
    "session.prompt(text, {customStopTriggers})": lambda found, names: "." not in found.text,
    "session.prompt(text, {repeatPenalty})": reply,
    "session.prompt(text, {tokenBias})": reply,
    "llama.createGrammar({grammar})": lambda found, names: found.text == "yes",
    "llama.createGrammarForJsonSchema(schema)": lambda found, names: found in {"yes", "no"},
    "defineChatSessionFunction({description, params, handler})": lambda found, names: found.name == "weather",
    "session.prompt(text, {functions})": answered,
    "session.prompt(text, {functions, maxParallelFunctionCalls: 1})": answered,
    "session.prompt(text, {functions, onFunctionCallParamsChunk})": lambda found, names: (
        {"tool_call_delta"} <= {chunk.kind for chunk in found}
    ),
    "session.preloadPrompt(text)": usable,
    "session.getChatHistory()": lambda found, names: found == names["messages"],
    "session.setChatHistory(history)": conversation,
    "session.resetChatHistory()": told("system"),
    "session.getLastEvaluationContextWindow()": lambda found, names: "Be brief." in found,
    "session.dispose()": closed,
    "session.disposed": equals(False),
    "session.model, session.context": is_a(llama.Model),
    "sequence.evaluate(tokens)": lambda found, names: names["context"].memory.seq_pos_max(0) == 3,
    "sequence.evaluateWithoutGeneratingNewTokens(tokens)": usable,
    "sequence.controlledEvaluate(input)": lambda found, names: found.shape == (names["model"].vocab.n_tokens,),
    "sequence.eraseContextTokenRanges(ranges)": lambda found, names: names["context"].memory.seq_pos_max(0) == 2,
    "sequence.clearHistory()": lambda found, names: names["context"].memory.seq_pos_max(0) == -1,
    "sequence.contextTokens": ids,
    "sequence.nextTokenIndex": lambda found, names: found > 3,
    "sequence.tokenMeter": is_a(int),
    "sequence.saveStateToFile(path)": written,
    "sequence.loadStateFromFile(path, {acceptRisk: true})": conversation,
    "new LlamaCompletion({contextSequence}).generateCompletion(text)": reply,
    "model.tokenize(text)": ids,
    "model.detokenize(tokens)": is_a(str),
    "model.tokens.bos": is_a(int),
    "model.fileInfo.metadata": equals("llama"),
    "model.createEmbeddingContext()": embeds,
}


def test_every_row_is_checked() -> None:
    assert [theirs for theirs, ours in ROWS.items() if ours is not None] == list(CHECKS)


@pytest.mark.parametrize("theirs", CHECKS)
def test_row(theirs: str, names: Names) -> None:
    assert CHECKS[theirs](value_of(str(ROWS[theirs]), names), names)
