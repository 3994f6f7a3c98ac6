"""Reads GBNF before llama.cpp does (pure Python): its parser prints to stderr, recurses without limit, and may not end.

The syntax is that of llama-grammar.cpp at the pinned commit (`llama_grammar_parser`); what is accepted here is accepted
there. The result holds only what `_sampler_gbnf_graph` needs to know: the rules, with every terminal alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from causerie.llama._sampler_gbnf_reader import MAX_REPETITIONS, NAME, Reader, located

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.errors import GrammarError

__all__ = ["TERMINAL", "Alternative", "Rules", "parse"]

TERMINAL = -1
# llama.cpp parses groups by recursion, about a kilobyte of stack each.
_MAX_NESTING = 200
_MAX_ELEMENTS = 4_000_000

Alternative = list[int]


@dataclass
class Rules:
    """A grammar's rules: names, and per rule its alternatives, each a list of rule numbers and TERMINAL.

    Attributes:
        text: the grammar.
        places: where in it each rule is defined, or is used first if it is not.
    """

    text: str = ""
    names: list[str] = field(default_factory=list)
    alternatives: list[list[Alternative] | None] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)

    def id(self, name: str, place: int) -> int:
        """The number of the rule of that name, a new one if need be."""
        if name not in self._ids:
            self._ids[name] = len(self.names)
            self.names.append(name)
            self.alternatives.append(None)
            self.places.append(place)
        return self._ids[name]

    def synthesize(self, base: str, place: int) -> int:
        """The number of a new rule for a part of the rule `base`."""
        return self.id(f"{base}_{len(self.names)}", place)  # names in GBNF have no underscore

    def name(self, rule: int) -> str:
        """The name of a rule, or of the one that it is a part of."""
        return self.names[rule].split("_", 1)[0]

    def error(self, rule: int, what: str) -> GrammarError:
        """What is wrong with a rule, with line and column; `.rule` is its name."""
        return located(self.text, self.places[rule], what, rule=self.name(rule))

    def require_complete(self, root: str) -> None:
        """GrammarError if a rule is missing."""
        for rule, alternatives in enumerate(self.alternatives):
            if alternatives is None:
                raise self.error(rule, f"the rule {self.names[rule]!r} is used but not defined")
        if not self.names:
            raise located(self.text, len(self.text), "the grammar has no rules")
        if root not in self._ids:
            raise located(self.text, len(self.text), f"the grammar has no rule {root!r} to start from", rule=root)


class _Group:
    """A rule's body, or a group in parentheses, being read."""

    def __init__(self, rule: int, n_rules: int = 0) -> None:
        self.rule = rule
        self.n_rules = n_rules  # rules there were before the group
        self.alternatives: list[Alternative] = []
        self.open_alternative()

    def open_alternative(self) -> None:
        self.items: Alternative = []
        self.last = 0  # where the last symbol, to which a repetition applies, starts
        self.elements = 0  # how many of llama.cpp's elements that symbol takes
        self.weight = 1  # rules that a repetition of that symbol repeats

    def push(self, item: int | None, elements: int = 1, weight: int = 1) -> None:
        self.last = len(self.items)
        self.elements, self.weight = elements, weight
        if item is not None:
            self.items.append(item)


