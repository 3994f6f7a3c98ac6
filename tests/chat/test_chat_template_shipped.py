"""Every template that llama.cpp ships renders what its capabilities promise; the few refusals are listed here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from causerie.chat import ChatTemplate, Message, ToolCall
from causerie.chat.prompt import PromptEncoder
from causerie.errors import TemplateError, UnsupportedError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

LLAMA = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models"
SHIPPED = sorted(path.stem for path in (LLAMA / "templates").glob("*.jinja"))
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SYSTEM, USER = Message("system", "Be brief."), Message("user", "Hello 🦙")
CALL = Message("assistant", tool_calls=(ToolCall("abcdefghi", "weather", {"place": "Oslo"}),))
RESULT = Message("tool", "sunny", tool_call_id="abcdefghi", name="weather")

# Templates that know of no tools, and what becomes of a tool's message.
DROPS_RESULTS = {"llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"}
REFUSES_RESULTS = {"google-gemma-2-2b-it"}
KNOWS_NO_SCHEMA = {
    "GigaChat3-10B-A1.8B",
    "Kimi-K2-Instruct",
    "Kimi-K2-Thinking",
    "Kimi-K3",
    "inclusionai-ling-3.0-flash",
    "meetkai-functionary-medium-v3.2",
    "moonshotai-Kimi-K2",
}


@pytest.fixture(params=SHIPPED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def template(name: str) -> Iterator[ChatTemplate]:
    source = (LLAMA / "templates" / f"{name}.jinja").read_text("utf-8")
    with ChatTemplate(source, bos_token="<s>", eos_token="</s>") as loaded:
        yield loaded


class TestEachShippedTemplate:
    def test_renders_plain_and_system_messages(self, template: ChatTemplate) -> None:
        assert "Hello 🦙" in template.apply([USER]).text
        text = template.apply([SYSTEM, USER]).text
        assert text.index("Be brief.") < text.index("Hello 🦙")
        longer = template.apply([USER, Message("assistant", "Hi!"), Message("user", "Why?")]).text
        assert longer.index("Hello 🦙") < longer.index("Hi!") < longer.index("Why?")

    def test_offers_tools_if_it_knows_them(self, template: ChatTemplate) -> None:
        can = template.capabilities
        prompt = template.apply([USER], tools=[TOOL])
        assert ("Tells the weather" in prompt.text) or not can["supports_tools"]
        assert (
            bool(template.apply([USER], tools=[TOOL], tool_choice="required").grammar) or not can["supports_tool_calls"]
        )
        assert template.apply([USER], tools=[TOOL], tool_choice="none").grammar == ""

    def test_renders_a_call_and_its_result(self, template: ChatTemplate, name: str) -> None:
        for tools in ([TOOL], []):
            if name in REFUSES_RESULTS:
                with pytest.raises(TemplateError, match="roles must alternate"):
                    template.apply([USER, CALL, RESULT], tools=tools)
                continue
            text = template.apply([USER, CALL, RESULT], tools=tools).text
            assert ("Oslo" in text) or not template.capabilities["supports_tool_calls"]
            assert ("sunny" in text) == (name not in DROPS_RESULTS)

    def test_turns_thinking_on_and_off(self, template: ChatTemplate) -> None:
        on, off = template.apply([USER], thinking=True), template.apply([USER], thinking=False)
        assert "Hello 🦙" in on.text
        assert "Hello 🦙" in off.text
        assert on.supports_thinking == template.capabilities["supports_thinking"]
        assert template.apply([USER]) == on

    def test_takes_a_schema_or_says_that_it_cannot(self, template: ChatTemplate, name: str) -> None:
        if name in KNOWS_NO_SCHEMA:
            with pytest.raises(UnsupportedError, match="give a grammar"):
                template.apply([USER], response_schema=SCHEMA)
        else:
            prompt = template.apply([USER], response_schema=SCHEMA)
            assert "integer" in prompt.grammar
            assert not prompt.grammar_lazy
        with pytest.raises(UnsupportedError, match="or call tools"):
            template.apply([USER], response_schema=SCHEMA, tools=[TOOL])

    def test_continues_the_last_message(self, template: ChatTemplate) -> None:
        prompt = template.apply([USER, Message("assistant", "It has")], continue_final_message=True)
        assert prompt.text.endswith("It has")

    def test_gives_the_same_prompt_from_memory(self, template: ChatTemplate, name: str) -> None:
        history = [SYSTEM, USER, Message("assistant", "Hi!", thinking="Hm."), Message("user", "Why?")]
        if name not in REFUSES_RESULTS:
            history += [CALL, RESULT]
        for tools in ([], [TOOL]):
            for begin in (True, False):
                for end in range(2, len(history) + 1):
                    options = {"tools": tools, "add_generation_prompt": begin, "now": 0}
                    template.apply([USER], **options)
                    again = template.apply(history[:end], **options)
                    with ChatTemplate(template.source, bos_token="<s>", eos_token="</s>") as fresh:
                        assert again == fresh.apply(history[:end], **options)

    def test_begins_with_one_bos(self, name: str) -> None:
        source = (LLAMA / "templates" / f"{name}.jinja").read_text("utf-8")
        with Model(LLAMA / "ggml-vocab-llama-bpe.gguf", vocab_only=True) as model:
            vocab = model.vocab
            assert vocab.bos is not None
            with ChatTemplate(source, bos_token=vocab.text(vocab.bos)) as template:
                ids = PromptEncoder(template, vocab).encode([USER]).ids
                assert list(ids).count(vocab.bos) == 1
                assert ids[0] == vocab.bos
