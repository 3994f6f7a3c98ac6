"""What was evaluated once stays the beginning of the later prompts, and an answer can go on where it ended."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat import ChatTemplate, Message, ToolCall
from causerie.chat.prompt import PromptEncoder
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from prompt_cases import ASSISTANT, ATTACK, CHATML, LLAMA, PLAIN, SHIPPED, SYSTEM, USER, controls, made, shipped


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, vocab_only=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def encoder(model: Model) -> PromptEncoder:
    return PromptEncoder(ChatTemplate.from_model(model), model.vocab)


class TestContinuing:
    def test_ends_behind_the_generated_ids(self, encoder: PromptEncoder) -> None:
        before = encoder.encode([SYSTEM, USER])
        found = encoder.encode([SYSTEM, USER, ASSISTANT], (None, None, (1010, 1011)), continue_last=True)
        assert found.ids == (*before.ids, 1010, 1011)

    def test_ends_behind_a_persons_text(self, encoder: PromptEncoder, model: Model) -> None:
        found = encoder.encode([USER, Message("assistant", f"Sure: {ATTACK}")], continue_last=True)
        assert found.text.endswith(f"<|im_start|>assistant\nSure: {ATTACK}")
        assert len(controls(model, found.ids)) == len(controls(model, encoder.encode([USER]).ids))

    def test_keeps_the_end_that_a_template_would_trim(self, model: Model) -> None:
        encoder = made(model, CHATML.replace("m.content", "m.content|trim"))
        assert encoder.encode([USER, ASSISTANT], continue_last=True).text.endswith("assistant\nFine, thanks. ")

    @pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
    def test_works_with_every_template(self, path: Path, model: Model) -> None:
        found = shipped(model, path.stem).encode(PLAIN[:3], (None, None, (1010, 1011)), continue_last=True)
        assert found.ids[-2:] == (1010, 1011)

    def test_begins_anew_where_there_is_no_text(self, encoder: PromptEncoder) -> None:
        assert encoder.encode([USER, Message("assistant", "")], continue_last=True).ids == encoder.encode([USER]).ids

    def test_begins_anew_where_the_template_rewrites_texts(self, model: Model) -> None:
        encoder = made(model, CHATML.replace("m.content", "m.content|upper"))
        found = encoder.encode([USER, Message("assistant", "Fine<|im_end|>")], continue_last=True)
        assert found.text.endswith("HELLO THERE? <|im_end|>\n<|im_start|>assistant\nFine<|im_end|>")
        assert len(controls(model, found.ids)) == 3

    def test_needs_an_answer(self, encoder: PromptEncoder) -> None:
        call = Message("assistant", tool_calls=(ToolCall("id", "weather"),))
        for messages in ([], [USER], [USER, call]):
            with pytest.raises(ValueError, match="assistant"):
                encoder.encode(messages, continue_last=True)


odd_texts = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            [
                "<|im_end|>",
                "<|im_start|>system",
                "<|im_",
                "end|>",
                "<|",
                "👩‍👩‍👧‍👦",
                "日本語",
                "\n",
                " ",
                "\0",
                "é",
                "<s>",
                "[INST]",
            ]
        ),
    ),
    max_size=4,
).map("".join)


class _Chat:
    """A vocabulary with a template."""

    def __init__(self, path: Path, source: str | None) -> None:
        self.model = Model(path, vocab_only=True)
        vocab = self.model.vocab
        bos, eos = (vocab.text(t) for t in (vocab.bos or 0, vocab.eos or 0))
        template = (
            ChatTemplate.from_model(self.model)
            if source is None
            else ChatTemplate(source, bos_token=bos, eos_token=eos)
        )
        self.encoder = PromptEncoder(template, vocab)


@pytest.fixture(scope="module", params=["smollm2", "llama-bpe", "phi-3", "llama-spm"])
def chat(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[_Chat]:
    source = None
    if request.param == "llama-bpe":
        source = (LLAMA / "templates" / "meta-llama-Llama-3.1-8B-Instruct.jinja").read_text("utf-8")
    elif request.param == "llama-spm":
        source = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    path = smollm2_path if request.param == "smollm2" else LLAMA / f"ggml-vocab-{request.param}.gguf"
    chat = _Chat(path, source)
    with chat.model:
        yield chat


class TestPrefix:
    @settings(max_examples=25, deadline=None)
    @given(
        turns=st.lists(
            st.tuples(odd_texts, odd_texts, st.lists(st.integers(300, 30000), max_size=4).map(tuple)),
            min_size=1,
            max_size=4,
        )
    )
    def test_what_was_evaluated_stays_the_beginning(
        self, chat: _Chat, turns: list[tuple[str, str, tuple[int, ...]]]
    ) -> None:
        messages: list[Message] = []
        generated: list[tuple[int, ...] | None] = []
        before: tuple[int, ...] = ()
        for asked, answer, ids in turns:
            messages.append(Message("user", asked))
            generated.append(None)
            found = chat.encoder.encode(messages, generated)
            assert found.ids[: len(before)] == before
            before = (*found.ids, *ids)
            messages.append(Message("assistant", answer if ids else ""))
            generated.append(ids)

    @settings(max_examples=25, deadline=None)
    @given(texts=st.lists(odd_texts, min_size=1, max_size=6))
    def test_so_do_texts_that_people_wrote(self, encoder: PromptEncoder, model: Model, texts: list[str]) -> None:
        roles = ("user", "assistant")
        messages = [Message(roles[i % 2], text) for i, text in enumerate(texts)]  # type: ignore[arg-type]
        before: tuple[int, ...] = ()
        for end in range(1, len(messages) + 1):
            found = encoder.encode(messages[:end], add_generation_prompt=False)
            assert found.ids[: len(before)] == before
            assert found.text == found.prompt.text
            before = found.ids
        plain = encoder.encode([Message(m.role, "x") for m in messages], add_generation_prompt=False)
        assert controls(model, before) == controls(model, plain.ids)


class _Counting:
    """A vocabulary that counts the characters it tokenises."""

    def __init__(self, model: Model) -> None:
        self._vocab = model.vocab
        self.seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vocab, name)

    def tokenize(self, text: str, **options: bool) -> Any:
        self.seen += len(text)
        return self._vocab.tokenize(text, **options)


def test_a_turn_tokenises_what_is_new(model: Model) -> None:
    vocab = _Counting(model)
    encoder = PromptEncoder(ChatTemplate.from_model(model), vocab)  # type: ignore[arg-type]
    messages: list[Message] = []
    seen = []
    for turn in range(20):
        messages += [Message("user", f"{turn:2} question " * 20), Message("assistant", f"{turn:2} answer " * 20)]
        vocab.seen = 0
        encoder.encode(messages)
        seen.append(vocab.seen)
    assert seen[-1] <= seen[1]


def test_an_encoder_dies_with_its_last_reference(model: Model) -> None:
    gc.disable()
    try:
        encoder = PromptEncoder(ChatTemplate.from_model(model), model.vocab)
        encoder.encode(PLAIN, (None, None, (10,), None))
        gone = weakref.ref(encoder)
        del encoder
        assert gone() is None
    finally:
        gc.enable()
