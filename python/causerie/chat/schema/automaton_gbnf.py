"""Automata as grammars: one rule per state, as plain text or inside a JSON string (pure Python)."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from causerie.chat.schema.charset import CharSet, intersect
from causerie.chat.schema.gbnf import Alt, Chars, Grammar, Lit, Node, Ref, Seq
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from causerie.chat.schema.automaton import Automaton

__all__ = ["MAX_STATES", "automaton_node", "json_chars", "plain_chars"]

MAX_STATES = 4000
_MAX_STEPS = 40_000

# llama.cpp ends its texts at NUL.
_NOT_NUL: CharSet = ((1, 0x10FFFF),)
_JSON_PLAIN: CharSet = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF))
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_CONTROL: CharSet = ((0, 0x1F),)


def plain_chars(ranges: CharSet) -> Node:
    """One of the characters as it is."""
    return Chars(intersect(ranges, _NOT_NUL))


def json_chars(ranges: CharSet) -> Node:
    """One of the characters as a JSON string has it; what needs no escape has none."""
    options: list[Node] = []
    if plain := intersect(ranges, _JSON_PLAIN):
        options.append(Chars(plain))
    short = sorted(ord(e) for c, e in _SHORT.items() if any(low <= ord(c) <= high for low, high in ranges))
    if short:
        options.append(Seq((Lit("\\"), Chars(tuple((e, e) for e in short)))))
    if not options:  # of the control characters only where nothing else would do
        codes = [c for low, high in intersect(ranges, _CONTROL) for c in range(low, high + 1)]
        options = [Lit(f"\\u{code:04x}") for code in codes]
    return options[0] if len(options) == 1 else Alt(tuple(options))


class _Explored:
    """The states of an automaton that can be reached and lead to an end, numbered."""

    def __init__(self, automaton: Automaton, path: str) -> None:
        numbers: dict[Any, int] = {automaton.start: 0}
        todo = deque([automaton.start])
        self.steps: list[list[tuple[CharSet, int]]] = []
        self.final: list[bool] = []
        total = 0
        while todo:
            state = todo.popleft()
            found = automaton.steps(state)
            total += len(found)
            for _, target in found:
                if target not in numbers:
                    numbers[target] = len(numbers)
                    todo.append(target)
            if len(numbers) > MAX_STATES or total > _MAX_STEPS:
                raise SchemaError(
                    f"{path or 'the pattern'}: the texts allowed here need more than {MAX_STATES} states of a grammar: "
                    "use a simpler pattern or smaller bounds",
                    path=path,
                )
            self.steps.append([(ranges, numbers[target]) for ranges, target in found])
            self.final.append(automaton.final(state))
        self._drop_dead_ends()

    def _drop_dead_ends(self) -> None:
        sources: list[list[int]] = [[] for _ in self.steps]
        for state, found in enumerate(self.steps):
            for _, target in found:
                sources[target].append(state)
        alive = {state for state, final in enumerate(self.final) if final}
        todo = list(alive)
        while todo:
            for source in sources[todo.pop()]:
                if source not in alive:
                    alive.add(source)
                    todo.append(source)
        self.steps = [[step for step in found if step[1] in alive] for found in self.steps]
        self.alive = alive


def automaton_node(grammar: Grammar, automaton: Automaton, hint: str, path: str, *, in_json: bool) -> Node:
    """The texts that an automaton accepts, as a part of a grammar.

    Args:
        grammar: gets the rules.
        automaton: what to accept.
        hint: what the rules' names begin with.
        path: where in the schema it comes from.
        in_json: the text stands between the quotes of a JSON string.

    Raises:
        SchemaError: it needs too many rules.
    """
    found = _Explored(automaton, path)
    if 0 not in found.alive:
        return Alt(())
    encode = json_chars if in_json else plain_chars
    incoming = Counter(target for steps in found.steps for _, target in steps)
    names: dict[int, Ref] = {}

    def chain(ranges: CharSet, state: int) -> Node:
        """A step, and those behind it that follow without a choice."""
        items = [encode(ranges)]
        while state and incoming[state] == 1 and len(found.steps[state]) == 1 and not found.final[state]:
            ((ranges, state),) = found.steps[state]
            items.append(encode(ranges))
        if found.steps[state] or not found.final[state]:
            items.append(rule(state))
        return Seq(tuple(items))

    todo: list[int] = []

    def rule(state: int) -> Ref:
        if state not in names:
            names[state] = grammar.reserve(f"{hint}-s{state}")
            todo.append(state)
        return names[state]

    root = rule(0)
    while todo:
        state = todo.pop()
        ends: tuple[Node, ...] = (Lit(""),) if found.final[state] else ()
        grammar.rules[names[state].name] = Alt((*(chain(*step) for step in found.steps[state]), *ends))
    return root
