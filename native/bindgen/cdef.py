"""Writes the declarations for cffi, leaving every value to the C compiler."""

import contextlib
import copy
import io
import tempfile
from pathlib import Path
from typing import Any

from cffi import FFI  # type: ignore[import-untyped,unused-ignore]
from cffi.error import CDefError, FFIError  # type: ignore[import-untyped,unused-ignore]
from pycparser import c_ast, c_generator  # type: ignore[import-untyped,unused-ignore]

from .declarations import Declarations, Function, Item, walk
from .errors import BindgenError
from .kinds import parameters

_BY_COMPILER = "..."


def c_text(node: Any) -> str:
    """Return a pycparser node as C."""
    return str(c_generator.CGenerator().visit(node))


def write_cdef(found: Declarations, callbacks: frozenset[str]) -> str:
    """Return the text for ``FFI.cdef``; functions of ``callbacks`` headers are Python's to define."""
    lines = []
    loose: list[str] = []
    for item in found.types:
        if _is_loose_enum(item.node):
            loose += [enumerator.name for enumerator in item.node.type.values.enumerators]
        else:
            lines.append(c_text(_type_for_cffi(item)) + ";")
    functions = [f for f in found.functions if f.header not in callbacks]
    lines += [_prototype(function) for function in functions]
    by_enum = _enumerators(found).difference(loose)
    for name in found.constants:
        if name in found.static_constants:
            node = copy.deepcopy(found.static_constants[name])
            node.init = None
            lines.append(c_text(node) + ";")
        elif name not in by_enum:
            lines.append(f"#define {name} {_BY_COMPILER}")
    defined_in_python = [_prototype(f) for f in found.functions if f.header in callbacks]
    if defined_in_python:
        lines += ['extern "Python+C" {', *defined_in_python, "}"]
    return "\n".join(lines) + "\n"


def write_module(module: str, cdef: str, preamble: str) -> str:
    """Return the C source of the extension module that cffi makes of a cdef."""
    ffi = FFI()
    with tempfile.TemporaryDirectory(prefix="bindgen-") as folder:
        target = Path(folder, "module.c")
        try:
            ffi.cdef(cdef)
            ffi.set_source(module, preamble, py_limited_api=True)
            # cffi announces the temporary file on stdout.
            with contextlib.redirect_stdout(io.StringIO()):
                ffi.emit_c_code(str(target))
        except (CDefError, FFIError) as error:
            raise BindgenError(f"cffi does not take the declarations: {error}") from None
        return target.read_text(encoding="utf-8")


def _prototype(function: Function) -> str:
    node = copy.deepcopy(function.node)
    node.storage, node.funcspec = [], []
    for parameter in parameters(node.type):
        if isinstance(parameter.type, c_ast.ArrayDecl):
            # A parameter's outer length means nothing in C, and cffi may not be able to compute it.
            parameter.type.dim, parameter.type.dim_quals = None, []
    return c_text(node) + ";"


def _is_loose_enum(node: Any) -> bool:
    """Whether the declaration is ``enum { ... };``, which names no type."""
    return isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum) and not node.type.name


def _enumerators(found: Declarations) -> set[str]:
    return {node.name for item in found.types for node in walk(item.node) if isinstance(node, c_ast.Enumerator)}


def _type_for_cffi(item: Item) -> Any:
    """Return a copy whose enum values and computed array lengths are the compiler's."""
    node = copy.deepcopy(item.node)
    for part in list(walk(node)):
        if isinstance(part, c_ast.Enum) and part.values:
            for enumerator in part.values.enumerators:
                enumerator.value = None
            part.values.enumerators.append(c_ast.Enumerator(_BY_COMPILER, None))
        elif isinstance(part, c_ast.ArrayDecl) and part.dim is not None and not _is_plain(part.dim):
            part.dim = c_ast.ID(_BY_COMPILER)
        elif isinstance(part, (c_ast.Struct, c_ast.Union)) and part.decls and item.chunk.special_layout:
            part.decls.append(c_ast.ID(_BY_COMPILER))
    return node


def _is_plain(dim: Any) -> bool:
    """Whether cffi can compute the array length by itself."""
    return all(isinstance(node, (c_ast.Constant, c_ast.BinaryOp)) for node in walk(dim))
