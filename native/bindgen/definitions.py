"""Finds the functions that a header declares and no source file defines.

Such a declaration compiles, but a module that mentions it cannot be linked or imported.
"""

import re
from collections.abc import Iterable
from pathlib import Path

_SUFFIXES = frozenset((".c", ".cc", ".cpp", ".m", ".mm"))
_NAME_AND_PARENTHESIS = re.compile(rb"\b([A-Za-z_]\w*)\s*\(")


def mentioned_names(directories: Iterable[Path]) -> frozenset[str]:
    """Return every name that sources below the directories define or call.

    A call counts too: telling it from a definition needs a C++ parser, and nobody calls a function that is
    not there.
    """
    found: set[bytes] = set()
    for directory in directories:
        for path in directory.rglob("*"):
            if path.suffix in _SUFFIXES and path.is_file():
                found.update(_NAME_AND_PARENTHESIS.findall(path.read_bytes()))
    return frozenset(name.decode("ascii") for name in found)
