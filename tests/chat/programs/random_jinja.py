"""Random Jinja: templates built by its grammar, and shipped ones with pieces changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

NAMES = [
    "messages",
    "m",
    "tools",
    "ns",
    "x",
    "loop",
    "none",
    "true",
    "bos_token",
    "enable_thinking",
    "add_generation_prompt",
    "range",
    "no",
]
MEMBERS = [
    "content",
    "role",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "parameters",
    "index0",
    "first",
    "last",
    "x",
    "items",
    "no",
]
FILTERS = [
    "trim", "upper", "tojson", "length", "list", "first", "last", "join(X)", "replace(X, X)", "default(X)", "sort", "reverse",
    "string", "int", "float", "abs", "items", "map(attribute=X)", "selectattr('role', 'equalto', X)", "select(X, X)", "reject(X, X)",
    "indent(X)", "tojson(indent=X)", "dictsort", "min", "max", "unique", "title", "capitalize", "safe", "round", "sort(attribute=X)",
    "rejectattr(X)", "split(X)", "format(X)", "nofilter", "e", "count", "d(X)", "lower", "sum", "wordcount",
]  # fmt: skip
METHODS = [
    "split(X)", "strip(X)", "lstrip()", "startswith(X)", "endswith(X)", "get(X)", "items()", "keys()", "append(X)", "pop(X)", "replace(X, X)",
    "rsplit(X, X)", "values()", "upper()", "format(X)", "slice(X, X)",
]  # fmt: skip
TESTS = [
    "defined", "none", "string", "mapping", "iterable", "divisibleby(X)", "in(X)", "eq(X)", "odd", "number", "sameas(X)", "lower", "true",
    "boolean", "gt(X)", "notest", "callable", "undefined", "sequence",
]  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "%", "~", "==", "!=", "<", ">=", "and", "or", "in", "not in"]
NUMBERS = ["0", "1", "-1", "2", "3.5", "7", "100", "99999999", "9223372036854775807", "-9223372036854775808", "1e3"]
TEXTS = ["''", "'x'", "'user'", '"<tool_call>"', "'\\n'", "'🦙'", "'<|im_end|>'", "'%Y'", "'{}'", "'a' 'b'"]
PIECES = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{%-",
    "-%}",
    "{#",
    "#}",
    "'",
    '"',
    "|",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "\\",
    "\0",
    "\r\n",
    "é",
    "",
]


class RandomJinja:
    """Templates from a random state."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def expression(self, depth: int) -> str:
        rng = self.rng
        if depth <= 0:
            return rng.choice([*NAMES, *NUMBERS, *TEXTS, "[]", "{}", "m.content", "m['role']", "f(x)", "messages[0]"])
        made: list[Callable[[], str]] = [
            lambda: f"{self.part(depth)} {rng.choice(OPERATORS)} {self.part(depth)}",
            lambda: f"({self.part(depth)}) | {self.filled(rng.choice(FILTERS), depth)}",
            lambda: f"({self.part(depth)}).{self.filled(rng.choice(METHODS), depth)}",
            lambda: f"{self.part(depth)} is {rng.choice(['', 'not '])}{self.filled(rng.choice(TESTS), depth)}",
            lambda: f"({self.part(depth)})[{self.part(depth)}]",
            lambda: f"({self.part(depth)})[{self.slice(depth)}]",
            lambda: f"({self.part(depth)}).{rng.choice(MEMBERS)}",
            lambda: f"{self.part(depth)} if {self.part(depth)} else {self.part(depth)}",
            lambda: f"[{self.part(depth)}, {self.part(depth)}]",
            lambda: f"({self.part(depth)}, {self.part(depth)})",
            lambda: f"{{{self.part(depth)}: {self.part(depth)}}}",
            lambda: (
                f"{rng.choice(['range', 'namespace', 'dict', 'f', 'caller', 'strftime_now', 'raise_exception'])}({self.part(depth)})"
            ),
            lambda: f"{rng.choice(['not ', '-', '+'])}({self.part(depth)})",
        ]
        return rng.choice(made)()

    def part(self, depth: int) -> str:
        return self.expression(self.rng.randrange(depth))

    def slice(self, depth: int) -> str:
        return ":".join(self.rng.choice(["", self.part(depth)]) for _ in range(self.rng.randrange(2, 4)))

    def filled(self, pattern: str, depth: int) -> str:
        while "X" in pattern:
            pattern = pattern.replace("X", self.part(depth).replace("X", "x"), 1)
        return pattern

    def statement(self, depth: int) -> str:
        rng = self.rng
        kind = rng.randrange(12) if depth > 0 else 0
        body = "".join(self.statement(depth - 1) for _ in range(rng.randrange(4))) if depth > 0 else ""
        value = self.expression(rng.randrange(4))
        return [
            f"{{{{ {value} }}}}",
            "text\n <|im_start|>",
            f"{{% for m in {rng.choice(['messages', 'messages', value])} %}}{body}{{% else %}}e{{% endfor %}}",
            f"{{% for k, v in {value} if {self.expression(1)} %}}{body}{{% endfor %}}",
            f"{{%- if {value} %}}{body}{{% elif {self.expression(1)} %}}x{{% else %}}{body}{{%- endif %}}",
            f"{{% set {rng.choice(['x', 'ns.x', 'm', 'k, v', 'ns'])} = {value} %}}",
            f"{{% set x %}}{body}{{% endset %}}",
            f"{{% macro f(x, y={self.expression(1)}) %}}{body}{{% endmacro %}}",
            f"{{% call{rng.choice(['', '(x)'])} f({value}) %}}{body}{{% endcall %}}",
            f"{{% filter {self.filled(rng.choice(FILTERS), 1)} %}}{body}{{% endfilter %}}",
            rng.choice(["{% break %}", "{% continue %}", "{# comment #}", "{% generation %}g{% endgeneration %}"]),
            f"{{{{ f({value}) }}}}",
        ][kind]

    def template(self) -> str:
        body = "".join(self.statement(self.rng.randrange(4)) for _ in range(self.rng.randrange(1, 6)))
        return f"{{% set ns = namespace(x=1) %}}{body}"

    def mutated(self, source: str) -> str:
        rng = self.rng
        for _ in range(rng.randrange(1, 5)):
            at, end = sorted(rng.randrange(len(source) + 1) for _ in range(2))
            end = min(end, at + 60)
            piece = rng.choice([*PIECES, self.expression(2), self.statement(1), source[at:end] * 2])
            source = source[:at] + piece + source[rng.choice([at, end]) :]
        return source