class _Parser(Reader):
    def __init__(self, text: str, is_token: Callable[[str], bool], n_tokens: int) -> None:
        super().__init__(text)
        self.is_token = is_token
        self.n_tokens = n_tokens
        self.rules = Rules(text)
        self.elements = 0

    def read(self) -> Rules:
        self.space(newline=True)
        while self.pos < len(self.text):
            self.rule()
            self.space(newline=True)
        return self.rules

    def rule(self) -> None:
        start = self.pos
        name = self.take(NAME, "the name of a rule").group()
        self.space(newline=False)
        if not self.text.startswith("::=", self.pos):
            self.fail("expecting ::=")
        self.pos += 3
        self.space(newline=True)
        rule = self.rules.id(name, start)
        self.rules.places[rule] = start
        stack = [_Group(rule)]
        while stack:
            self.symbol(stack, name)
        if self.pos < len(self.text) and self.char() not in "\r\n":
            self.fail("expecting a newline")

    def symbol(self, stack: list[_Group], name: str) -> None:
        """Read one symbol, repetition, bar or parenthesis; at the end of the rule the stack becomes empty."""
        group, nested = stack[-1], len(stack) > 1
        c = self.char()
        if c == '"':
            n = self.literal()
            self.push(group, TERMINAL if n else None, n)
        elif c == "[":
            n = self.char_class()
            self.push(group, TERMINAL if n else None, n)
        elif c in {"<", "!"}:
            self.token(self.is_token, self.n_tokens)
            self.push(group, TERMINAL)
        elif c == ".":
            self.pos += 1
            self.push(group, TERMINAL)
        elif match := NAME.match(self.text, self.pos):
            self.push(group, self.rules.id(match.group(), self.pos))
            self.pos = match.end()
        elif c == "(":
            self.open_group(stack, name)
        elif c and c in "*+?{":
            self.repetition(group, name, nested)
        else:
            self.close(stack)
            return
        self.space(nested)

    def push(self, group: _Group, item: int | None, elements: int = 1) -> None:
        group.push(item, elements)
        self.count(elements)

    def count(self, elements: int) -> None:
        self.elements += elements
        if self.elements > _MAX_ELEMENTS:
            self.fail(f"with its repetitions the grammar has more than {_MAX_ELEMENTS} elements")

    def open_group(self, stack: list[_Group], name: str) -> None:
        if len(stack) > _MAX_NESTING:
            self.fail(f"parentheses are nested deeper than {_MAX_NESTING}")
        before, start = len(self.rules.names), self.pos
        self.pos += 1
        self.space(newline=True)
        stack.append(_Group(self.rules.synthesize(name, start), before))

    def close(self, stack: list[_Group]) -> None:
        """At a bar, a closing parenthesis, or what ends a rule."""
        group, nested = stack[-1], len(stack) > 1
        group.alternatives.append(group.items)
        self.count(1)
        if self.char() == "|":
            self.pos += 1
            self.space(newline=True)
            group.open_alternative()
            return
        self.rules.alternatives[group.rule] = group.alternatives
        stack.pop()
        if nested:
            if self.char() != ")":
                self.fail("expecting )")
            self.pos += 1
            stack[-1].push(group.rule, weight=max(1, len(self.rules.names) - group.n_rules))
            self.count(1)
            self.space(len(stack) > 1)

    def repetition(self, group: _Group, name: str, nested: bool) -> None:
        """Rewrite the last symbol as handle_repetitions() of llama-grammar.cpp does."""
        start = self.pos
        low, high = self.bounds(nested)
        if group.last == len(group.items):
            self.fail("expecting an item before the repetition", start)
        if high is not None and high < low:
            self.fail(f"the maximum {high} is less than the minimum {low}", start)
        total = high or low or 1
        if group.weight * total > MAX_REPETITIONS:
            self.fail(f"too many repetitions: {group.weight} rules x {total} is more than {MAX_REPETITIONS}", start)
        symbol = group.items[group.last :]
        optional = 1 if high is None else high - low
        self.count(group.elements * (low + optional) + 3 * optional)
        if low == 0:
            del group.items[group.last :]
        else:
            group.items.extend(symbol * (low - 1))
        inner: int | None = None
        for _ in range(optional):
            rule = self.rules.synthesize(name, start)
            tail = rule if high is None else inner
            self.rules.alternatives[rule] = [symbol if tail is None else [*symbol, tail], []]
            inner = rule
        if inner is not None:
            group.items.append(inner)
        group.elements = group.elements * low + 1
        group.weight *= total


def parse(text: str, root: str, is_token: Callable[[str], bool], n_tokens: int) -> Rules:
    """The rules of a GBNF grammar.

    Args:
        text: the grammar.
        root: the rule to start from.
        is_token: whether a text such as "<|im_end|>" is one token of the vocabulary.
        n_tokens: token ids 0 <= id < n_tokens exist.

    Raises:
        GrammarError: it is malformed; `.line` and `.column` (from 1), and `.rule` where one is missing.
    """
    rules = _Parser(text, is_token, n_tokens).read()
    rules.require_complete(root)
    return rules
