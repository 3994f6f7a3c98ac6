"""The parts that JSON is made of, as grammar rules: space, strings, numbers, arrays and objects (pure Python)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from causerie.chat.schema.automaton import Automaton, Both, Length
from causerie.chat.schema.automaton_gbnf import automaton_node
from causerie.chat.schema.gbnf import Alt, Chars, Grammar, Lit, Node, Ref, Rep, Seq
from causerie.chat.schema.numbers import Bounds, Numbers
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JsonRules", "literal_json"]

_QUOTE = Lit('"')
_DIGIT = Chars(((0x30, 0x39),))
_HEX = Chars(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
# Strings as a model writes them: all characters but controls as they are, and every escape; \u never half a pair.
_PLAIN = Chars(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF)))


def _one_of(chars: str) -> Chars:
    return Chars(tuple((ord(c), ord(c)) for c in sorted(chars)))


def literal_json(value: Any) -> str:
    """A JSON value as the grammar has it: one text, without space.

    Raises:
        SchemaError: it holds text that is not Unicode.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isascii() and any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise SchemaError(f"{text!r} has a lone surrogate: it is not Unicode text", path="$")
    return text


def _joined(*nodes: Node) -> Seq:
    """One after the other, in one flat sequence: a schema may have hundreds of properties."""
    return Seq(tuple(item for node in nodes for item in (node.items if isinstance(node, Seq) else (node,))))


