"""Every exception causerie raises on purpose: one root, and under each the builtin that fits.

Facts an exception knows are attributes, so that a program need not read the message.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BusyError",
    "CacheFullError",
    "CauserieError",
    "ClosedError",
    "ContextOverflowError",
    "DecodeError",
    "DeviceError",
    "GrammarError",
    "HelperDiedError",
    "ModelLoadError",
    "NativeError",
    "OutOfMemoryError",
    "SchemaError",
    "StateError",
    "StateWarning",
    "TemplateError",
    "ToolError",
    "UnsupportedError",
]


class CauserieError(Exception):
    """Root of all errors of this package.

    Keyword arguments become attributes of the exception (for example ``.path``, ``.needed``).
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self._facts = facts
        for name, value in facts.items():
            setattr(self, name, value)  # not __dict__: OSError keeps errno in a slot of its own

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self._facts)


def _rebuild(kind: type[CauserieError], message: str, facts: dict[str, Any]) -> CauserieError:
    return kind(message, **facts)


class HelperDiedError(CauserieError, RuntimeError):
    """The helper process of an engine with ``isolate=True`` has ended by itself; the next call starts another one.

    Attributes: ``exit_code`` (negative: the signal that ended it; None: unknown), ``log`` (its last words).
    """

    exit_code: int | None = None
    log: str = ""


class ModelLoadError(CauserieError, OSError):
    """A model or adapter file is missing, unreadable, damaged or of an unknown kind.

    Attributes: ``path`` (str), ``size`` (bytes, None if there is no file), ``reason`` (llama.cpp's own words).
    """

    path: str | None = None
    size: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DeviceError(CauserieError, OSError):
    """A device cannot be used: its server does not answer, or its backend does not start. Attribute: ``device``."""

    device: str = ""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NativeError(CauserieError, RuntimeError):
    """llama.cpp threw a C++ exception or failed one of its internal checks; the process was kept alive.

    Attribute: ``aborted`` (True after a failed check: the object in use may be inconsistent and refuses further work).
    """

    aborted: bool = False


class NotFiniteError(CauserieError, ValueError):
    """A model computed NaN or infinity: its weights, or an adapter's at its scale, are too large for its types."""


class OutOfMemoryError(CauserieError, MemoryError):
    """A model or a context would not fit into the memory that is free.

    Attributes: ``needed`` and ``available``, both in bytes; None where llama.cpp ran out by itself.
    """

    needed: int | None = None
    available: int | None = None


class ContextOverflowError(CauserieError, ValueError):
    """The prompt does not fit into the context.

    Attributes: ``needed`` and ``available`` (tokens), ``kind`` ("too_long" or "full").
    """

    needed: int | None = None
    available: int | None = None
    kind: str = ""


class CacheFullError(CauserieError, RuntimeError):
    """llama.cpp found no KV cache slot for a batch; nothing of the batch was evaluated."""


class DecodeError(CauserieError, RuntimeError):
    """llama_decode or llama_encode failed. Attribute: ``code`` (llama.cpp's return value)."""

    code: int = 0


class ClosedError(CauserieError, RuntimeError):
    """The object, or the parent it belongs to, has been closed."""


class BusyError(CauserieError, RuntimeError):
    """The object is in use by somebody else right now."""


class TemplateError(CauserieError, ValueError):
    """A chat template is missing, malformed, or refused the messages."""


class GrammarError(CauserieError, ValueError):
    """A grammar is malformed, or was fed a token that it does not accept."""


class SchemaError(CauserieError, ValueError):
    """A JSON schema cannot be enforced. Attribute: ``path`` (JSON path of the offending part)."""

    path: str = ""


class ToolError(CauserieError, RuntimeError):
    """A tool failed, or a tool result does not belong to any call."""


class StateError(CauserieError, ValueError):
    """Saved state is damaged, or belongs to another model, version or configuration.

    Attributes, where they are known: ``path``, ``expected``, ``found``; after `Engine.save_all`: ``failures``
    ((conversation, exception) each), ``saved`` (paths).
    """

    path: str = ""
    expected: Any = None
    found: Any = None
    failures: tuple[tuple[Any, BaseException], ...] = ()
    saved: tuple[Any, ...] = ()


class StateWarning(UserWarning):
    """A saved conversation goes on, but something of the file could not be used; the message says what and why."""


class UnsupportedError(CauserieError, NotImplementedError):
    """The model, the build or the machine cannot do what was asked."""
