"""Every row of the table for what ModelFarm has besides its ChatModel, as it stands there."""

from __future__ import annotations

from typing import Any

import pytest
from coming_from_rows import Names, chunks, conversation, embeds, reply, table, value_of

ROWS = table("Replit's ModelFarm")


def plain(found: Any, names: Names) -> bool:
    return reply(found, names) and found.usage.prompt_tokens <= 4


CHECKS: dict[str, Any] = {
    "Modelfarm().chat.completions.create(messages=messages, model=name)": reply,
    "Modelfarm().chat.completions.create(messages=messages, model=name, stream=True)": chunks,
    "AsyncModelfarm().chat.completions.create(messages=messages, model=name)": reply,
    "AsyncModelfarm().chat.completions.create(messages=messages, model=name, stream=True)": chunks,
    "Modelfarm().completions.create(prompt=text, model=name)": plain,
    "CompletionModel(name).complete(prompts)": plain,
    "CompletionModel(name).async_complete(prompts)": plain,
    "CompletionModel(name).stream_complete(prompts)": chunks,
    "CompletionModel(name).async_stream_complete(prompts)": chunks,
    "TextGenerationModel.from_pretrained(name).predict(prompt)": plain,
    "EmbeddingModel(name).embed(content)": embeds,
    "ChatModel.from_pretrained(name).start_chat(context, examples, message_history)": conversation,
    "chatSession.send_message(message)": reply,
    "chatSession.async_send_message(message)": reply,
    "chatSession.send_message_stream(message)": chunks,
    "chatSession.async_send_message_stream(message)": chunks,
    "chatSession.message_history": lambda found, names: found == names["messages"],
}


def test_every_row_is_checked() -> None:
    assert [theirs for theirs, ours in ROWS.items() if ours is not None] == list(CHECKS)


@pytest.mark.parametrize("theirs", CHECKS)
def test_row(theirs: str, names: Names) -> None:
    assert CHECKS[theirs](value_of(str(ROWS[theirs]), names), names)
