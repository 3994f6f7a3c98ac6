"""Finds the object-like macros of headers that expand to an integer constant."""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from pycparser import c_ast, c_parser  # type: ignore[import-untyped,unused-ignore]

from .declarations import walk
from .kinds import PRELUDE, TypeTable
from .source import Chunk

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+\S", re.MULTILINE)
_MARK = "bindgen_macro"
_INTEGER_NODES = (
    c_ast.BinaryOp,
    c_ast.UnaryOp,
    c_ast.TernaryOp,
    c_ast.Cast,
    c_ast.Typename,
    c_ast.TypeDecl,
)


def defined_names(header_text: str) -> list[str]:
    """Return the names of the object-like macros that a header gives a value."""
    return list(dict.fromkeys(_DEFINE.findall(header_text)))


def probe(names: Iterable[str]) -> str:
    """Return C that makes the preprocessor show each macro's expansion as a string."""
    lines = ["#define BINDGEN_TEXT(...) #__VA_ARGS__", "#define BINDGEN_SHOW(...) BINDGEN_TEXT(__VA_ARGS__)"]
    for name in names:
        lines += [f"#ifdef {name}", f'{_MARK} "{name}" BINDGEN_SHOW({name});', "#endif"]
    return "\n".join(lines) + "\n"


def integer_macros(chunks: Iterable[Chunk], enumerators: AbstractSet[str]) -> list[str]:
    """Return the names whose expansion, as shown by ``probe``, is an integer constant."""
    names = []
    for chunk in chunks:
        if chunk.tokens[0].text == _MARK:
            name, expansion = (re.sub(r"\\(.)", r"\1", t.text[1:-1]) for t in chunk.tokens[1:3])
            if _is_integer_constant(expansion, enumerators):
                names.append(name)
    return names


def _is_integer_constant(expression: str, enumerators: AbstractSet[str]) -> bool:
    try:
        parsed = c_parser.CParser().parse(f"{PRELUDE} int value = ({expression});", "").ext[-1]
    except c_parser.ParseError:
        return False
    return getattr(parsed, "name", None) == "value" and all(
        _is_integer_part(node, enumerators) for node in walk(parsed.init)
    )


def _is_integer_part(node: Any, enumerators: AbstractSet[str]) -> bool:
    if isinstance(node, c_ast.Constant):
        return "int" in node.type or node.type == "char"
    if isinstance(node, c_ast.ID):
        return node.name in enumerators
    if isinstance(node, c_ast.IdentifierType):
        return TypeTable().kind(node) == "int"
    return isinstance(node, _INTEGER_NODES)
