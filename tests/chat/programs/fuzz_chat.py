"""Feeds random schemas, patterns, grammars, templates, messages and replies to the chat layer.

    python fuzz_chat.py FIRST_SEED COUNT

One seed is one thing that is fed; it gives a result or a typed exception, within a minute. Prints the seed and what it is
before each, so that the last line of a process that died names it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from random_jinja import RandomJinja

from causerie.chat import ChatTemplate, Message, Prompt, ReplyParser, ToolCall
from causerie.chat.prompt import PromptEncoder
from causerie.chat.reply_grammar import tools_grammar
from causerie.chat.response_format import Regex, ResponseFormat, as_response_format
from causerie.errors import GrammarError, SchemaError, TemplateError, UnsupportedError
from causerie.llama import Model, Sampler

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reply_formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LLAMA = Path(__file__).resolve().parents[3] / "vendor" / "llama.cpp"
USER = Message("user", "x")
TEMPLATES = LLAMA / "models" / "templates"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": {
        "type": "object", "properties": properties, "required": [next(iter(properties))]}}}
    for name, properties in {
        "f": {"a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"type": "number"}},
        "weather": {"place": {"type": "string"}, "days": {"type": "integer"}},
    }.items()
]  # fmt: skip
TEXTS = [
    "", "x", " ", "\n\n", "Hello 🦙", "<|im_end|>", "</s>", "<think>", "</think>", "<tool_call>", "{{ x }}", "{% raw %}", "\ue0000\ue001",
    "[INST]", "\0", "\u2028", "é" * 300, '"\\', "[" * 500, '{"a":' * 500, "\ufeff", "<|channel|>analysis<|message|>", "\r\n", "tool",
]  # fmt: skip


@cache
def vocab_model() -> Model:
    return Model(LLAMA / "models" / "ggml-vocab-llama-spm.gguf", vocab_only=True)


@cache
def sources() -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in sorted(TEMPLATES.glob("*.jinja"))}


@cache
def prompt_of(name: str, thinking: bool, tools: bool) -> Prompt:
    with ChatTemplate(sources()[name]) as template:
        return template.apply([USER], tools=TOOLS if tools else (), parallel_tool_calls=tools, thinking=thinking)


def attempt(call: Callable[[], Any], *allowed: type[Exception]) -> Any:
    """What the call gives; None for an exception that it may raise."""
    try:
        return call()
    except allowed:
        return None


# Schemas, patterns and grammars

KEYWORDS: dict[str, Sequence[Any]] = {
    "type": ["object", "array", "string", "number", "integer", "boolean", "null", ["string", "null"], [], "nothing", 3],
    "enum": [["a", 1, None], [], [{"a": 1}], "a", [[1, [2]]]],
    "const": [None, 1, "x", [1], {"a": [True]}, 1.5e300],
    "minLength": [0, 3, 5, -1, 10**9], "maxLength": [0, 2, 4, 100, 10**9], "pattern": ["^a+$", "[", "(a|b)*c", "\\d{2,3}", "(?=x)", "🦙"],
    "format": ["date", "date-time", "uuid", "email", "ipv4", "uri", "nothing"],
    "minimum": [0, -5, 1.5, 10**30], "maximum": [10, 0.1, -7], "exclusiveMinimum": [0, True], "multipleOf": [3, 0.1, 0],
    "minItems": [0, 2, 5], "maxItems": [0, 3, 1000], "uniqueItems": [True], "required": [["a"], ["a", "b", "zz"], "a"],
    "additionalProperties": [False, True], "minProperties": [1, 3], "maxProperties": [0, 2],
    "$ref": ["#", "#/$defs/d", "#/properties/a", "#/nowhere", "http://example.com/x"], "title": ["t"], "default": [1],
}  # fmt: skip
NESTING = ["items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"]
LISTS = ["anyOf", "oneOf", "allOf", "prefixItems"]


def schema_of(rng: random.Random, depth: int) -> Any:
    if rng.random() < 0.05:
        return rng.choice([True, False, {}, 3, None, "x", []])
    schema: dict[str, Any] = {"type": rng.choice(KEYWORDS["type"])} if rng.random() < 0.7 else {}
    for keyword in rng.sample(sorted(KEYWORDS), rng.randrange(4)):
        schema[keyword] = rng.choice(KEYWORDS[keyword])
    if depth > 0:
        if rng.random() < 0.5:
            schema["properties"] = {
                name: schema_of(rng, depth - 1) for name in rng.sample(["a", "b", "", 'é"\\', "$ref"], 2)
            }
        if rng.random() < 0.3:
            schema[rng.choice(NESTING)] = schema_of(rng, depth - 1)
        if rng.random() < 0.3:
            schema[rng.choice(LISTS)] = [schema_of(rng, depth - 1) for _ in range(rng.randrange(4))]
        if rng.random() < 0.2:
            schema["$defs"] = {"d": schema_of(rng, depth - 1)}
    return schema


def generated(rng: random.Random, sampler: Sampler, most: int = 10) -> str:
    """A random text that a grammar allows, or its beginning."""
    vocab = vocab_model().vocab
    logits = np.random.default_rng(rng.randrange(2**32))
    text = b""
    for _ in range(most):
        try:
            candidates = sampler.apply(logits.standard_normal(vocab.n_tokens, dtype=np.float32))
        except GrammarError:
            break
        allowed = candidates.ids[np.isfinite(candidates.logits)]
        if not allowed.size:
            break
        token = int(rng.choice(allowed.tolist()[:50]))
        if vocab.is_eog(token):
            break
        sampler.accept(token)
        text += vocab.piece(token)
    return text.decode("utf-8", "replace")


def enforce(rng: random.Random, found: ResponseFormat) -> None:
    sampler = attempt(lambda: Sampler.grammar(vocab_model().vocab, found.grammar), GrammarError)
    if sampler is None:
        return
    with sampler:
        text = generated(rng, sampler)
    for fed in (text, text[: rng.randrange(len(text) + 1)], rng.choice(TEXTS)):
        attempt(partial(found.parse, fed), SchemaError)
        attempt(partial(found.repair, fed), SchemaError)


def a_schema(rng: random.Random) -> None:
    schema = schema_of(rng, rng.randrange(5))
    if not isinstance(schema, dict):
        attempt(lambda: as_response_format(schema), TypeError)
    else:
        attempt(lambda: enforce(rng, as_response_format(schema)), SchemaError)
        name = rng.choice(sorted(sources()))
        tool = {"type": "function", "function": {"name": "g", "description": "d", "parameters": schema}}
        with ChatTemplate(sources()[name]) as template:
            attempt(lambda: template.apply([USER], response_schema=schema), TemplateError, UnsupportedError)
            attempt(lambda: offer(rng, template, tool), TemplateError, UnsupportedError, GrammarError)


def offer(rng: random.Random, template: ChatTemplate, tool: dict[str, Any]) -> None:
    prompt = template.apply([USER], tools=[tool], tool_choice=rng.choice(["auto", "required"]))
    grammar = tools_grammar(prompt, [tool], required=rng.random() < 0.5)
    if grammar is not None:
        grammar.sampler(vocab_model().vocab).close()


def a_pattern(rng: random.Random) -> None:
    pieces = ["a", "b", ".", "[a-z]", "[^x]", "\\d", "\\w+", "(", ")", "(?:", "|", "*", "+", "?", "{2}", "{0,3}", "{9,}", "^", "$", "\\", "[", "]",
              "{1000}", "é", "(?i)", "(?=", "\\b", "\\1", "\\u00e9", "\\p{L}", "-", " "]  # fmt: skip
    pattern = "".join(rng.choices(pieces, k=rng.randrange(1, 9)))
    attempt(lambda: enforce(rng, as_response_format(Regex(pattern, dotall=rng.random() < 0.5))), SchemaError)


def a_grammar(rng: random.Random) -> None:
    pieces = ["root", "a", "b", " ::= ", "\n", '"x"', '""', '"\\n"', "[a-z]", "[^x]", "(", ")", "*", "+", "?", "{2}", "{1,3}", "|", " ", ".",
              "# c\n", "[", '"', "\\", "{9999}", "<[5]>", "!<[5]>", "é"]  # fmt: skip
    shipped = sorted((LLAMA / "grammars").glob("*.gbnf"))
    if rng.random() < 0.3:
        text = rng.choice(shipped).read_text("utf-8")
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(pieces) + text[at + rng.randrange(10) :]
    else:
        rules = [" ".join(rng.choices(pieces, k=rng.randrange(1, 8))) for _ in range(rng.randrange(1, 4))]
        text = "\n".join(f"{name} ::= {rule}" for name, rule in zip(["root", "a", "b"], rules, strict=False))
    sampler = attempt(lambda: Sampler.grammar(vocab_model().vocab, text), GrammarError)
    if sampler is not None:
        with sampler:
            generated(rng, sampler)


# Templates and messages


def a_value(rng: random.Random, depth: int = 2) -> Any:
    if depth and rng.random() < 0.4:
        return [a_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    if depth and rng.random() < 0.5:
        return {rng.choice(["a", "b", "place", "é"]): a_value(rng, depth - 1) for _ in range(rng.randrange(3))}
    return rng.choice([None, True, 0, -1, 2**60, 1.5, *TEXTS])


def some_messages(rng: random.Random) -> list[Message]:
    found = [Message("system", rng.choice(TEXTS))] if rng.random() < 0.5 else []
    for number in range(rng.randrange(1, 5)):
        parts = [{"type": "text", "text": rng.choice(TEXTS)} for _ in range(rng.randrange(1, 3))]
        found.append(Message("user", rng.choice([rng.choice(TEXTS), parts])))
        if rng.random() < 0.4:
            arguments = {name: a_value(rng) for name in rng.sample(["a", "b", "place"], rng.randrange(3))}
            call = ToolCall(f"call{number}xxx", rng.choice(["f", "weather"]), arguments)
            found += [
                Message("assistant", rng.choice(TEXTS), tool_calls=(call,)),
                Message("tool", rng.choice(TEXTS), tool_call_id=call.id, name=call.name),
            ]
        if rng.random() < 0.8:
            found.append(Message("assistant", rng.choice(TEXTS), thinking=rng.choice(TEXTS)))
    return found


def render(rng: random.Random, source: str) -> None:
    tokens = {"bos_token": rng.choice(["", "<s>"]), "eos_token": rng.choice(["", "</s>"])}
    template = attempt(lambda: ChatTemplate(source, **tokens), TemplateError)
    if template is None:
        return
    tools = TOOLS if rng.random() < 0.5 else []
    with template:
        encoder = PromptEncoder(template, vocab_model().vocab)
        begin = rng.random() < 0.8
        calls: list[Callable[[], Any]] = [
            lambda: template.capabilities,
            lambda: template.apply(
                some_messages(rng), tools=tools, thinking=rng.choice([None, True, False]), add_generation_prompt=begin
            ),
            lambda: template.apply(
                some_messages(rng), continue_final_message=True, x=a_value(rng), now=rng.choice([None, 0])
            ),
            lambda: encoder.encode(some_messages(rng), tools=tools, add_generation_prompt=begin),
        ]
        for call in calls:
            attempt(call, TemplateError, UnsupportedError)


def a_random_template(rng: random.Random) -> None:
    render(rng, RandomJinja(rng).template())


def a_mutated_template(rng: random.Random) -> None:
    render(rng, RandomJinja(rng).mutated(sources()[rng.choice(sorted(sources()))]))


def a_shipped_template(rng: random.Random) -> None:
    render(rng, sources()[rng.choice(sorted(sources()))])


# Replies


def a_reply_text(rng: random.Random, name: str, prompt: Prompt) -> str:
    form = next(f for f in FORMATS.values() if name in f.templates)
    if form.calls is not None and rng.random() < 0.6:
        calls = [("weather", {"place": rng.choice(TEXTS), "days": rng.randrange(9)})] * rng.randrange(1, 3)
        text = (
            form.think[0]
            + rng.choice(TEXTS)
            + form.think[1]
            + (form.spoken or "%s") % rng.choice(TEXTS)
            + form.calls(calls)
        )
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(TEXTS) + text[at + rng.randrange(12) :]
        return text
    marks = [*prompt.preserved_tokens, *prompt.thinking_end_tags, prompt.thinking_start_tag, "weather", '{"name": "f", ', '"arguments": {', '"a": "',
             "}", "]", "[", "{", '"', "1", "\\", "\\u12", "f(a='", "<", ">", *TEXTS]  # fmt: skip
    return "".join(rng.choices(marks, k=rng.randrange(1, 30)))


def a_reply(rng: random.Random) -> None:
    name = rng.choice(sorted(sources()))
    prompt = prompt_of(name, rng.random() < 0.5, rng.random() < 0.8)
    text = a_reply_text(rng, name, prompt)
    for cut in {0, len(text), *(rng.randrange(len(text) + 1) for _ in range(4))}:
        prompt.parse(text[:cut], partial=True)
    whole = attempt(lambda: prompt.parse(text), TemplateError)
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(12)))
    parser = ReplyParser(prompt)
    deltas = [
        d for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) for d in parser.feed(text[start:end])
    ]
    deltas += parser.flush(partial=True)
    message = parser.finish()
    assert whole is None or message == whole, (name, text)
    assert [d.tool_call for d in deltas if d.kind == "tool_call"] == list(message.tool_calls), (name, text)
    for index, call in enumerate(message.tool_calls):
        arguments = "".join(d.text for d in deltas if d.kind == "tool_call_delta" and d.index == index)
        assert json.loads(arguments or "{}") == call.arguments, (name, text)
    if whole is not None:
        for kind, said in (("text", message.text), ("thinking", message.thinking)):
            assert "".join(d.text for d in deltas if d.kind == kind) == said, (name, text)


def a_message(rng: random.Random) -> None:
    given = a_value(rng, 4) if rng.random() < 0.2 else {
        key: a_value(rng, 3) for key in rng.sample(["role", "content", "tool_calls", "tool_call_id", "name", "thinking"], 4)
    } | ({"role": rng.choice(["user", "assistant", "tool"])} if rng.random() < 0.7 else {})  # fmt: skip
    message = attempt(lambda: Message.from_dict(given), TypeError, ValueError)
    assert message is None or Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


KINDS: list[Callable[[random.Random], None]] = [
    a_schema, a_pattern, a_grammar, a_random_template, a_mutated_template, a_shipped_template, a_reply, a_reply, a_message,
]  # fmt: skip


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        kind = KINDS[seed % len(KINDS)]
        print(seed, kind.__name__, flush=True)
        start = time.perf_counter()
        kind(random.Random(seed))
        seconds = time.perf_counter() - start
        assert seconds < 60, f"seed {seed} took {seconds:.0f} s"
    print("done")


if __name__ == "__main__":
    main()
