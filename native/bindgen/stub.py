"""Writes the typed stub of the extension module."""

import keyword
from pathlib import Path
from typing import Any

from .declarations import Declarations, Function
from .kinds import Kind, TypeTable, parameters

_RESULT: dict[Kind, str] = {
    "void": "None",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "char": "bytes",
    "data": "CData",
}


def write_stub(found: Declarations, callbacks: frozenset[str]) -> str:
    """Return the ``.pyi`` with one method per function and one int per constant."""
    fixed = Path(__file__).with_name("ffi_stub.pyi.in").read_text(encoding="utf-8")
    lines = [f"    {name}: int" for name in found.constants]
    for function in found.functions:
        if function.header in callbacks:
            lines.append(f"    {function.name}: CData")
        else:
            lines.append(f"    {_method(function, found.table)}")
    return f"{fixed}\nclass _Lib:\n" + ("\n".join(lines) or "    ...") + "\n\nffi: FFI\nlib: _Lib\n"


def _method(function: Function, table: TypeTable) -> str:
    kind = function.node.type
    names: dict[str, str] = {}
    for index, parameter in enumerate(parameters(kind)):
        names[_python_name(parameter.name, index, names)] = _parameter_type(parameter.type, table)
    listed = ["self", *(f"{name}: {annotation}" for name, annotation in names.items()), "/"]
    return f"def {function.name}({', '.join(listed)}) -> {_RESULT[table.kind(kind.type)]}: ..."


def _python_name(name: str | None, index: int, taken: dict[str, str]) -> str:
    if not name or name in taken:
        return f"arg{index}"
    return f"{name}_" if keyword.iskeyword(name) or name == "self" else name


def _parameter_type(node: Any, table: TypeTable) -> str:
    return "CData | bytes" if table.is_text(node) else _RESULT[table.kind(node)]
