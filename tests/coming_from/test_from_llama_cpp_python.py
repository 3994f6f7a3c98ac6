"""Every row of the table for llama-cpp-python, as it stands there."""

from __future__ import annotations

from typing import Any

import pytest
from coming_from_rows import (
    Names,
    answered,
    chunks,
    closed,
    embeds,
    engine,
    equals,
    ids,
    is_a,
    reply,
    table,
    told,
    value_of,
)

from causerie import llama

ROWS = table("llama-cpp-python")


def a_value(found: Any, names: Names) -> bool:
    return found in {"yes", "no"}


CHECKS: dict[str, Any] = {
    "Llama(model_path=path, n_ctx=128)": engine,
    "Llama.from_pretrained(repo_id, filename)": lambda found, names: found == names["path"],
    'Llama(chat_format="chatml")': lambda found, names: found.render("Hi.") == "user: Hi.\nassistant:",
    "llm.create_chat_completion(messages)": reply,
    "llm.create_chat_completion(messages, stream=True)": chunks,
    'llm.create_chat_completion(messages, response_format={"type": "json_object", "schema": schema})': a_value,
    "llm.create_chat_completion(messages, logprobs=True, top_logprobs=2)": lambda found, names: len(found[0].top) == 2,
    "llm.create_chat_completion(messages, logit_bias={5: -100})": reply,
    'llm.create_chat_completion(messages, stop=["."])': lambda found, names: "." not in found.text,
    "llm.create_chat_completion(messages, logits_processor=[function])": reply,
    "llm.create_chat_completion(messages, repeat_penalty=1.1, mirostat_mode=2)": reply,
    'llm.create_chat_completion(messages, tools=tools, tool_choice="required")': lambda found, names: (
        {call.name for call in found.tool_calls} == {"weather"}
    ),
    "llm.create_chat_completion(messages, functions=functions)": answered,
    "llm.create_completion(prompt)": lambda found, names: reply(found, names) and found.usage.prompt_tokens <= 4,
    "llm(prompt, stream=True)": chunks,
    "llm.create_completion(prompt, echo=True)": lambda found, names: "Be brief." in found,
    "LlamaGrammar.from_string(text)": lambda found, names: found.text == "yes",
    "LlamaGrammar.from_json_schema(text)": a_value,
    'llm.tokenize(b"Hi.")': ids,
    "llm.detokenize(tokens)": is_a(str),
    "llm.token_bos(), llm.token_eos()": lambda found, names: all(isinstance(token, int) for token in found),
    "llm.n_ctx(), llm.n_vocab(), llm.n_embd()": lambda found, names: all(found),
    "llm.metadata": equals("llama"),
    "llm.eval(tokens)": lambda found, names: names["context"].memory.seq_pos_max(0) == 3,
    "llm.sample(temp=0)": is_a(int),
    "llm.generate(tokens)": reply,
    "llm.n_tokens": lambda found, names: found > 3,
    "llm.input_ids": ids,
    "llm.scores": lambda found, names: found.shape == (names["model"].vocab.n_tokens,),
    "llm.tokenizer()": is_a(llama.Vocab),
    "llm.reset()": told("system"),
    "llm.set_seed(1)": lambda found, names: (
        found.text == names["engine"].conversation(messages=names["messages"]).send("Hi.", seed=1).text
    ),
    "llm.save_state()": is_a(bytes),
    "llm.load_state(state)": lambda found, names: names["context"].memory.seq_pos_max(0) == 2,
    "llm.embed(text)": embeds,
    "Llama(lora_path=path, lora_scale=0.5)": lambda found, names: (
        found.conversation().adapters[0].scale == 0.5 and engine(found, names)
    ),
    "llm.close()": closed,
}


def test_every_row_is_checked() -> None:
    assert [theirs for theirs, ours in ROWS.items() if ours is not None] == list(CHECKS)


@pytest.mark.parametrize("theirs", CHECKS)
def test_row(theirs: str, names: Names) -> None:
    assert CHECKS[theirs](value_of(str(ROWS[theirs]), names), names)
