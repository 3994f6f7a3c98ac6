"""The one place where a failed native call becomes a Python exception."""

from __future__ import annotations

from typing import Any

from causerie.errors import CacheFullError, CauserieError, DecodeError, NativeError, OutOfMemoryError
from causerie.llama._lib import drain_log, ffi, lib

__all__ = ["call_log", "check", "check_decode"]


def call_log() -> str:
    """Warnings and errors llama.cpp logged during this thread's last guarded call, on one line."""
    text = ffi.string(lib.causerie_error_log()).decode("utf-8", "replace")
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _join(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def check(operation: str, error: type[CauserieError] = NativeError, **facts: Any) -> None:
    """Raise `error` if this thread's last guarded call threw or asserted inside llama.cpp.

    Must be called on the thread of the call, before any other guarded call.
    """
    code = lib.causerie_error_code()
    if code == lib.CAUSERIE_ERROR_NONE:
        return
    message = ffi.string(lib.causerie_error_message()).decode("utf-8", "replace")
    log = call_log()
    drain_log()
    if code == lib.CAUSERIE_ERROR_MEMORY:
        raise OutOfMemoryError(_join(operation, message, log), needed=None, available=None)
    if code == lib.CAUSERIE_ERROR_ABORT:
        raise NativeError(_join(operation, "llama.cpp stopped at an internal check", message, log), aborted=True)
    if code == lib.CAUSERIE_ERROR_EXCEPTION:
        raise error(_join(operation, message, log), **facts)
    raise NativeError(f"{operation}: unknown error code {code} from the shim: {message}")


def check_decode(operation: str, code: int) -> None:
    """Raise for a return value of llama_decode or llama_encode other than 0; an unknown one is loud."""
    log = call_log()
    drain_log()
    if code == 1:
        raise CacheFullError(
            _join(
                f"{operation}: no free KV cache slot for this batch; nothing was evaluated "
                "(remove sequences, or create the context with a larger n_ctx)",
                log,
            )
        )
    if code == 2:  # the caller knows whether it was a cancel
        raise DecodeError(f"{operation}: aborted; finished parts of the batch stay in memory", code=code)
    if code == -1:
        raise DecodeError(_join(f"{operation}: llama.cpp refused the batch", log), code=code)
    if code in {-2, -3}:
        raise DecodeError(_join(f"{operation}: failed; finished parts of the batch stay in memory", log), code=code)
    raise DecodeError(_join(f"{operation}: unknown return value {code}", log), code=code)
