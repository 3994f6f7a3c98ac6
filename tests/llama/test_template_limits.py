"""Templates that llama.cpp's engine would never finish, or not survive, raise `TemplateError`, soon and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAM = Path(__file__).parent / "programs" / "hostile_templates.py"
STEPS, SIZE, DEPTH, ITSELF = "too many steps", "grow too large", "nested too deep", "contains itself"
LIST = "{% set l = [] %}{% set _ = l.append(l) %}"
PRINTED = "{% set l = [] %}{{ l }}{% set _ = l.append(l) %}"
SPACE = "{% set n = namespace() %}{% set n.n = n %}"
# A list of little memory that is written 2 ** 60 times.
TREE = "{% set n = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set n.t = (n.t, n.t) %}{% endfor %}"
DOUBLED = "{%% set n = namespace(v=%s) %%}{%% for i in range(60) %%}{%% set n.v = n.v %s n.v %%}{%% endfor %%}"
NUMBERS = (
    "{% set n = namespace(l=[]) %}{% for i in range(500) %}{% set _ = n.l.append(i) %}{% set _ = n.l.append(MIXED) %}"
    "{% endfor %}"
)
KEPT = (
    "{% set n = namespace(l=[]) %}{% set r = range(1000) %}{% for i in r %}{% for k in r %}"
    "{% set _ = n.l.append(r + []) %}{% endfor %}{% endfor %}"
)
CHAIN = (
    "{% set n = namespace(l=1) %}{% for i in range(1000) %}{% set m = namespace() %}{% set m.l = n.l %}{% set n.l = m %}"
    "{% endfor %}ok"
)
FOREVER = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
LONG = (
    "{% for a in r %}{% for b in r %}{% for c in r %}{% for d in r %}.{% endfor %}{% endfor %}{% endfor %}{% endfor %}"
)
# llama.cpp replaces these conditions, which are false here, in the sources of some templates.
MENDED = (
    '<|channel|>{%- if "<|channel|>analysis<|message|>" in message.content or '
    '"<|channel|>final<|message|>" in message.content %}{% else %}'
)


def nested(opening: str, inside: str, closing: str, size: int = 120_000) -> str:
    n = size // len(opening + closing)
    return opening * n + inside + closing * n


ENDLESS = {
    "macro": (FOREVER, DEPTH),
    "macro with arguments": ("{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(1) }}", DEPTH),
    "macros in turn": ("{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", DEPTH),
    "macro twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        STEPS,
    ),
    "macro in a default": ("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", DEPTH),
    "macro in a condition": ("{% macro f() %}{% if f() %}{% endif %}{% endmacro %}{{ f() }}", DEPTH),
    "call block": ("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}", "stopped"),
    "loops": ("{% set r = range(1000) %}" + LONG, STEPS),
    "loops that break": ("{% set r = range(9999) %}" + LONG.replace(".", "{% break %}"), STEPS),
    "loops that select": ("{% for a in range(99999) if false %}{% endfor %}" * 20, STEPS),
    "with tools": ("{% if tools %}" + FOREVER + "{% endif %}ok", DEPTH),
    "in a long history": ("{% if messages|length == 7 %}" + FOREVER + "{% endif %}ok", DEPTH),
    "without a reply": ("{% if not add_generation_prompt %}" + FOREVER + "{% endif %}ok", DEPTH),
    "in a mended source": (MENDED + FOREVER + "{% endif %}", DEPTH),
}
LARGE = {
    "range": ("{{ range(1000000000000) }}", SIZE),
    "range backwards": ("{{ range(0, -1000000000000, -1) }}", SIZE),
    "range to the end": ("{{ range(9223372036854775800, 9223372036854775807, 5) }}", "too large for an index"),
    "range by another name": ("{% set f = range %}{{ f(1000000000000) }}", SIZE),
    "range in a call block": ("{% call range(1000000000000) %}{% endcall %}", "calls a macro"),
    "repeated text": ("{{ 'x' * 1000000000000 }}", SIZE),
    "repeated nothing": ("{{ 1000000000000 * '' }}", SIZE),
    "doubled text": (DOUBLED % ("'x'", "~"), SIZE),
    "doubled nothing": (DOUBLED % ("''", "+"), SIZE),
    "doubled list": (DOUBLED % ("[1]", "+"), SIZE),
    "kept lists": (
        KEPT,
        "stopped",
    ),
    "kept texts": (
        "{% set l = [] %}{% set x = 'x' * 1000000 %}{% for i in range(1000) %}{% set _ = l.append(x ~ i) %}{% endfor %}",
        SIZE,
    ),
    "text that is looked at": (
        "{% set x = 'x' * 100000000 %}{% for i in range(9999) %}{% if x %}{% endif %}{% endfor %}",
        SIZE,
    ),
    "characters of a text": ("{% set x = 'x' * 10000000 %}{% for i in range(9999) %}{{ x[i] }}{% endfor %}", SIZE),
    "indent": ("{{ 'x\n' | indent(100000000000) }}", SIZE),
    "indent of a block": ("{% filter indent(100000000000) %}x\nx{% endfilter %}", SIZE),
    "indented JSON": ("{{ [[1]] | tojson(indent=2000000000) }}", SIZE),
    "separated JSON": ("{{ range(9999) | tojson(separators=('x' * 1000000, '')) }}", SIZE),
    "replace": ("{{ ('x' * 100000).replace('x', 'x' * 100000) }}", SIZE),
    "replace nothing": ("{{ ('x' * 100000).replace('', 'x' * 100000) }}", SIZE),
    "replace one by one": ("{{ ('x' * 9000000) | replace('x', 'yy') }}", SIZE),
    "split one by one": ("{{ ('x ' * 4000000).split(' ') }}", SIZE),
    "strip one by one": ("{{ (' ' * 900000) | trim }}", SIZE),
    "strip many": ("{{ ('x' * 9000000).strip('y' * 9000000) }}", SIZE),
    "join": ("{{ range(100000) | join('x' * 100000) }}", SIZE),
    "membership": ("{{ ('x' * 1000000) in range(100000) }}", SIZE),
    "selection": ("{{ range(100000) | select('equalto', 'x' * 1000000) }}", SIZE),
}
INSIDE_OUT = {
    "printed": (LIST + "{{ l }}", ITSELF),
    "once it is printed": (PRINTED, ITSELF),
    "once it is printed in a branch": ("{% if 1 %}" + PRINTED + "{% endif %}", ITSELF),
    "once it is printed in a loop": ("{% for i in [1] %}" + PRINTED + "{% endfor %}", ITSELF),
    "once it is printed in a macro": ("{% macro f() %}" + PRINTED + "{% endmacro %}{{ f() }}", ITSELF),
    "once it is printed in a call block": (
        "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}" + PRINTED + "{% endcall %}",
        ITSELF,
    ),
    "once it is printed in a filter block": ("{% filter upper %}" + PRINTED + "{% endfilter %}", ITSELF),
    "once it is printed in a text": ("{% set x %}" + PRINTED + "{% endset %}", ITSELF),
    "as JSON": (LIST + "{{ l | tojson }}", ITSELF),
    "as a text": (LIST + "{{ l | string }}", ITSELF),
    "joined to a text": (LIST + "{{ l ~ 'x' }}", ITSELF),
    "compared": (LIST + "{{ l == l }}", ITSELF),
    "in itself": (LIST + "{{ l in l }}", ITSELF),
    "as a test": (LIST + "{{ l is in l }}", ITSELF),
    "selected": (LIST + "{{ l | select('in', l) }}", ITSELF),
    "as a key": (LIST + "{{ {l: 1} }}", ITSELF),
    "as an index": (LIST + "{{ {}[l] }}", ITSELF),
    "in upper case": (LIST + "{{ l | upper }}", ITSELF),
    "in a block": (LIST + "{% set x %}{{ l }}{% endset %}", ITSELF),
    "sorted": (LIST + "{{ l | sort }}", ITSELF),
    "namespace printed": (SPACE + "{{ n | string }}", ITSELF),
    "namespace as JSON": (SPACE + "{{ n | tojson }}", ITSELF),
    "by its method": ("{% set l = [] %}{% set _ = l.append(l.append) %}{{ l | string }}", ITSELF),
    "tree printed": (TREE + "{{ n.t }}", SIZE),
    "tree as JSON": (TREE + "{{ n.t | tojson }}", SIZE),
    "tree compared": (TREE + "{{ n.t == n.t }}", SIZE),
    "tree as a key": (TREE + "{{ {n.t: 1} }}", SIZE),
    "tree as an index": (TREE + "{{ {}[n.t] }}", SIZE),
    "deep": (
        "{% set n = namespace(l=1) %}{% for i in range(1000) %}{% set n.l = [n.l] %}{% endfor %}ok",
        "rendered ok",
    ),
    "deep namespaces": (CHAIN, "rendered ok"),
}
UNDEFINED = {
    "divided by zero": ("{{ 1 is divisibleby(0) }}", "other than 0"),
    "divided by minus one": ("{{ (0 - 9223372036854775807 - 1) is divisibleby(-1) }}", "other than 0"),
    "divided by zero by name": ("{{ test_is_divisibleby(1, 0) }}", "other than 0"),
    "divided by zero in a selection": ("{{ [{'a': 1}] | selectattr('a', 'divisibleby', 0) }}", "other than 0"),
    "slice of a list": ("{{ [1][::-9223372036854775808] }}", "too large for an index"),
    "slice of a text": ("{{ 'x'[::-9223372036854775808] }}", "too large for an index"),
    "slice by name": ("{{ [1].slice(0, -1, -9223372036854775808) }}", "too large for an index"),
    "sorted no numbers": (NUMBERS.replace("MIXED", "'nan' | float") + "{{ n.l | sort }}", "cannot be sorted"),
    "sorted texts and numbers": (NUMBERS.replace("MIXED", "i | string") + "{{ n.l | sort }}", "cannot be sorted"),
    "sorted nothings": (NUMBERS.replace("MIXED", "none") + "{{ n.l | sort }}", "cannot be sorted"),
    "sorted by attribute": (
        NUMBERS.replace("MIXED", "{'a': i}").replace("append(i)", "append({'a': 'x'})")
        + "{{ n.l | sort(attribute='a') }}",
        "cannot be sorted",
    ),
    "sorted by index": ("{{ [[1], ['x']] | sort(attribute='0') }}", "cannot be sorted"),
    "sorted object": ("{{ {'a': 1, 'b': 'x'} | dictsort(by='value') }}", "cannot be sorted"),
}
PARSED = {
    f"{opening}...": ("{{ " + nested(opening, "1", closing) + " }}", "")
    for opening, closing in [
        ("(", ""), ("(", ")"), ("[", "]"), ("{1:", "}"), ("-", ""), ("not ", ""), ("a[", "]"), ("a(", ")"), ("a(b=", ")"),
        ("1~", ""), ("1 if 1 else ", ""), ("1 and ", ""), ("1==", ""), ("1+", ""), ("1|abs|abs(", ")"),
    ]
}  # fmt: skip
PARSED |= {
    f"...{closing}": ("{{ 1" + nested("", "", closing, 30_000) + " }}", "")
    for closing in ("|abs", ".a", "[1]", "()", " is odd", " if 1")
}
PARSED |= {
    f"{opening}...": (nested(opening, "", closing), "")
    for opening, closing in [
        ("{% if 1 %}", "{% endif %}"), ("{% for a in b %}", "{% endfor %}"), ("{% macro a() %}", "{% endmacro %}"),
        ("{% set a %}", "{% endset %}"), ("{% filter a %}", "{% endfilter %}"), ("{% call a() %}", "{% endcall %}"),
        ("{# a #}", ""),
    ]
}  # fmt: skip
PARSED["{% elif 1 %}..."] = ("{% if 0 %}" + "{% elif 0 %}" * 9000 + "{% endif %}", "")
CASES = {
    f"{group}: {name}": case
    for group, cases in [
        ("endless", ENDLESS), ("large", LARGE), ("inside out", INSIDE_OUT), ("undefined", UNDEFINED), ("parsed", PARSED)
    ]
    for name, case in cases.items()
}  # fmt: skip


class Outcome(NamedTuple):
    text: str
    seconds: float
    memory: float


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    sources = json.dumps({name: source for name, (source, _) in CASES.items()})
    done = subprocess.run([sys.executable, PROGRAM], input=sources, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line[0]: Outcome(*line[1:]) for line in lines if len(line) > 1}
    if done.returncode != 0:
        found[lines[-1][0]] = Outcome(f"ended the process: {done.returncode}\n{done.stderr}", 0, 0)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_raises_soon_and_in_little_memory(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert not outcome.text.startswith("ended"), outcome
    assert CASES[name][1] in outcome.text
    assert outcome.seconds < 60  # some 5 on an idle machine
    assert outcome.memory < 2048
