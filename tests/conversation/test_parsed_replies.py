"""Replies as objects: `response_format` per call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

import causerie
from causerie import SchemaError

if TYPE_CHECKING:
    from causerie import Engine


@dataclass
class City:
    """A city that the model invents."""

    name: str
    size: Literal["small", "large"]


FREE = {"temperature": 2.0, "max_tokens": 120}


class TestResponseFormat:
    @pytest.mark.parametrize("seed", range(3))
    def test_a_type_gives_an_object(self, engine: Engine, seed: int) -> None:
        reply = engine.conversation().send("Invent a city.", response_format=City, seed=seed, **FREE)
        if reply.finish_reason == "stop":
            assert isinstance(reply.parsed, City)
            assert reply.parsed.size in {"small", "large"}
        else:
            assert reply.parsed is None

    @pytest.mark.parametrize("seed", range(3))
    def test_choices_and_patterns_give_text(self, engine: Engine, seed: int) -> None:
        chat = engine.conversation()
        choice = chat.send("Yes or no?", response_format=causerie.Choices(["yes", "no"]), seed=seed, **FREE)
        assert (choice.finish_reason, choice.parsed) == ("stop", choice.text)
        assert choice.text in {"yes", "no"}
        pattern = chat.send("A time?", response_format=causerie.Regex(r"[0-2][0-9]:[0-5][0-9]"), seed=seed, **FREE)
        assert pattern.parsed == pattern.text
        assert len(pattern.text) == len("12:34")

    def test_tokens_whose_text_nobody_sees_do_not_count(self, engine: Engine) -> None:
        vocab = engine.model.vocab
        (start,) = vocab.tokenize("<|im_start|>", add_special=False, parse_special=True).tolist()
        reply = engine.conversation().send(
            "Five letters?", response_format=causerie.Regex(r".{5}"), logit_bias={start: 90.0}, **FREE
        )
        assert reply.parsed == reply.text
        assert len(reply.text) == 5

    def test_all_calls_agree(self, engine: Engine) -> None:
        options = {"response_format": City, "seed": 5, **FREE}
        whole = engine.conversation().send("Invent a city.", **options)
        stream = engine.conversation().stream("Invent a city.", **options)
        assert "".join(chunk.text for chunk in stream) == whole.text
        assert stream.reply.parsed == whole.parsed

    def test_a_reply_that_is_cut_off_is_no_object(self, engine: Engine) -> None:
        reply = engine.conversation().send("Invent a city.", response_format=City, temperature=0, max_tokens=3)
        assert (reply.finish_reason, reply.parsed) == ("length", None)

    def test_it_is_for_one_call(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.send("Yes or no?", response_format=causerie.Choices(["yes"]))
        assert chat.send("Go on.", temperature=0, max_tokens=3).parsed is None

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"response_format": 5}, TypeError),
            ({"response_format": {"type": "object", "minProperty": 1}}, SchemaError),
            ({"response_format": City, "grammar": 'root ::= "x"'}, ValueError),
        ],
    )
    def test_what_cannot_be_is_refused_before_anything_changes(
        self, engine: Engine, options: dict[str, object], error: type[Exception]
    ) -> None:
        chat = engine.conversation()
        with pytest.raises(error):
            chat.send("Invent a city.", **options)
        assert chat.messages == ()
