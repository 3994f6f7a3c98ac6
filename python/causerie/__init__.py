"""Conversations on llama.cpp, from Python.

`causerie.llama` has the primitives. Names are loaded when they are first used, so that `import causerie` costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from causerie.errors import (
    BusyError,
    CacheFullError,
    CauserieError,
    ClosedError,
    ContextOverflowError,
    DecodeError,
    GrammarError,
    ModelLoadError,
    NativeError,
    OutOfMemoryError,
    SchemaError,
    StateError,
    TemplateError,
    ToolError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from causerie import llama, models
    from causerie._build import BuildInfo, build_info, doctor

__all__ = [
    "BuildInfo",
    "BusyError",
    "CacheFullError",
    "CauserieError",
    "ClosedError",
    "ContextOverflowError",
    "DecodeError",
    "GrammarError",
    "ModelLoadError",
    "NativeError",
    "OutOfMemoryError",
    "SchemaError",
    "StateError",
    "TemplateError",
    "ToolError",
    "UnsupportedError",
    "build_info",
    "doctor",
    "llama",
    "models",
]

_WHERE = {"BuildInfo": "causerie._build", "build_info": "causerie._build", "doctor": "causerie._build"}
_MODULES = {"llama", "models"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"causerie.{name}")
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
        globals()[name] = value
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("causerie")
    raise AttributeError(f"module 'causerie' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
