"""The container that saved state travels in: what it is, whose it is, and checksums over every byte.

llama.cpp's own state has none of these, and reading a damaged or foreign one may assert or silently restore nonsense.
Layout, little endian, every part starts at a multiple of four bytes:

| bytes | what |
|---|---|
| 8 | magic `causerie` |
| 4, 4 | format version, length of the header |
| 8, 8 | number of tokens, length of the payload |
| 32, 32, 32 | SHA-256 of (all of the above, the next two, the header), of the tokens, of the payload |
| header | JSON, padded with spaces: kind, positions of the sequences, facts that must match |
| tokens | int32 each |
| payload | what llama_state_get_data or llama_state_seq_get_data_ext wrote |

SHA-256 is what processors have instructions for: 1.3 GB/s measured, two to three times the speed of BLAKE2b, a quarter
of the speed of saving itself. The checksums find damage, not malice: trust state from somebody else as little as a
model file from them.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from causerie.errors import StateError
from causerie.llama._lib import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from causerie.llama.context import Context

__all__ = ["PREFIX_SIZE", "Blob", "Header", "Writer", "announced_size", "facts", "parse", "tokens"]

_MAGIC = b"causerie"
_VERSION = 1
_PLAIN = struct.Struct("<8sIIQQ")
_PREFIX = struct.Struct("<8sIIQQ32s32s32s")
_UNCHECKED = bytes(32)
_INT32_MAX = 2**31 - 1
_LARGE = 1 << 22
_PARAMS = (
    "rope_scaling_type", "rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast",
    "yarn_beta_slow", "yarn_orig_ctx",
)  # fmt: skip

PREFIX_SIZE = _PREFIX.size


@dataclass(frozen=True)
class Header:
    """What a state is.

    Attributes:
        kind: "context" (all sequences) or "sequence".
        partial: only what cannot be rolled back (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY), to be laid over the rest.
        checked: whether the payload has a checksum.
        sequences: (id, smallest position, largest position) of every sequence in it.
        flash_attn: as it was asked for; "auto" may resolve to either.
        facts: what must be equal in the context that takes it.
    """

    kind: Literal["context", "sequence"]
    partial: bool
    checked: bool
    sequences: tuple[tuple[int, int, int], ...]
    flash_attn: str
    facts: dict[str, Any]

    def encode(self) -> bytes:
        """JSON, padded so that what follows is aligned."""
        text = json.dumps(asdict(self), separators=(",", ":"), sort_keys=True).encode()
        return text + b" " * (-len(text) % 8)


@dataclass(frozen=True)
class Blob:
    """A checked state; `tokens` is a copy, `payload` a view of what was parsed."""

    header: Header
    tokens: NDArray[np.int32]
    payload: memoryview


class Writer:
    """A state in the making: `payload` is where llama.cpp writes to, `finish` gives the whole without copying it."""

    def __init__(self, header: Header, tokens: NDArray[np.int32], payload_size: int, *, mapped: bool = False) -> None:
        self._header = header
        self._encoded = header.encode()
        self._tokens = np.ascontiguousarray(tokens, "<i4").tobytes()
        self._start = PREFIX_SIZE + len(self._encoded) + len(self._tokens)
        self._payload_size = payload_size
        # A bytes object that nobody else has seen yet may be filled in place (as after PyBytes_FromStringAndSize): so
        # state, which can be gigabytes, is written once and never copied.
        size = self._start + payload_size
        self._data = _huge_pages(size) if mapped and size >= _LARGE and sys.platform != "win32" else bytes(size)
        self._memory = ffi.cast("uint8_t *", ffi.from_buffer(self._data))

    @property
    def payload(self) -> Any:
        """uint8_t * with room for the payload."""
        return self._memory + self._start

    def __len__(self) -> int:
        return len(self._data)

    def finish(self) -> bytes | mmap.mmap:
        """Compute the checksums and write everything before the payload."""
        plain = _PLAIN.pack(_MAGIC, _VERSION, len(self._encoded), len(self._tokens) // 4, self._payload_size)
        tokens = _digest(self._tokens)
        payload = _digest(memoryview(self._data)[self._start :]) if self._header.checked else _UNCHECKED
        head = plain + _digest(plain, tokens, payload, self._encoded) + tokens + payload + self._encoded + self._tokens
        ffi.memmove(self._memory, head, len(head))
        return self._data


def _huge_pages(size: int) -> mmap.mmap:
    """Memory in large pages: it is had three times as quickly as in small ones."""
    data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            data.madvise(mmap.MADV_HUGEPAGE)
    return data


def _digest(*parts: bytes | memoryview) -> bytes:
    import hashlib  # loads OpenSSL: 4 MB that only saved state needs

    digest = hashlib.sha256(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return digest.digest()


def announced_size(prefix: Buffer) -> int:
    """How long the state is that starts with these `PREFIX_SIZE` bytes.

    Raises:
        StateError: they are not the start of a state.
    """
    if len(memoryview(prefix)) < PREFIX_SIZE:
        raise StateError(f"this is not a saved state, or it is truncated: {len(memoryview(prefix))} bytes")
    magic, version, n_header, n_tokens, n_payload = _PLAIN.unpack_from(prefix)
    if magic != _MAGIC:
        raise StateError(f"this is not a state saved by causerie: it starts with {magic!r}")
    if version != _VERSION:
        raise StateError(f"state has format version {version}, this version of causerie reads {_VERSION}")
    return int(PREFIX_SIZE + n_header + 4 * n_tokens + n_payload)


def parse(data: Buffer) -> Blob:
    """Check a state byte by byte.

    Raises:
        StateError: not a state, truncated, or damaged.
        TypeError: not contiguous bytes.
    """
    view = memoryview(data)
    if not view.contiguous:
        raise TypeError("state must be contiguous bytes")
    view = view.cast("B")
    expected = announced_size(view)
    if len(view) != expected:
        what = "truncated" if len(view) < expected else "followed by something else"
        raise StateError(f"state is {what}: {len(view)} bytes where {expected} are announced")
    _, _, n_header, n_tokens, _, head_sum, tokens_sum, payload_sum = _PREFIX.unpack_from(view)
    tokens_start = PREFIX_SIZE + n_header
    encoded, tokens = view[PREFIX_SIZE:tokens_start], view[tokens_start : tokens_start + 4 * n_tokens]
    payload = view[tokens_start + 4 * n_tokens :]
    if _digest(view[: _PLAIN.size], tokens_sum, payload_sum, encoded) != head_sum:
        raise StateError("state is damaged: the checksum of its header is wrong")
    try:
        fields = json.loads(bytes(encoded))
        fields["sequences"] = tuple((int(s), int(low), int(high)) for s, low, high in fields["sequences"])
        header = Header(**fields)
    except (TypeError, ValueError, KeyError) as error:
        raise StateError(f"state has a header that cannot be read: {error}") from None
    if _digest(tokens) != tokens_sum:
        raise StateError("state is damaged: the checksum of its tokens is wrong")
    if header.checked and _digest(payload) != payload_sum:
        raise StateError("state is damaged: the checksum of its payload is wrong")
    return Blob(header, np.frombuffer(tokens, "<i4").astype(np.int32), payload)


@cache
def _llama_commit() -> str:
    info = json.loads(ffi.string(lib.causerie_build_info()))
    return str(info["llama_commit"])[:12]


def facts(context: Context, params: Any) -> dict[str, Any]:
    """What cached keys and values depend on besides the tokens; `params` are the context's llama_context_params."""
    model = context.model
    found: dict[str, Any] = {name: getattr(params, name) for name in _PARAMS}
    found["llama_cpp"] = _llama_commit()
    found["byteorder"] = sys.byteorder
    found["model"] = f"{model.desc} {model.fingerprint}"
    if not model.is_recurrent:
        found["type_k"] = ffi.string(lib.ggml_type_name(params.type_k)).decode()
        found["type_v"] = ffi.string(lib.ggml_type_name(params.type_v)).decode()
        found["streams"] = 1 if context.kv_unified else context.n_seq_max
    scaling = f"{model.metadata.get('general.architecture')}.rope.scaling"
    original = model.metadata.get(f"{scaling}.original_context_length")
    if original is not None and model.metadata.get(f"{scaling}.type") not in {"none", "linear", "yarn"}:
        found["rope_long"] = context.n_ctx_seq > int(original)  # LongRoPE has other factors for long contexts
    return found


def tokens(ids: Sequence[int] | NDArray[Any] = ()) -> NDArray[np.int32]:
    """Token ids as the container holds them, int32 (n,).

    Raises:
        ValueError: no flat sequence of ids.
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"tokens must be a flat sequence of ints, not {array.dtype} of shape {array.shape}")
    if array.min() < 0 or array.max() > _INT32_MAX:
        raise ValueError(f"token ids must be in 0..{_INT32_MAX}")
    return array.astype(np.int32)
