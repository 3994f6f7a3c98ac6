"""Exactly one BOS where the vocabulary wants one, whatever template, tokenizer and override say; else what the template writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from prompt_cases import CHATML, LLAMA, PLAIN, TOOLS, USER

from causerie.chat import ChatTemplate
from causerie.chat.prompt import PromptEncoder
from causerie.llama import Model, Vocab

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCABS = ("llama-bpe", "llama-spm", "gemma-4", "phi-3", "qwen2")
ALWAYS = {"gemma-4"}  # llama.cpp wants one whatever the file says
TEMPLATES = {
    "with": "{{ bos_token }}" + CHATML,
    "without": CHATML,
    "literally": "LITERAL" + CHATML,
    "before a blank": "{{ bos_token }} " + CHATML,
    "for tools": "{% if tools %}{{ bos_token }}{% endif %}" + CHATML,
}


@pytest.fixture(scope="module", params=VOCABS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[None, True, False], ids=["as the file says", "wanted", "unwanted"])
def vocab(request: pytest.FixtureRequest, name: str) -> Iterator[Vocab]:
    """A vocabulary that wants a BOS, wants none, or what its file says."""
    overrides = {} if request.param is None else {"tokenizer.ggml.add_bos_token": request.param}
    with Model(LLAMA / f"ggml-vocab-{name}.gguf", vocab_only=True, kv_overrides=overrides) as model:
        assert request.param in (None, model.vocab.add_bos) or name in ALWAYS
        yield model.vocab


def text_of_bos(vocab: Vocab) -> str:
    assert vocab.bos is not None
    return vocab.text(vocab.bos)


def begins(vocab: Vocab, encoder: PromptEncoder, **options: object) -> tuple[int, int]:
    """How many BOS there are in front, and in all."""
    ids = np.asarray(encoder.encode(PLAIN, **options).ids)  # type: ignore[arg-type]
    own = ids == vocab.bos
    return int(own[:1].sum()), int(own.sum())


@pytest.mark.parametrize("source", TEMPLATES)
@pytest.mark.parametrize("tools", [False, True])
def test_each_combination(vocab: Vocab, source: str, tools: bool) -> None:
    text = text_of_bos(vocab)
    template = ChatTemplate(TEMPLATES[source].replace("LITERAL", text), bos_token=text)
    written = source in ("with", "literally", "before a blank") or (source == "for tools" and tools)
    expected = int(vocab.add_bos or written)
    encoder = PromptEncoder(template, vocab)
    options = {"tools": TOOLS} if tools else {}
    assert begins(vocab, encoder, **options) == (expected, expected)
    assert begins(vocab, encoder, **options, add_generation_prompt=False) == (expected, expected)


def test_of_a_message_is_text(vocab: Vocab) -> None:
    text = text_of_bos(vocab)
    encoder = PromptEncoder(ChatTemplate("{{ messages[0].content }}", bos_token=text), vocab)
    ids = encoder.encode([{"role": "user", "content": text + str(USER.content)}]).ids
    assert list(ids).count(vocab.bos) == int(vocab.add_bos)
