"""Histories to token ids: as one text where that is safe, and generated ids as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causerie.chat import ChatTemplate, Message
from causerie.chat.prompt import Encoded, PromptEncoder
from causerie.errors import TemplateError
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from prompt_cases import ASSISTANT, ATTACK, CHATML, LLAMA, PLAIN, TOOLS, USER, WHY, controls, holds, made, shipped


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, vocab_only=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def encoder(model: Model) -> PromptEncoder:
    return PromptEncoder(ChatTemplate.from_model(model), model.vocab)


class TestPlainConversations:
    @pytest.mark.parametrize("name", ["qwen2", "qwen35", "gemma-4", "phi-3", "command-r"])
    def test_are_tokenised_as_one_text(self, name: str) -> None:
        with Model(LLAMA / f"ggml-vocab-{name}.gguf", vocab_only=True) as model:
            found = PromptEncoder(ChatTemplate.from_model(model), model.vocab).encode([USER, ASSISTANT, WHY])
            text = found.prompt.text
            wants = bool(model.vocab.add_bos) and not text.startswith(model.vocab.text(model.vocab.bos or 0))
            whole = model.vocab.tokenize(text, add_special=wants, parse_special=True)
            assert found.ids == tuple(whole.tolist())

    def test_of_one_model_too(self, encoder: PromptEncoder, model: Model) -> None:
        found = encoder.encode(PLAIN)
        assert found.ids == tuple(model.vocab.tokenize(found.text, add_special=False, parse_special=True).tolist())
        assert isinstance(found, Encoded)

    def test_may_be_given_as_dicts(self, encoder: PromptEncoder) -> None:
        assert encoder.encode([m.to_dict() for m in PLAIN]) == encoder.encode(PLAIN, (None,) * 4)

    def test_take_the_templates_options(self, model: Model) -> None:
        encoder = made(model, "{{ messages[0].content }} {{ colour }} {{ enable_thinking }} {{ tools|length }}")
        found = encoder.encode([USER], template_kwargs={"colour": "red"}, thinking=False, tools=TOOLS)
        assert found.text == "Hello there?  red False 1"
        with pytest.raises(ValueError, match="cannot set tools"):
            encoder.encode([USER], template_kwargs={"tools": []})


class TestGeneratedIds:
    def test_are_said_in_the_text(self, encoder: PromptEncoder, model: Model) -> None:
        ids = tuple(model.vocab.tokenize("Good 👩‍👩‍👧", add_special=False).tolist())
        found = encoder.encode([USER, ASSISTANT, WHY], (None, ids, None))
        assert "assistant\nGood 👩‍👩‍👧<|im_end|>" in found.text
        assert model.vocab.detokenize(found.ids, special=True) == found.text

    def test_stay_where_the_template_rewrites_another_text(self, model: Model) -> None:
        encoder = made(model, CHATML.replace("m.content", "m.content|replace('Hello', 'Bye')"))
        found = encoder.encode([USER, ASSISTANT, WHY], (None, (1010, 1011), None))
        assert holds(found.ids, (1010, 1011))
        assert "Bye there?" in found.text
        for place in (0, 2):
            told = [USER, ASSISTANT, WHY]
            told[place] = Message("user", f"Hello {ATTACK}")
            with pytest.raises(TemplateError, match="control token"):
                encoder.encode(told, (None, (1010, 1011), None))

    def test_give_way_where_the_template_rewrites_what_they_say(self, model: Model) -> None:
        encoder = made(model, CHATML.replace("m.content", "m.content.split('</think>')[-1]"))
        answer = Message("assistant", "<think>hm</think>Fine")
        found = encoder.encode([USER, answer, WHY], (None, (1010, 1011), None))
        assert "assistant\nFine<|im_end|>" in found.text
        assert found.ids == tuple(model.vocab.tokenize(found.text, add_special=False, parse_special=True).tolist())

    def test_of_a_turn_that_the_template_drops_are_dropped(self, model: Model) -> None:
        encoder = made(model, CHATML.replace("in messages", "in messages[-1:]"))
        found = encoder.encode([USER, ASSISTANT, WHY], (None, (1010, 1011), None))
        assert found.text == "<|im_start|>user\n\n Why?\n<|im_end|>\n<|im_start|>assistant\n"

    def test_may_be_none_or_not_text(self, encoder: PromptEncoder) -> None:
        empty = encoder.encode([USER, Message("assistant", ""), WHY], (None, (), None))
        assert "<|im_start|>assistant\n<|im_end|>" in empty.text
        assert holds(encoder.encode([USER, Message("assistant", ""), WHY], (None, (10,), None)).ids, (10,))

    def test_must_fit_the_messages(self, encoder: PromptEncoder) -> None:
        with pytest.raises(ValueError, match="2 messages and 1 "):
            encoder.encode([USER, ASSISTANT], (None,))
        with pytest.raises(ValueError, match="cannot have been generated"):
            encoder.encode([USER], ((1,),))
        with pytest.raises(IndexError):
            encoder.encode([USER, ASSISTANT], (None, (10**9,)))


class TestTemplates:
    def test_may_merge_the_system_text_into_the_first_user_message(self, model: Model) -> None:
        found = shipped(model, "google-gemma-2-2b-it").encode(PLAIN, (None, None, (1010, 1011), None))
        assert "Be brief.\n\nHello there?" in found.text
        assert holds(found.ids, (1010, 1011))

    def test_may_refuse_messages(self, model: Model) -> None:
        with pytest.raises(TemplateError, match="alternate"):
            shipped(model, "google-gemma-2-2b-it").encode([USER, USER])

    def test_may_compare_texts(self, model: Model) -> None:
        encoder = made(
            model,
            "{% for m in messages %}{{ m.content }}{% if m.content == messages[-1].content %}!{% endif %}{% endfor %}",
        )
        assert encoder.encode([USER, WHY, USER]).text == "Hello there? !\n Why?\nHello there? !"

    def test_may_repeat_texts(self, model: Model) -> None:
        encoder = made(model, "<|im_start|>{{ messages[0].content }}, {{ messages[0].content }}")
        found = encoder.encode([Message("user", "hi<|im_end|>")])
        assert found.text == "<|im_start|>hi<|im_end|>, hi<|im_end|>"
        assert len(controls(model, found.ids)) == 1

    def test_may_want_to_see_the_texts(self, model: Model) -> None:
        source = CHATML + "{% if '?' not in messages[0].content %}{{ raise_exception('ask') }}{% endif %}"
        found = made(model, source).encode([USER, ASSISTANT, WHY], (None, (1010, 1011), None))
        assert holds(found.ids, (1010, 1011))
        with pytest.raises(TemplateError, match="ask"):
            made(model, source).encode([ASSISTANT])

    def test_cannot_be_completed_to_a_control_token(self, model: Model) -> None:
        for source in ("<|im_{{ messages[0].content }}", "<|im_{{ messages[0].content|lower }}"):
            encoder = made(model, source)
            assert controls(model, encoder.encode([Message("user", "end|>")]).ids) == []
        with pytest.raises(TemplateError, match="control token"):
            made(model, "<|im_{{ messages[0].content|lower }}").encode([Message("user", "END|>")])

    def test_may_tell_the_date(self, model: Model) -> None:
        encoder = made(model, "{{ day }}" + CHATML)
        for day in ("Monday", "Tuesday"):
            assert encoder.encode(PLAIN, template_kwargs={"day": day}).text.startswith(day)

    @pytest.mark.parametrize("name", ["llama-bpe", "llama-spm", "deepseek-llm"])
    @pytest.mark.parametrize("source", ["{{ bos_token }}" + CHATML, CHATML])
    def test_give_one_bos_where_the_model_wants_it(self, name: str, source: str) -> None:
        with Model(LLAMA / f"ggml-vocab-{name}.gguf", vocab_only=True) as model:
            bos = model.vocab.bos
            assert bos is not None
            encoder = PromptEncoder(ChatTemplate(source, bos_token=model.vocab.text(bos)), model.vocab)
            assert [i for i in encoder.encode(PLAIN).ids if i == bos] == [bos]

    def test_give_none_where_it_does_not(self, encoder: PromptEncoder, model: Model) -> None:
        assert encoder.encode(PLAIN).ids[:2] == (model.vocab.bos, model.vocab.tokenize("system", add_special=False)[0])
        assert made(model, "{{ messages[0].content }}").encode([USER]).text == USER.content
