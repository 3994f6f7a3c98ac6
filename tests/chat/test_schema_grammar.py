"""JSON schema as a grammar: each keyword enforced, validated afterwards, or refused; nothing passes in silence."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from random import Random

import pytest
from schema_cases import CHECKED, ENFORCED, REFUSED
from schema_sampling import GrammarSampler
from schema_sampling import walks as allows

from causerie import SchemaError, llama
from causerie.chat.response_format import as_response_format
from causerie.chat.schema.grammar import schema_to_grammar
from causerie.chat.schema.keywords import _VALUES
from causerie.chat.schema.validation import SchemaValidator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "structured-output.md"


@pytest.fixture(scope="module")
def vocab(smollm2_path):
    with llama.Model(smollm2_path, vocab_only=True) as model:
        yield model.vocab


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.keyword}-{i}") for i, c in enumerate(ENFORCED)])
def test_the_grammar_enforces_the_keyword(vocab, case):
    gbnf, checked = schema_to_grammar(case.schema)
    assert not checked
    assert [text for text in case.good if not allows(vocab, gbnf, text)] == []
    assert [text for text in case.bad if allows(vocab, gbnf, text)] == []


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.keyword}-{i}") for i, c in enumerate(ENFORCED + CHECKED)])
def test_what_the_grammar_gives_is_valid(case):
    found = as_response_format(case.schema)
    sampler = GrammarSampler(found.grammar)
    validator = SchemaValidator(case.schema)
    valid = 0
    for seed in range(30):
        text = sampler.draw(Random(seed))
        try:
            value = found.parse(text)
        except SchemaError:
            assert found.checked
            continue
        validator.check(json.loads(text))
        assert value == json.loads(text)
        valid += 1
    assert valid or found.checked


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.keyword}-{i}") for i, c in enumerate(CHECKED)])
def test_what_no_grammar_enforces_is_validated_afterwards(vocab, case):
    found = as_response_format(case.schema)
    assert any(case.keyword in path for path in found.checked)
    for text in case.good:
        assert allows(vocab, found.grammar, text)
        assert found.parse(text) == json.loads(text)
    for text in case.bad:
        assert allows(vocab, found.grammar, text)
        with pytest.raises(SchemaError):
            found.parse(text)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.keyword) for c in CHECKED])
def test_without_jsonschema_such_a_keyword_is_refused(monkeypatch, case):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(SchemaError, match=r"causerie\[schema\]") as caught:
        as_response_format(case.schema)
    assert caught.value.path.startswith("$.")
    as_response_format(ENFORCED[0].schema)


@pytest.mark.parametrize(("schema", "path"), REFUSED)
def test_what_cannot_be_enforced_is_refused_by_its_path(schema, path):
    with pytest.raises(SchemaError) as caught:
        schema_to_grammar(schema)
    assert caught.value.path == path
    assert path in str(caught.value)


def test_every_keyword_has_a_row_in_the_docs_and_a_test():
    rows = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    tested = {case.keyword for case in ENFORCED + CHECKED} | {"then", "else"}
    assert set(_VALUES) == tested
    assert documented >= tested


def test_a_property_without_a_value_that_fits_is_left_out(vocab):
    gbnf, _ = schema_to_grammar({"type": "object", "properties": {"a": False, "b": {"type": "null"}}})
    assert allows(vocab, gbnf, '{"b": null}')
    assert not allows(vocab, gbnf, '{"a": null}')


def test_names_that_look_alike_do_not_mix(vocab):
    schema = {
        "type": "object",
        "properties": {"a-b": {"type": "integer"}, "a": {"type": "object", "properties": {"b": {"type": "null"}}}},
        "required": ["a-b", "a"],
        "$defs": {"x.y": {"type": "integer"}, "x-y": {"type": "null"}},
        "additionalProperties": False,
    }
    gbnf, _ = schema_to_grammar(schema)
    assert allows(vocab, gbnf, '{"a-b": 1, "a": {"b": null}}')
    assert not allows(vocab, gbnf, '{"a-b": 1, "a": {"b": 1}}')
    twins = {"prefixItems": [{"$ref": "#/$defs/x.y"}, {"$ref": "#/$defs/x-y"}], "$defs": schema["$defs"]}
    gbnf, _ = schema_to_grammar(twins)
    assert allows(vocab, gbnf, "[1, null]")
    assert not allows(vocab, gbnf, "[1, 1]")


def test_space_is_bounded(vocab):
    gbnf, _ = schema_to_grammar({"type": "array", "items": {"type": "null"}})
    assert allows(vocab, gbnf, "[\n  null,\n  null\n]")
    assert not allows(vocab, gbnf, "[  null]")
    assert not allows(vocab, gbnf, " []")


def test_a_half_of_a_surrogate_pair_is_not_text(vocab):
    gbnf, _ = schema_to_grammar({"type": "string"})
    assert allows(vocab, gbnf, r'"\ud83d\ude00"')
    for text in (r'"\ud83d"', r'"\ude00"', r'"\ud83d\n"', '"\t"', '"\\x"', '"'):
        assert not allows(vocab, gbnf, text)


def test_a_schema_may_be_wide(vocab):
    names = [f"field{i}" for i in range(400)]
    wide = {"type": "object", "properties": {name: {"type": "null"} for name in names}, "required": names[::2]}
    for schema in (wide, {"type": "array", "prefixItems": [{"type": "null"}] * 400, "minItems": 0}, {"enum": names}):
        llama.Sampler.grammar(vocab, schema_to_grammar(schema).text).close()


def test_a_schema_that_is_too_deep_is_refused():
    schema = {"type": "null"}
    for _ in range(3000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="too deeply"):
        schema_to_grammar(schema)


@pytest.mark.parametrize(("value", "step", "fits"), [
    (1.5e300, 0.1, True), (1.5e300, 3, True), (10**40 + 1, 3, False), (10**40, 10, True), (1e-300, 0.1, False), (-2.25, 0.01, True),
])  # fmt: skip
def test_numbers_of_any_size_are_multiples_or_not(vocab, value, step, fits):
    gbnf, _ = schema_to_grammar({"enum": [value, 0], "multipleOf": step})
    assert allows(vocab, gbnf, "0")
    assert allows(vocab, gbnf, json.dumps(value)) == fits
