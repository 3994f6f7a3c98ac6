"""Answers what a C type is to Python: an int, a float, a bool, or C data."""

from dataclasses import dataclass, field
from typing import Any, Literal

from cffi import model  # type: ignore[import-untyped,unused-ignore]
from pycparser import c_ast  # type: ignore[import-untyped,unused-ignore]

Kind = Literal["void", "int", "float", "bool", "char", "data"]

_BASE_OF_KIND = {"i": "int", "f": "double", "c": "int", "j": "double"}


def _builtin_typedefs() -> dict[str, str]:
    """Return the standard typedefs that cffi knows by name, as typedefs for pycparser."""
    found = {
        name: _BASE_OF_KIND[kind]
        for name, kind in model.PrimitiveType.ALL_PRIMITIVE_TYPES.items()
        if name.endswith("_t")
    }
    return {**found, "bool": "_Bool", "FILE": "struct _IO_FILE", "va_list": "void *"}


BUILTIN_TYPEDEFS = _builtin_typedefs()
PRELUDE = " ".join(f"typedef {base} {name};" for name, base in BUILTIN_TYPEDEFS.items())
"""The standard typedefs as C, for pycparser to begin with."""

_FLOATS = frozenset(("float", "double"))
_KIND_OF_WORD: dict[str, Kind] = {
    "void": "void",
    "bool": "bool",
    "_Bool": "bool",
    **{name: "int" for name, base in BUILTIN_TYPEDEFS.items() if base == "int"},
}
_INTEGER_WORDS = frozenset(("int", "short", "long", "signed", "unsigned", "char"))


def parameters(function: Any) -> list[Any]:
    """Return the parameter nodes of a ``FuncDecl``; ``(void)`` has none."""
    found = list(function.args.params) if function.args else []
    if len(found) == 1 and not isinstance(found[0], c_ast.EllipsisParam):
        only = found[0].type
        if isinstance(only, c_ast.TypeDecl) and getattr(only.type, "names", None) == ["void"]:
            return []
    return found


@dataclass
class TypeTable:
    """The typedefs of the headers, to look through when a type is classified."""

    typedefs: dict[str, Any] = field(default_factory=dict)

    def kind(self, node: Any) -> Kind:
        """Return what a value of the type is to Python."""
        if isinstance(node, c_ast.TypeDecl):
            return self.kind(node.type)
        if isinstance(node, c_ast.Enum):
            return "int"
        if isinstance(node, c_ast.IdentifierType):
            return self.named_kind(node.names)
        return "data"

    def named_kind(self, names: list[str]) -> Kind:
        """Return the kind of a type that is spelled by words, e.g. ``unsigned int``."""
        words = set(names)
        if words & _FLOATS:
            # cffi keeps a long double as C data, so that it loses no digits.
            return "data" if "long" in words else "float"
        if words <= _INTEGER_WORDS:
            return "char" if words == {"char"} else "int"
        name = names[-1]
        if name in self.typedefs:
            return self.kind(self.typedefs[name])
        return _KIND_OF_WORD.get(name, "data")

    def is_text(self, node: Any) -> bool:
        """Whether the type is ``const char *``, for which cffi takes bytes too."""
        if not isinstance(node, (c_ast.PtrDecl, c_ast.ArrayDecl)):
            return False
        target = node.type
        return isinstance(target, c_ast.TypeDecl) and "const" in target.quals and self.kind(target) == "char"
