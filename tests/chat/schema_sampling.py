"""Random texts of a grammar in GBNF, made without a model: reads what causerie writes, not all of GBNF."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from causerie import GrammarError, llama

if TYPE_CHECKING:
    from random import Random

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z0-9-]+|[()|*+?]|\{\d+(?:,\d*)?\})')
_CHAR = re.compile(r"\\x(..)|\\u(....)|\\U(........)|(.)", re.DOTALL)
_CLASS = re.compile(r"(\\x..|\\u....|\\U........|[^\\])(?:-(\\x..|\\u....|\\U........|[^\\]))?", re.DOTALL)


def _chars(text):
    return [next((chr(int(h, 16)) for h in m.groups()[:3] if h), m.group(4)) for m in _CHAR.finditer(text)]


def walks(vocab, gbnf: str, text: str, root: str = "root") -> bool:
    """Whether llama.cpp's own walk through a grammar takes the text, and lets it end there."""
    with llama.Sampler.grammar(vocab, gbnf, root) as sampler:
        try:
            for token in [*vocab.tokenize(text, add_special=False, parse_special=False), vocab.eos]:
                sampler.accept(int(token))
        except GrammarError:
            return False
        return True


class GrammarSampler:
    """Draws texts; options that end soon are preferred once a text gets long."""

    def __init__(self, gbnf: str) -> None:
        self.rules = {}
        for line in gbnf.splitlines():
            name, _, body = line.partition(" ::= ")
            self.tokens = _TOKEN.findall(body)
            self.pos = 0
            self.rules[name] = self.alternatives()
            assert self.pos == len(self.tokens), (name, self.tokens[self.pos :])
        self.size = dict.fromkeys(self.rules, 1e9)
        for _ in range(len(self.rules) + 1):
            new = {name: self.least(node) for name, node in self.rules.items()}
            if new == self.size:
                break
            self.size = new
        assert max(self.size.values()) < 1e9, "a rule never ends"

    def alternatives(self):
        options = [[]]
        while self.pos < len(self.tokens) and self.tokens[self.pos] != ")":
            token = self.tokens[self.pos]
            self.pos += 1
            if token == "|":
                options.append([])
            elif token[0] in "*+?{":
                low, high = {"*": (0, 3), "+": (1, 4), "?": (0, 1)}.get(token) or self.bounds(token)
                options[-1][-1] = ("rep", options[-1][-1], low, high)
            elif token == "(":
                options[-1].append(self.alternatives())
                self.pos += 1
            elif token[0] == '"':
                options[-1].append(("text", "".join(_chars(token[1:-1]))))
            elif token[0] == "[":
                pairs = [m.groups() for m in _CLASS.finditer(token[1:-1])]
                options[-1].append(("class", [(_chars(a)[0], _chars(b or a)[0]) for a, b in pairs]))
            else:
                options[-1].append(("rule", token))
        return ("any", options)

    @staticmethod
    def bounds(token):
        low, comma, high = token[1:-1].partition(",")
        return int(low), int(high) if high else int(low) + (3 if comma else 0)

    def least(self, node):
        kind = node[0]
        if kind == "any":
            return min(sum(map(self.least, option)) for option in node[1])
        if kind == "rep":
            return node[2] * self.least(node[1])
        return len(node[1]) if kind == "text" else self.size[node[1]] + 0.01 if kind == "rule" else 1

    def draw(self, random: Random, limit: int = 400) -> str:
        out: list[str] = []
        todo = [("rule", "root")]
        length = 0
        while todo:
            node = todo.pop()
            kind = node[0]
            if kind == "rule":
                todo.append(self.rules[node[1]])
            elif kind == "any":
                options = node[1]
                shortest = min(options, key=lambda option: sum(map(self.least, option)))
                todo += reversed(shortest if length > limit else random.choice(options))
            elif kind == "rep":
                low, high = node[2:]
                n = low if length > limit else random.choice([low, min(high, low + 1), random.randint(low, high)])
                todo += [node[1]] * n
            else:
                out.append(node[1] if kind == "text" else self.char(node[1], random))
                length += len(out[-1])
        return "".join(out)

    @staticmethod
    def char(ranges, random: Random) -> str:
        low, high = random.choice(ranges)
        return chr(random.randint(ord(low), min(ord(high), ord(low) + random.choice([0, 30, 0x10FFFF]))))
