"""Grammars in GBNF as rules that can be taken apart, renamed and put together. Text in, text out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["put_together", "references", "renamed", "take_apart", "tokens", "without_unused"]

_TOKEN = re.compile(
    r'(?P<literal>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<count>\{[^}]*\})'
    r"|(?P<token>!?<(?:\[[0-9]+\]|[^<>]+)>)|(?P<note>#[^\n]*)"
    r"|(?P<define>[A-Za-z0-9-]+[ \t]*::=)|(?P<name>[A-Za-z0-9-]+)|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL,
)

Rules = dict[str, str]
"""The rules of a grammar by name, in order."""


def take_apart(gbnf: str) -> Rules:
    """The rules of a grammar that is well formed."""
    rules: dict[str, list[str]] = {}
    body: list[str] = []
    for found in _TOKEN.finditer(gbnf):
        if found.lastgroup == "define":
            body = rules.setdefault(found.group()[:-3].strip(), [])
        elif found.lastgroup != "note":
            body.append(found.group())
    return {name: "".join(parts).strip() for name, parts in rules.items()}


def put_together(rules: Mapping[str, str]) -> str:
    """The grammar with these rules."""
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())


def tokens(body: str) -> list[tuple[str, str]]:
    """What a rule is made of, without the space between: kinds ("name", "literal", "sign" ...) and texts."""
    return [(found.lastgroup or "", found.group()) for found in _TOKEN.finditer(body) if found.lastgroup != "space"]


def references(body: str) -> Iterator[str]:
    """The rules that a rule refers to."""
    return (text for kind, text in tokens(body) if kind == "name")


def renamed(rules: Mapping[str, str], rename: Callable[[str], str]) -> Rules:
    """The same grammar with other names."""

    def new(found: re.Match[str]) -> str:
        return rename(found.group()) if found.lastgroup == "name" else found.group()

    return {rename(name): _TOKEN.sub(new, body) for name, body in rules.items()}


def without_unused(rules: Mapping[str, str], root: str = "root") -> Rules:
    """Only the rules that the root leads to."""
    used: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in used and name in rules:
            used.add(name)
            waiting += references(rules[name])
    return {name: body for name, body in rules.items() if name in used}
