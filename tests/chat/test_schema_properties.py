"""Properties over random schemas, patterns and bounds; and a fuzz in a process of its own, which must end cleanly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_sampling import GrammarSampler, walks

from causerie import SchemaError, llama
from causerie.chat.schema.automaton import Both, Complement, Length, Matching, accepts
from causerie.chat.schema.automaton_gbnf import automaton_node
from causerie.chat.schema.gbnf import Grammar
from causerie.chat.schema.grammar import schema_to_grammar
from causerie.chat.schema.numbers import Bounds, Numbers
from causerie.chat.schema.regex import parse_regex
from causerie.chat.schema.repair import close_json
from causerie.chat.schema.validation import SchemaValidator

SMALL = st.integers(0, 3)
NAMES = st.sampled_from(["a", "b", "ab", "é", 'q"', "back\\slash", "new\nline", "$ref", ""])


def bounded(kind, low, high, values):
    return st.tuples(values, values).map(lambda pair: {"type": kind, low: min(pair), high: max(pair)})


def objects(inner):
    named = st.dictionaries(NAMES, inner, max_size=3)

    def build(properties, required, further):
        schema = {"type": "object", "properties": properties, "required": [n for n in properties if n in required]}
        return {**schema, **further}

    more = st.fixed_dictionaries(
        {},
        optional={
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "."]), inner, max_size=2),
            "propertyNames": st.sampled_from([{"maxLength": 2}, {"pattern": "^[ab]*$"}]),
        },
    )
    return st.builds(build, named, st.just(set()), more) | st.builds(build, named, st.sets(NAMES), st.just({}))


def arrays(inner):
    plain = st.builds(lambda i, n: {"type": "array", "items": i, "minItems": n, "maxItems": n + 2}, inner, SMALL)
    return plain | st.lists(inner, min_size=1, max_size=3).map(lambda items: {"type": "array", "prefixItems": items})


LEAVES = st.one_of(
    st.sampled_from([{}, True, {"type": "null"}, {"type": "boolean"}, {"type": "number"}, {"type": "integer"}]),
    st.sampled_from([{"type": "string", "format": f} for f in ("date", "uuid", "ipv4")]),
    bounded("integer", "minimum", "maximum", st.integers(-300, 300)),
    bounded("number", "minimum", "maximum", st.integers(-3000, 3000).map(lambda n: n / 100)),
    bounded("string", "minLength", "maxLength", SMALL),
    st.lists(st.text(max_size=3) | st.integers() | st.none() | st.booleans(), min_size=1).map(lambda v: {"enum": v}),
    st.sampled_from([{"type": "string", "pattern": p} for p in ("^a+$", "b", '"|\\\\', "^[^a]{1,2}$", r"^\w\s\D")]),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        arrays(inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
        inner.map(lambda option: {"allOf": [option, {"title": "note"}]}),
    ),
    max_leaves=8,
)
REPEATS = ("", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}")
ATOMS = st.sampled_from(["a", "b", "é", r"\n", r"\.", ".", "[ab]", "[^a]", r"\d", r"\w", "[a-c\\-]", '"', r"\\", "😀"])
PATTERNS = st.recursive(
    st.tuples(ATOMS, st.sampled_from(REPEATS)).map("".join),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda o: f"(?:{'|'.join(o)})"),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)
TEXTS = st.text(st.sampled_from('ab1é.\n "\\-c😀'), max_size=6)


@settings(deadline=None, max_examples=150)
@given(SCHEMAS, st.integers(0, 2**32))
def test_every_text_of_the_grammar_matches_the_schema(schema, seed):
    gbnf, checked = schema_to_grammar(schema)
    assert not checked
    sampler, random, validator = GrammarSampler(gbnf), Random(seed), SchemaValidator(schema)
    for _ in range(5):
        text = sampler.draw(random, limit=100)
        validator.check(json.loads(text))
        text.encode()


@pytest.fixture(scope="module")
def vocab(smollm2_path):
    with llama.Model(smollm2_path, vocab_only=True) as model:
        yield model.vocab


def can_write(vocab, text):
    """Whether the vocabulary can; it has no token for the byte F1."""
    return vocab.detokenize(vocab.tokenize(text, add_special=False, parse_special=False)) == text


def mutated(text, random):
    place = random.randrange(len(text) + 1)
    new = random.choice(
        ['"', "\\", "0", "9", "-", ".", ",", ":", "}", "]", "{", "[", " ", "a", "b", "é", "\n", "null", ""]
    )
    return text[:place] + new + text[place + random.choice([0, 1, 2]) :]


@settings(deadline=None, max_examples=60)
@given(SCHEMAS, st.integers(0, 2**32))
def test_llama_cpp_takes_no_text_that_does_not_match_the_schema(vocab, schema, seed):
    gbnf, _ = schema_to_grammar(schema)
    sampler, random, validator = GrammarSampler(gbnf), Random(seed), SchemaValidator(schema)
    for _ in range(3):
        text = sampler.draw(random, limit=40)
        if can_write(vocab, text):
            assert walks(vocab, gbnf, text), text
        for _ in range(4):
            other = mutated(text, random)
            if can_write(vocab, other) and walks(vocab, gbnf, other):
                validator.check(json.loads(other))


@settings(deadline=None, max_examples=200)
@given(PATTERNS, st.lists(TEXTS, max_size=8), st.integers(0, 2**32))
def test_a_pattern_is_what_python_takes_it_for(pattern, texts, seed):
    automaton = Matching(parse_regex(pattern))
    for text in texts:
        assert accepts(automaton, text) == bool(re.fullmatch(pattern, text, re.ASCII)), text
    for in_json in (False, True):
        grammar = Grammar()
        gbnf = grammar.text(automaton_node(grammar, automaton, "p", "", in_json=in_json))
        text = GrammarSampler(gbnf).draw(Random(seed), limit=30)
        assert re.fullmatch(pattern, json.loads(f'"{text}"') if in_json else text)


@settings(deadline=None)
@given(PATTERNS, TEXTS)
def test_a_pattern_in_a_schema_may_match_anywhere(pattern, text):
    automaton = Matching(parse_regex(pattern, search=True))
    assert accepts(automaton, text) == bool(re.search(pattern, text, re.ASCII))
    anchored = Matching(parse_regex(f"^{pattern}$", search=True))
    if "|" not in pattern.replace("(?:", ""):
        assert accepts(anchored, text) == bool(re.fullmatch(pattern, text, re.ASCII))


@settings(deadline=None)
@given(PATTERNS, PATTERNS, SMALL, TEXTS)
def test_automata_combine(one, other, low, text):
    a, b = Matching(parse_regex(one)), Matching(parse_regex(other))
    both = Both((a, Complement(b), Length(low, low + 2)))
    assert accepts(both, text) == (accepts(a, text) and not accepts(b, text) and low <= len(text) <= low + 2)


DECIMALS = st.decimals(-2000, 2000, places=2)


@given(
    st.none() | DECIMALS, st.none() | DECIMALS, st.booleans(), st.booleans(),
    st.sampled_from([(None, 1), (0, 1), (0, 7), (2, 1), (1, 1)]), DECIMALS, st.sampled_from([0, 1, -1, 0.01, -0.01, 0.1]),
)  # fmt: skip
def test_numbers_keep_their_bounds(low, high, above, below, steps, value, nudge):
    decimals, multiple = steps
    bounds = Bounds(low, high, above=above, below=below, decimals=decimals, multiple=multiple)
    near = [edge + Decimal(str(nudge)) for edge in (low, high) if edge is not None]
    for number in [value, value.quantize(Decimal(1)), *near]:
        if number == 0 and number.is_signed():
            continue  # zero has no sign here
        text = f"{number:f}"
        places = len(text.partition(".")[2])
        expected = bounds.allow(number) and (decimals is None or places <= decimals)
        assert accepts(Numbers(bounds), text) == expected, text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def is_beginning(part, whole):
    """Whether a repaired value has nothing that the whole one does not have."""
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(is_beginning(v, whole[k]) for k, v in part.items())
    if isinstance(whole, list):
        return isinstance(part, list) and all(map(is_beginning, part, whole))
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    return part == whole or isinstance(part, (int, float))  # with fewer digits


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_json_cut_anywhere_can_be_closed(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert close_json(text) == text
    for end in range(1, len(text)):
        if text[:end].strip() != "-":
            assert is_beginning(json.loads(close_json(text[:end])), value), text[:end]


@pytest.mark.parametrize("text", ["", " ", "-", "x", "]", '{"a" 1', "[1 2", "{1", '"\\x"', "{}}", "nulx", "[,"])
def test_what_does_not_begin_json_cannot_be_closed(text):
    with pytest.raises(SchemaError):
        close_json(text)


FUZZ = r"""
import json, random, sys
from causerie import SchemaError, GrammarError, llama
from causerie.chat.response_format import Regex, as_response_format
from causerie.chat.schema.keywords import _VALUES
random = random.Random(int(sys.argv[2]))
model = llama.Model(sys.argv[1], vocab_only=True)
words = [*_VALUES, "x", "$defs", "a"]
def value(depth):
    kind = random.randrange(9 if depth else 6)
    if kind < 6:
        return random.choice([0, 1, -1, 2, 3, 0.5, 1e308, 10**30, True, False, None, "", "a", "^a*$", "(a|b)*", "[^x]{2,9}",
            "date", "integer", "string", "object", "array", "#", "#/$defs/a", "\ud800", "\0", "number", 5000])
    if kind < 7:
        return [value(depth - 1) for _ in range(random.randrange(4))]
    return {random.choice(words): value(depth - 1) for _ in range(random.randrange(5))}
made = 0
def build(what):
    global made
    try:
        found = as_response_format(what)
    except (SchemaError, TypeError):
        return
    try:
        with llama.Sampler.grammar(model.vocab, found.grammar) as sampler:
            made += 1
            for token in (9, 17, 34, 100):
                try:
                    sampler.accept(token)
                except GrammarError:
                    pass
    except GrammarError:
        pass
for _ in range(400):
    schema = {random.choice(words): value(3) for _ in range(random.randrange(1, 5))}
    build(schema)
    build(Regex("".join(random.choice(list("ab|()[]{}*+?.^$\\-,0123é\n")) for _ in range(random.randrange(9)))))
assert made > 50, made
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_no_schema_and_no_pattern_ends_the_process(smollm2_path, seed):
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", FUZZ, smollm2_path, str(seed)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
