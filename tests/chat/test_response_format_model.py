"""A real model at temperature 2, where it would write anything: whatever ends is what was asked for."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import annotated_types as at
import pydantic
import pytest

from causerie import Engine
from causerie.chat.response_format import Choices, Grammar, Regex, as_response_format
from causerie.chat.schema.validation import SchemaValidator


@pytest.fixture(scope="module")
def engine(smollm2_path):
    with Engine(smollm2_path, n_ctx=2048, n_threads=1) as made:
        yield made


@dataclass
class City:
    name: Annotated[str, at.MaxLen(9)]
    people: Annotated[int, at.Ge(0), at.Lt(1000)]
    climate: Literal["hot", "cold"] = "hot"


class Film(TypedDict):
    title: Annotated[str, at.MinLen(1), at.MaxLen(9)]
    score: Annotated[float, at.Gt(0), at.Le(10)]


class User(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8, pattern="^[A-Z][a-z]+$")
    age: int = pydantic.Field(ge=18, le=99)


SCHEMA = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "format": "date"},
        "at": {"prefixItems": [{"type": "integer", "minimum": -5, "maximum": 5}, {"type": "boolean"}]},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "required": ["at", "tree"],
    "$defs": {
        "tree": {
            "oneOf": [
                {"type": "null"},
                {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "required": ["next"]},
            ]
        }
    },
}
FORMS = {
    "schema": SCHEMA, "dataclass": City, "TypedDict": Film, "pydantic": User, "regex": Regex(r"(Mr|Mrs) [A-Z][a-z]{1,6}\."),
    "choices": Choices(["yes", "no", 'a "b"\n\\', "é😀"]), "grammar": Grammar('root ::= ("a" | "b") [0-9]{2,3} "."'),
}  # fmt: skip


def check(kind, form, text):
    value = form.parse(text)
    assert value is not None
    if form.schema is not None:
        SchemaValidator(form.schema).check(json.loads(text))
    if kind in {"dataclass", "pydantic"}:
        assert isinstance(value, FORMS[kind])
    if kind == "regex":
        assert re.fullmatch(FORMS[kind].pattern, text)
    if kind == "grammar":
        assert re.fullmatch(r"[ab][0-9]{2,3}\.", text)


@pytest.mark.parametrize("kind", FORMS)
def test_replies_keep_to_the_form(engine, kind):
    form = as_response_format(FORMS[kind])

    async def one(seed):
        chat = engine.conversation()
        options = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed, "max_tokens": 60}
        reply = await chat.asend("Invent one, as JSON.", grammar=form.grammar, **options)
        chat.close()
        return reply

    async def several():
        return await asyncio.gather(*(one(seed) for seed in range(4)))

    for reply in asyncio.run(several()):
        if reply.finish_reason == "stop":
            check(kind, form, reply.text)
        else:
            assert reply.finish_reason == "length"
            if form.schema is not None:
                json.loads(form.repair(reply.text))


def test_an_unlikely_choice_is_made_without_a_word_more(engine):
    chat = engine.conversation()
    reply = chat.send("What is two and two?", grammar=as_response_format(Choices(["Zürich"])).grammar, max_tokens=20)
    assert (reply.text, reply.finish_reason) == ("Zürich", "stop")
