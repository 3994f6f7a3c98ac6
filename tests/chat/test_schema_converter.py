"""What llama.cpp's own converter passes over: why replies are not left to it, and arguments of tools are checked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from schema_cases import CHECKED, ENFORCED
from schema_sampling import walks

from causerie import GrammarError, TemplateError, llama
from causerie.chat.chat_template import ChatTemplate
from causerie.chat.schema.validation import SchemaValidator

TEMPLATES = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "templates"
HERMES = TEMPLATES / "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja"

LOOSENED = {
    "additionalProperties", "anyOf", "contains", "dependentRequired", "dependentSchemas", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "format", "if", "maxContains", "maxProperties", "minContains", "minLength", "minProperties",
    "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems", "propertyNames", "required",
    "unevaluatedProperties", "uniqueItems",
}  # fmt: skip


@pytest.fixture(scope="module")
def vocab(smollm2_path):
    with llama.Model(smollm2_path, vocab_only=True) as model:
        yield model.vocab


def is_valid(schema, text):
    """Whether it is only that causerie generates less than the schema allows."""
    try:
        SchemaValidator(schema).check(json.loads(text))
    except ValueError:
        return False
    return True


def test_the_keywords_that_it_loosens_are_known(vocab):
    template = ChatTemplate(HERMES.read_text(encoding="utf-8"))
    loosened = set()
    for case in ENFORCED + CHECKED:
        parameters = {"type": "object", "properties": {"v": case.schema}, "required": ["v"]}
        tool = {"name": "f", "description": "Does it.", "parameters": parameters}
        try:
            gbnf = template.apply(
                [{"role": "user", "content": "x"}], tools=[{"type": "function", "function": tool}]
            ).grammar
            llama.Sampler.grammar(vocab, gbnf, "tool-f-schema").close()
        except (TemplateError, GrammarError):
            continue  # refused is not loosened
        for text in case.bad:
            passed = walks(vocab, gbnf, '{"v": ' + text + "}", "tool-f-schema")
            if passed and (case.keyword == "format" or not is_valid(case.schema, text)):
                loosened.add(case.keyword)
    assert loosened == LOOSENED
