"""Parses the kept declarations and decides which of them become part of the bindings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pycparser import c_ast, c_parser  # type: ignore[import-untyped,unused-ignore]

from .errors import BindgenError
from .kinds import PRELUDE, TypeTable, parameters
from .source import Chunk

_PARSE_ERROR = re.compile(r":(\d+):(\d+): (.*)$", re.DOTALL)
_TAGGED = (c_ast.Struct, c_ast.Union, c_ast.Enum)

Node = Any
"""A pycparser node; pycparser carries no types."""


@dataclass(frozen=True)
class Item:
    """One parsed declaration with the text and the header it came from."""

    node: Node
    chunk: Chunk


@dataclass(frozen=True)
class Function:
    """A function declaration that can be called through the bindings."""

    name: str
    header: str
    node: Node


@dataclass
class Declarations:
    """What the bindings are made of, in source order."""

    types: list[Item] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    static_constants: dict[str, Node] = field(default_factory=dict)
    deprecated: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    table: TypeTable = field(default_factory=TypeTable)

    def drop_undefined(self, headers: frozenset[str], mentioned: frozenset[str]) -> None:
        """Skip the functions of these headers that no source file mentions."""
        undefined = {f.name for f in self.functions if f.header in headers and f.name not in mentioned}
        self.functions = [f for f in self.functions if f.name not in undefined]
        self.skipped.update(dict.fromkeys(sorted(undefined), "never defined"))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    yield node
    for _, child in node.children():
        yield from walk(child)


def parse(chunks: list[Chunk]) -> list[Item]:
    """Parse the declarations; one that C does not allow is a ``BindgenError``."""
    # One declaration per line: the line of a node is then the number of its chunk.
    text = "\n".join([PRELUDE, *(chunk.text for chunk in chunks)])
    try:
        nodes = c_parser.CParser().parse(text, "").ext
    except c_parser.ParseError as error:
        raise BindgenError(_explain(str(error), chunks)) from None
    return [Item(node, chunks[node.coord.line - 2]) for node in nodes if node.coord.line > 1]


def _explain(message: str, chunks: list[Chunk]) -> str:
    """Translate pycparser's position into header, line and offending text."""
    match = _PARSE_ERROR.search(message)
    if match is None or not 0 <= int(match.group(1)) - 2 < len(chunks):
        return f"cannot parse the headers: {message}"
    chunk = chunks[int(match.group(1)) - 2]
    token = chunk.token_at(int(match.group(2)))
    return f"{token.file}:{token.line}: cannot parse, {match.group(3)} (an unknown type?)\n  {chunk.text[:200]}"


def select(items: list[Item], exported: dict[str, str]) -> Declarations:
    """Keep the functions of the exported headers and every type they need.

    ``exported`` maps the path of a header, as the line markers spell it, to its include name.
    """
    found = Declarations()
    candidates = _candidates(items, found)
    seeds = [item for item in candidates if item.chunk.file in exported]
    seen: set[str] = set()
    for item in items:
        if item.chunk.file in exported and not _is_type(item.node) and item.node.name not in seen:
            seen.add(item.node.name)
            _sort(item, exported[item.chunk.file], found)
    needed = _reachable(candidates, [*(i.node for i in seeds), *(f.node for f in found.functions)])
    found.types = [item for item in candidates if id(item) in needed]
    for item in found.types:
        found.constants += [n.name for n in walk(item.node) if isinstance(n, c_ast.Enumerator)]
    found.constants += [name for name, node in found.static_constants.items() if found.table.kind(node.type) == "int"]
    return found


def _is_type(node: Node) -> bool:
    return isinstance(node, c_ast.Typedef) or (isinstance(node, c_ast.Decl) and node.name is None)


def _candidates(items: list[Item], found: Declarations) -> list[Item]:
    """Return the type declarations, each typedef once, and fill the type table."""
    candidates = []
    for item in items:
        if isinstance(item.node, c_ast.Typedef):
            if item.node.name in found.table.typedefs:
                continue
            found.table.typedefs[item.node.name] = item.node.type
        if _is_type(item.node):
            candidates.append(item)
    return candidates


def _sort(item: Item, header: str, found: Declarations) -> None:
    """File a function or variable under what happens to it."""
    node = item.node
    if item.chunk.deprecated:
        found.deprecated.append(node.name)
    elif not isinstance(node.type, c_ast.FuncDecl):
        if "static" in node.storage and "const" in node.quals:
            found.static_constants[node.name] = node
        else:
            found.skipped[node.name] = "variable"
    elif reason := _why_not(node):
        found.skipped[node.name] = reason
    else:
        found.functions.append(Function(node.name, header, node))


def _why_not(node: Node) -> str | None:
    """Return why a function cannot be called through the bindings."""
    if "static" in node.storage or "inline" in node.funcspec:
        return "inline"
    for parameter in parameters(node.type):
        if isinstance(parameter, c_ast.EllipsisParam):
            return "variadic"
        if any("va_list" in getattr(n, "names", ()) for n in walk(parameter)):
            return "va_list"
    return None


def _keys(node: Node, *, provided: bool) -> set[str]:
    """Return the types that a declaration defines, or those that it mentions."""
    keys = {f"typedef {node.name}"} if provided and isinstance(node, c_ast.Typedef) else set()
    for part in walk(node):
        if isinstance(part, _TAGGED):
            members = part.values if isinstance(part, c_ast.Enum) else part.decls
            if part.name and bool(members) is provided:
                keys.add(f"tag {part.name}")
        elif isinstance(part, c_ast.IdentifierType) and not provided:
            keys.update(f"typedef {name}" for name in part.names)
    return keys


def _reachable(candidates: list[Item], roots: list[Node]) -> set[int]:
    """Return the ids of the type declarations that the roots are or need."""
    providers = {key: item for item in candidates for key in _keys(item.node, provided=True)}
    needed = {id(item) for item in candidates if any(item.node is root for root in roots)}
    pending = list(roots)
    while pending:
        for key in _keys(pending.pop(), provided=False):
            item = providers.get(key)
            if item is not None and id(item) not in needed:
                needed.add(id(item))
                pending.append(item.node)
    return needed
