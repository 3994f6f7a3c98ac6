"""What tells one model from another without reading all of it: metadata, the table of tensors, samples of weights."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

from causerie.llama._gguf import read_tensors
from causerie.llama._model_file import has_descriptor, opened_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causerie.llama._gguf import Tensor
    from causerie.llama._model_file import ModelFile

__all__ = ["fingerprint"]

# Fine-tuned models of one kind have the same metadata and the same table: only what is in the tensors differs.
_SAMPLES = 64
_SAMPLE_BYTES = 256


def fingerprint(what: ModelFile, metadata: Mapping[str, str], overrides: Mapping[str, object]) -> str:
    """32 hex digits that depend on a model's content, and neither on its path nor on how it is split.

    SHA-256 of its metadata (what is about the split left out), the names, types and shapes of its tensors, and the
    middle of 64 of them: 16 KB are read besides the table.

    Args:
        what: its files.
        metadata: of the loaded model.
        overrides: metadata keys that read as another value.

    Raises:
        OSError, ModelLoadError: the files are not there any more, or are damaged.
    """
    import hashlib  # loads OpenSSL

    facts = sorted((key, value) for key, value in metadata.items() if not key.startswith("split."))
    digest = hashlib.sha256(usedforsecurity=False)
    with ExitStack() as stack:
        files = [what.stream] if what.stream else [stack.enter_context(path.open("rb")) for path in what.all_paths]
        found = [(tensor, file) for file in files for tensor in _tensors(file, what)]
        found.sort(key=lambda pair: pair[0].name)
        table = [(tensor.name, tensor.type, tensor.shape) for tensor, _ in found]
        changed = sorted((key, repr(value)) for key, value in overrides.items())
        digest.update(json.dumps([facts, changed, table]).encode())
        large = [(tensor, file) for tensor, file in found if tensor.size >= _SAMPLE_BYTES]
        for tensor, file in large[:: max(1, -(-len(large) // _SAMPLES))]:
            digest.update(_middle(file, tensor))
    return digest.hexdigest()[:32]


def _tensors(file: IO[bytes], what: ModelFile) -> list[Tensor]:
    with opened_stream(file) as stream:
        return read_tensors(stream, path=what.name, size=what.size)


def _middle(file: IO[bytes], tensor: Tensor) -> bytes:
    position = file.tell()
    # Offsets count from the start of what was opened: of a file object without a descriptor, a copy from its position.
    start = 0 if has_descriptor(file) else position
    try:
        file.seek(start + tensor.offset + (tensor.size - _SAMPLE_BYTES) // 2)
        return file.read(_SAMPLE_BYTES)
    finally:
        file.seek(position)
