"""Chat templates as the conversation layer sees them: messages in, a `Prompt` out."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from causerie.chat import ChatTemplate, Message, Prompt, ToolCall
from causerie.errors import ClosedError, TemplateError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

LLAMA = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models"
SHIPPED = sorted((LLAMA / "templates").glob("*.jinja"))
PLAIN = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
USER = Message("user", "Hello 🦙")


def shipped(name: str) -> ChatTemplate:
    return ChatTemplate((LLAMA / "templates" / f"{name}.jinja").read_text("utf-8"))


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, vocab_only=True) as loaded:
        yield loaded


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_template_that_llama_cpp_ships_gives_a_prompt(path: Path) -> None:
    with ChatTemplate(path.read_text("utf-8"), bos_token="<s>", eos_token="</s>") as template:
        prompt = template.apply([USER])
        assert isinstance(prompt, Prompt)
        assert "Hello 🦙" in prompt.text
        assert prompt.format
        assert prompt.text.endswith(prompt.generation_prompt)


class TestApply:
    def test_takes_messages_and_dicts_alike(self) -> None:
        template = ChatTemplate(PLAIN, bos_token="<s>")
        given: list[Any] = [USER, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Why?"}]
        assert template.apply(given).text == "<s>[user]Hello 🦙[assistant]Hi[user]Why?"

    def test_of_a_models_own_template_needs_no_weights(self, model: Model) -> None:
        with ChatTemplate.from_model(model) as template:
            assert template.source == model.chat_template()
            text = template.apply([USER]).text
            assert text.endswith("<|im_start|>user\nHello 🦙<|im_end|>\n<|im_start|>assistant\n")
            assert text == template.apply([USER], add_generation_prompt=False).text + "<|im_start|>assistant\n"

    def test_passes_variables(self) -> None:
        assert ChatTemplate("{{ colour }} {{ n + 1 }}").apply([USER], colour="red", n=1).text == "red 2"

    def test_turns_thinking_on_and_off(self) -> None:
        template = shipped("Qwen-Qwen3-0.6B")
        on, off = template.apply([USER]), template.apply([USER], thinking=False)
        assert on.supports_thinking
        assert (on.thinking_start_tag, on.thinking_end_tags) == ("<think>", ("</think>",))
        assert off.text.endswith("<think>\n\n</think>\n\n")
        assert template.apply([USER], thinking=True) == on

    def test_tells_how_a_reply_with_tool_calls_looks(self) -> None:
        template = shipped("Qwen-Qwen2.5-7B-Instruct")
        auto = template.apply([USER], tools=[TOOL])
        assert "Tells the weather" in auto.text
        assert auto.grammar
        assert auto.grammar_lazy
        assert auto.grammar_triggers
        assert not template.apply([USER], tools=[TOOL], tool_choice="required").grammar_lazy
        assert template.apply([USER]).grammar == ""

    def test_renders_calls_and_their_results(self) -> None:
        call = Message("assistant", tool_calls=(ToolCall("abcdefghi", "weather", {"place": "Łódź"}),))
        result = Message("tool", "sunny", tool_call_id="abcdefghi", name="weather")
        text = shipped("Qwen-Qwen2.5-7B-Instruct").apply([USER, call, result], tools=[TOOL]).text
        assert '{"name": "weather", "arguments": {"place": "Łódź"}}' in text
        assert "<tool_response>\nsunny\n</tool_response>" in text

    def test_makes_a_grammar_of_a_schema(self) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        prompt = ChatTemplate(PLAIN).apply([USER], response_schema=schema)
        assert "integer" in prompt.grammar
        assert not prompt.grammar_lazy
        assert prompt.parse('{"n": 1}') == Message("assistant", '{"n": 1}')

    def test_tells_what_a_template_raises(self) -> None:
        with pytest.raises(TemplateError, match="roles must alternate"):
            ChatTemplate("{{ raise_exception('roles must alternate') }}").apply([USER])

    @pytest.mark.parametrize("messages", ["text", USER, [1], [{"role": "user"}], [{"role": "boss", "content": "x"}]])
    def test_refuses_what_are_no_messages(self, messages: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            ChatTemplate(PLAIN).apply(messages)


class TestTemplate:
    def test_knows_its_capabilities(self) -> None:
        qwen, plain = shipped("Qwen-Qwen3-0.6B").capabilities, ChatTemplate(PLAIN).capabilities
        assert qwen["supports_tools"]
        assert qwen["supports_thinking"]
        assert not plain["supports_tools"]
        assert not plain["supports_thinking"]

    @pytest.mark.parametrize("source", ["", "{{", "a\0b"])
    def test_that_is_none_is_refused(self, source: str) -> None:
        with pytest.raises(TemplateError):
            ChatTemplate(source)

    def test_that_a_model_does_not_have_is_refused(self, model: Model) -> None:
        with pytest.raises(TemplateError, match="named 'nowhere'"):
            ChatTemplate.from_model(model, "nowhere")
        with Model(LLAMA / "ggml-vocab-llama-spm.gguf", vocab_only=True) as bare, pytest.raises(TemplateError):
            ChatTemplate.from_model(bare)

    def test_that_is_closed_says_so(self) -> None:
        template = ChatTemplate(PLAIN)
        template.close()
        template.close()
        with pytest.raises(ClosedError):
            template.apply([USER])
        with pytest.raises(ClosedError), template:
            pass

    def test_dies_with_its_last_reference(self) -> None:
        gc.disable()
        try:
            template = ChatTemplate(PLAIN)
            gone = weakref.ref(template)
            template.apply([USER])
            del template
            assert gone() is None
        finally:
            gc.enable()
