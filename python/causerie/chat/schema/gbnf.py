"""Grammars as trees, and their text in GBNF, llama.cpp's grammar format (pure Python)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.chat.schema.charset import CharSet

__all__ = ["Alt", "Chars", "Grammar", "Lit", "Node", "Ref", "Rep", "Seq", "literal"]

_PLAIN = re.compile(r"[A-Za-z0-9 !#$%&'()*+,./:;<=>?@_`{|}~]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
# llama.cpp takes a larger maximum for none at all.
_MOST = 1000


@dataclass(frozen=True)
class Lit:
    """Exactly this text."""

    text: str


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    ranges: CharSet


@dataclass(frozen=True)
class Ref:
    """Whatever the rule of that name matches."""

    name: str


@dataclass(frozen=True)
class Seq:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    """One of several; none of them: nothing at all matches."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Rep:
    """At least `low` times, and at most `high` times unless that is None."""

    item: Node
    low: int
    high: int | None


Node = Lit | Chars | Ref | Seq | Alt | Rep


def _escaped(char: str) -> str:
    if _PLAIN.match(char):
        return char
    code = ord(char)
    return f"\\x{code:02X}" if code <= 0xFF else f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def literal(text: str) -> str:
    """The GBNF literal that matches exactly this text."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _char_class(ranges: CharSet) -> str:
    return "[" + "".join(_escaped(chr(a)) + (f"-{_escaped(chr(b))}" if b > a else "") for a, b in ranges) + "]"


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Seq):
        return node.items
    if isinstance(node, Alt):
        return node.options
    return (node.item,) if isinstance(node, Rep) else ()


@dataclass
class Grammar:
    """Rules by name, to be written out as GBNF."""

    rules: dict[str, Node] = field(default_factory=dict)
    _shared: dict[Node, Ref] = field(default_factory=dict)

    def reserve(self, hint: str) -> Ref:
        """A name for a rule that is made later."""
        base = _NOT_IN_NAMES.sub("-", hint).strip("-")[-60:].strip("-") or "rule"
        name, n = base, 1
        while name in self.rules:
            n += 1
            name = f"{base}-{n}"
        self.rules[name] = Alt(())
        return Ref(name)

    def add(self, hint: str, node: Node) -> Ref:
        """A rule for a part that is used more than once; one for all equal parts."""
        if node not in self._shared:
            ref = self.reserve(hint)
            self.rules[ref.name] = node
            self._shared[node] = ref
        return self._shared[node]

    def repeat(self, hint: str, node: Node, low: int, high: int | None) -> Node:
        """A part so many times, in pieces that llama.cpp can repeat."""
        item = node if isinstance(node, (Ref, Chars)) else self.add(hint, node)
        if high is None:
            return Seq((*self._exactly(hint, item, low), Rep(item, 0, None)))
        return Seq((*self._exactly(hint, item, low), self._at_most(hint, item, high - low)))

    def _exactly(self, hint: str, item: Node, n: int) -> tuple[Node, ...]:
        blocks, rest = divmod(n, _MOST)
        parts: list[Node] = []
        if blocks:
            parts.append(Rep(self.add(hint, Rep(item, _MOST, _MOST)), blocks, blocks))
        if rest:
            parts.append(Rep(item, rest, rest))
        return tuple(parts)

    def _at_most(self, hint: str, item: Node, n: int) -> Node:
        if n <= _MOST:
            return Rep(item, 0, n) if n else Lit("")
        blocks, rest = divmod(n, _MOST)
        block = self.add(hint, Rep(item, _MOST, _MOST))
        fewer = Seq((Rep(block, 0, blocks - 1), Rep(item, 0, _MOST - 1)))
        return Alt((fewer, Seq((Rep(block, blocks, blocks), Rep(item, 0, rest) if rest else Lit("")))))

    def text(self, root: Node) -> str | None:
        """The grammar in GBNF, without what can never match; None if nothing matches."""
        self.rules["root"] = root
        finite = self._finite()
        if "root" not in finite:
            return None
        lines = []
        for name in self._reachable(finite):
            body = _pruned(self.rules[name], finite)
            lines.append(f"{name} ::= {_written(body, 0) if body is not None else ''}\n")
        return "".join(lines)

    def _finite(self) -> set[str]:
        """The rules that match some text of finite length."""
        found: set[str] = set()
        users: dict[str, set[str]] = {}
        for name, node in self.rules.items():
            for used in _references(node):
                users.setdefault(used, set()).add(name)
        todo = set(self.rules)
        while todo:
            name = todo.pop()
            if name not in found and _pruned(self.rules[name], found) is not None:
                found.add(name)
                todo |= users.get(name, set()) - found
        return found

    def _reachable(self, finite: set[str]) -> list[str]:
        order, seen = ["root"], {"root"}
        for name in order:
            body = _pruned(self.rules[name], finite)
            for used in _references(body) if body is not None else ():
                if used not in seen:
                    seen.add(used)
                    order.append(used)
        return order


def _references(node: Node) -> Iterator[str]:
    if isinstance(node, Ref):
        yield node.name
    for child in _children(node):
        yield from _references(child)


def _pruned(node: Node, finite: set[str]) -> Node | None:
    """The part without options that can never match; None if it can never match itself."""
    if isinstance(node, Seq):
        items = [_pruned(item, finite) for item in node.items]
        return None if None in items else Seq(tuple(i for i in items if i is not None and i != Lit("")))
    if isinstance(node, Alt):
        options = tuple(dict.fromkeys(o for o in (_pruned(option, finite) for option in node.options) if o is not None))
        return None if not options else options[0] if len(options) == 1 else Alt(options)
    if isinstance(node, Rep):
        item = _pruned(node.item, finite)
        if item is None or node.high == 0:
            return None if node.low and item is None else Lit("")
        return item if (node.low, node.high) == (1, 1) else Rep(item, node.low, node.high)
    matches = node.name in finite if isinstance(node, Ref) else not isinstance(node, Chars) or bool(node.ranges)
    return node if matches else None


def _written(node: Node, strength: int) -> str:
    """The part in GBNF; strength: 0 where anything may stand, 1 in a sequence, 2 before a repetition."""
    if isinstance(node, Lit):
        text, own = literal(node.text), 1 if len(node.text) != 1 else 2
    elif isinstance(node, Chars):
        text, own = _char_class(node.ranges), 2
    elif isinstance(node, Ref):
        text, own = node.name, 2
    elif isinstance(node, Alt):
        text, own = " | ".join(_written(option, 1) for option in node.options), 0
    elif isinstance(node, Seq):
        text, own = " ".join(_written(item, 1) for item in node.items) or '""', 1
    else:
        text, own = _written(node.item, 2) + _times(node.low, node.high), 1
    return text if own >= strength else f"({text})"


def _times(low: int, high: int | None) -> str:
    short = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((low, high))
    if short is not None:
        return short
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
