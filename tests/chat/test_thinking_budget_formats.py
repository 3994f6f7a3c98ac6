"""The end of the thinking, put in where llama.cpp's grammar of each template's format has seen its beginning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from causerie.chat import ChatTemplate, Message
from causerie.chat.reply_grammar import answer_grammar, thinking_section, tools_grammar
from causerie.chat.text_ids import text_ids
from causerie.chat.thinking_budget import ThinkingBudget
from causerie.errors import TemplateError, UnsupportedError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.chat import Prompt
    from causerie.llama import Vocab
    from causerie.llama.sampler import Sampler

TEMPLATES = sorted((Path(__file__).resolve().parents[2] / "vendor/llama.cpp/models/templates").glob("*.jinja"))
# Their marks are known; llama.cpp's readers of LFM2 take them for text, and Hy3's prompt ends the thinking.
UNREAD = {"LFM2-8B-A1B", "LFM2.5-Instruct", "tencent-Hy3"}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}


@pytest.fixture(scope="module")
def vocab(smollm2_path: Path) -> Iterator[Vocab]:
    with Model(smollm2_path, vocab_only=True) as model:
        yield model.vocab


def prompts(template: ChatTemplate) -> Iterator[tuple[str, Prompt]]:
    asked = [Message("user", "hi")]
    yield "plain", template.apply(asked)
    yield "tools", template.apply(asked, tools=[TOOL])
    yield "call", template.apply(asked, tools=[TOOL], tool_choice="required")


def budget(vocab: Vocab, prompt: Prompt, tokens: int) -> ThinkingBudget | None:
    section = thinking_section(prompt)
    if section is None:
        return None
    closing = text_ids(vocab, prompt.thinking_end_tags[0], trusted=True, inside=True)

    def is_thinking(begun: str) -> bool:
        return prompt.parse(f"{begun}Hm.", partial=True).thinking.endswith("Hm.")

    return ThinkingBudget(tokens, section, tuple(closing), vocab.piece, is_thinking)


def grammars(vocab: Vocab, template: ChatTemplate, what: str, prompt: Prompt) -> Iterator[Sampler]:
    if what != "plain":
        found = tools_grammar(prompt, [TOOL], required=what == "call")
    else:
        try:
            of_schema = template.apply([Message("user", "?")], response_schema={"type": "object"}).grammar
        except (UnsupportedError, TemplateError):
            return
        found = answer_grammar(prompt, 'root ::= "yes"', of_schema)
    if found is not None:
        yield found.sampler(vocab)


def thought(vocab: Vocab, prompt: Prompt) -> list[int]:
    section = thinking_section(prompt)
    assert section is not None
    opening = "" if section.begun else prompt.thinking_start_tag
    return text_ids(vocab, f"{opening}\nCold, or not?", trusted=True, inside=True)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_it_is_read_and_the_grammar_allows_it(vocab: Vocab, path: Path) -> None:
    template = ChatTemplate(path.read_text("utf-8"))
    for what, prompt in prompts(template):
        limit = budget(vocab, prompt, 3)
        if limit is None:
            assert not prompt.thinking_end_tags
            continue
        if not any(prompt.parse(f"{tag}Hm.", partial=True).thinking for tag in (prompt.thinking_start_tag, "")):
            assert path.stem in UNREAD
            continue
        said: list[int] = list(limit.begin())
        forced: tuple[int, ...] = ()
        for token in thought(vocab, prompt):
            said.append(token)
            forced = limit.after(token)
            if forced:
                break
        assert forced, what
        text = b"".join(map(vocab.piece, (*said, *forced))).decode()
        read = prompt.parse(text, partial=True)
        assert "Cold" in read.thinking, (what, read)
        assert prompt.thinking_end_tags[0].strip() not in read.thinking + read.text
        for grammar in grammars(vocab, template, what, prompt):
            with grammar:
                for token in (*said, *forced):
                    grammar.accept(token)