class JsonRules:
    """Makes the rules of a grammar for JSON; each common one once, when it is first needed.

    Args:
        grammar: gets the rules.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._common: dict[str, Ref] = {}

    def _once(self, name: str, node: Node) -> Ref:
        if name not in self._common:
            self._common[name] = self.grammar.add(name, node)
        return self._common[name]

    @property
    def space(self) -> Ref:
        """Nothing, one blank, or a new line and its indentation."""
        indented = Seq((Lit("\n"), Rep(Lit(" "), 0, 20)))
        return self._once("space", Alt((Lit(""), Lit(" "), indented)))

    def _char(self) -> Ref:
        pair = (_one_of("89ABab"), Rep(_HEX, 2, 2), Lit("\\u"), _one_of("Dd"), _one_of("CDEFcdef"), Rep(_HEX, 2, 2))
        no_d = Chars(((0x30, 0x39), (0x41, 0x43), (0x45, 0x46), (0x61, 0x63), (0x65, 0x66)))
        after_d = Alt((Seq((Chars(((0x30, 0x37),)), Rep(_HEX, 2, 2))), Seq(pair)))
        code = Alt((Seq((no_d, Rep(_HEX, 3, 3))), Seq((_one_of("Dd"), after_d))))
        escape = Seq((Lit("\\"), Alt((_one_of('"\\/bfnrt'), Seq((Lit("u"), code))))))
        return self._once("char", Alt((_PLAIN, escape)))

    def free_text(self, low: int, high: int | None, hint: str) -> Node:
        """Any string of so many characters."""
        if not low and high is None:
            return self._once("string", Seq((_QUOTE, Rep(self._char(), 0, None), _QUOTE)))
        if high is not None and high < low:
            return Alt(())
        return Seq((_QUOTE, self.grammar.repeat(f"{hint}-chars", self._char(), low, high), _QUOTE))

    def text(self, automaton: Automaton, path: str, hint: str) -> Node:
        """The strings that an automaton accepts."""
        return Seq((_QUOTE, automaton_node(self.grammar, automaton, hint, path, in_json=True), _QUOTE))

    def number(self, bounds: Bounds, hint: str, path: str) -> Node:
        """The numbers within bounds."""
        if not bounds.free:
            return automaton_node(self.grammar, Numbers(bounds), hint, path, in_json=False)
        whole = Alt((Lit("0"), Seq((Chars(((0x31, 0x39),)), Rep(_DIGIT, 0, 14)))))
        integer = Seq((Rep(Lit("-"), 0, 1), whole))
        if bounds.decimals == 0:
            return self._once("integer", integer)
        fraction = Seq((Lit("."), Rep(_DIGIT, 1, 15)))
        exponent = Seq((_one_of("Ee"), Rep(_one_of("+-"), 0, 1), Rep(_DIGIT, 1, 2)))
        return self._once("number", Seq((integer, Rep(fraction, 0, 1), Rep(exponent, 0, 1))))

    def simple(self, kind: str) -> Node:
        """null, or true and false."""
        return Lit("null") if kind == "null" else self._once("boolean", Alt((Lit("true"), Lit("false"))))

    def value(self) -> Ref:
        """Any JSON value."""
        if "value" not in self._common:
            self._common["value"] = value = self.grammar.reserve("value")
            scalars = (self.simple("null"), self.simple("boolean"), self.number(Bounds(), "", "$"))
            array = self.array([], value, 0, None, "array")
            members = self.object([], [(self.free_text(0, None, ""), value)], "object")
            self.grammar.rules[value.name] = Alt((*scalars, self.free_text(0, None, ""), array, members))
        return self._common["value"]

    def array(self, prefix: Sequence[Node], rest: Node, low: int, high: int | None, hint: str) -> Node:
        """An array: the first items each by itself, the others alike."""
        if high is not None and high < low:
            return Alt(())
        comma = Seq((Lit(","), self.space))
        n = len(prefix)
        tail = self._rest(rest, max(0, low - n), None if high is None else high - n, hint, first=not prefix)
        for i in reversed(range(n)):
            tail = Lit("") if high is not None and i >= high else _joined(*([comma] if i else []), prefix[i], tail)
            if i >= low:
                tail = self.grammar.add(f"{hint}-from-{i + 1}", Rep(tail, 0, 1))
        return Seq((Lit("["), self.space, tail, self.space, Lit("]")))

    def _rest(self, item: Node, low: int, high: int | None, hint: str, *, first: bool) -> Node:
        if high is not None and high <= 0:
            return Lit("")
        more = Seq((Lit(","), self.space, item))
        if not first:
            return self.grammar.repeat(f"{hint}-more", more, low, high)
        others = self.grammar.repeat(f"{hint}-more", more, max(0, low - 1), None if high is None else high - 1)
        some = Seq((item, others))
        return some if low else Rep(some, 0, 1)

    def key(self, automaton: Automaton | None, names: tuple[Automaton, str] | None, path: str) -> Node:
        """The names of properties that have none in the schema."""
        members = tuple(a for a in (automaton, names[0] if names else None) if a is not None)
        if not members:
            return self.free_text(0, None, "")
        return self.text(Both((*members, Length(0, None))), path, "key")

    def object(
        self, members: Sequence[tuple[str, Node, bool]], further: Sequence[tuple[Node, Node]], hint: str
    ) -> Node:
        """An object.

        Args:
            members: name, value, and whether it must be there; they come in this order.
            further: names and values of those that may follow, any number of them.
            hint: what the rules' names begin with.
        """
        comma = Seq((Lit(","), self.space))
        colon = Seq((Lit(":"), self.space))
        ends: dict[bool, Node] = {True: Lit(""), False: Lit("")}  # by whether it would be the first
        if further:
            pair = self.grammar.add(f"{hint}-pair", Alt(tuple(Seq((key, colon, value)) for key, value in further)))
            more = Rep(self.grammar.add(f"{hint}-pairs", Seq((comma, pair))), 0, None)
            ends = {True: Rep(Seq((pair, more)), 0, 1), False: more}
        for number, (name, value, required) in reversed(list(enumerate(members))):
            member = _joined(Lit(literal_json(name)), colon, value)
            nodes = {True: _joined(member, ends[False]), False: _joined(comma, member, ends[False])}
            ends = {first: node if required else Alt((node, ends[first])) for first, node in nodes.items()}
            if not required:
                ends = {first: self.grammar.add(f"{hint}-from-{number + 1}", node) for first, node in ends.items()}
        return Seq((Lit("{"), self.space, ends[True], self.space, Lit("}")))
