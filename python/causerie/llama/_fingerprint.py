"""What tells one model from another without reading all of it: metadata, the table of tensors, samples of weights."""

from __future__ import annotations

import json
import threading
from typing import IO, TYPE_CHECKING

from causerie.llama._gguf import read_tensors
from causerie.llama._model_file import has_descriptor, opened_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causerie.llama._gguf import Tensor
    from causerie.llama._model_file import ModelFile

__all__ = ["Fingerprint"]

# Fine-tuned models of one kind have the same metadata and the same table: only what is in the tensors differs.
_SAMPLES = 64
_SAMPLE_BYTES = 256


class Fingerprint:
    """Computes it once somebody asks, of the very files that were loaded: they stay open until then, or until `close`.

    Args:
        what: the files. A file object is the caller's, who may close it: of one, it is computed at once.
        metadata: of the loaded model.
        overrides: metadata keys that read as another value.

    Raises:
        OSError, ModelLoadError: the files are not there any more, or are damaged.
    """

    def __init__(self, what: ModelFile, metadata: Mapping[str, str], overrides: Mapping[str, object]) -> None:
        self._what = what
        self._metadata = metadata
        self._overrides = overrides
        self._lock = threading.RLock()
        self._found: str | None = None
        self._files: list[IO[bytes]] = []
        if what.stream:
            self._found = self._of([what.stream])
            return
        try:
            for path in what.all_paths:
                self._files.append(path.open("rb"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files. Idempotent."""
        with self._lock:
            while self._files:
                self._files.pop().close()

    def get(self) -> str:
        """32 hex digits that depend on a model's content, and neither on its path nor on how it is split.

        SHA-256 of its metadata (what is about the split left out), the names, types and shapes of its tensors, and the
        middle of 64 of them: 16 KB are read besides the table.

        Raises:
            OSError, ModelLoadError: a file is damaged.
        """
        with self._lock:
            if self._found is None:
                self._found = self._of(self._files)
                self.close()
            return self._found

    def _of(self, files: list[IO[bytes]]) -> str:
        import hashlib  # loads OpenSSL

        facts = sorted((key, value) for key, value in self._metadata.items() if not key.startswith("split."))
        digest = hashlib.sha256(usedforsecurity=False)
        found = [(tensor, file) for file in files for tensor in _tensors(file, self._what)]
        found.sort(key=lambda pair: pair[0].name)
        table = [(tensor.name, tensor.type, tensor.shape) for tensor, _ in found]
        changed = sorted((key, repr(value)) for key, value in self._overrides.items())
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
