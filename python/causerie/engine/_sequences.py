"""The sequences of an engine, and the adapters they are evaluated with: a part of `TokenEngine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.engine._loaded_adapters import located
from causerie.engine.adapters import as_adapters
from causerie.engine.sequence import Sequence
from causerie.errors import BusyError, ClosedError

if TYPE_CHECKING:
    import weakref

    from causerie.engine._cache import Cache
    from causerie.engine._leadership import Leadership
    from causerie.engine._loaded_adapters import LoadedAdapters
    from causerie.engine.adapters import Adapter, AdaptersLike

__all__ = ["KeepsSequences"]


class KeepsSequences:
    """The calls of an engine that make, change and end sequences."""

    if TYPE_CHECKING:
        _cache: Cache
        _leadership: Leadership
        _sequences: weakref.WeakSet[Sequence]
        _to_forget: list[Sequence]
        _adapters: LoadedAdapters
        _closed: bool

        @property
        def _foreign(self) -> bool: ...
        def require_open(self) -> None: ...
        def _settle(self) -> None: ...

    def sequence(self, name: str = "", adapters: AdaptersLike = ()) -> Sequence:
        """A new, empty place for a sequence; it costs nothing until it is used.

        Args:
            name: for people, in `cache_map`.
            adapters: LoRA adapters to evaluate it with.

        Raises:
            ModelLoadError, UnsupportedError, TypeError, ValueError: as `load_adapters`.
        """
        self.require_open()
        sequence = Sequence(name, self.load_adapters(adapters))
        with self._leadership.lock:
            self._sequences.add(sequence)
        return sequence

    def fork(self, sequence: Sequence) -> Sequence:
        """A new sequence that shares what this one holds: no copy, no new cells, where a sequence id is free.

        Raises:
            BusyError: a generation runs in it.
        """
        self.require_open()
        child = Sequence(sequence.name)
        with self._leadership.between_steps():
            self.require_open()
            self._settle()
            self._require_idle(sequence)
            child.adapters = sequence.adapters
            self._cache.fork(sequence, child)
            self._sequences.add(child)
        return child

    def close_sequence(self, sequence: Sequence) -> None:
        """Give up a sequence: what runs in it is cancelled. Idempotent."""
        if self._closed or sequence.closed or self._foreign:
            sequence.closed = True
            return
        with self._leadership.lock:
            sequence.closed = True
            if sequence.generation is not None:
                sequence.generation.abandon()
            self._to_forget.append(sequence)
            if self._leadership.vacant:
                self._settle()

    def discard_sequence(self, sequence: Sequence) -> None:
        """As `close_sequence`, without waiting and without a lock: for finalizers. The next step does the rest."""
        sequence.closed = True
        if sequence.generation is not None:
            sequence.generation.abandon()
        self._to_forget.append(sequence)

    def _require_idle(self, sequence: Sequence) -> None:
        if sequence.closed:
            raise ClosedError("this sequence is closed")
        if sequence.generation is not None and not sequence.generation.done:
            raise BusyError("a generation is running in this sequence")

    # ---- adapters ----

    def load_adapters(self, adapters: AdaptersLike) -> tuple[Adapter, ...]:
        """Load LoRA adapters, each content once; they stay loaded until the engine is closed.

        Args:
            adapters: a file, or several, or pairs of file and scale, or a mapping of these. A file may be named as
                "hf:owner/repo:file", and is fetched then.

        Returns:
            What `Sequence.adapters` is then: with their fingerprints, and without those of scale 0.

        Raises:
            ModelLoadError: a file is missing, damaged, no LoRA adapter, or made for another model.
            StateError: an `Adapter` had a fingerprint, and its file has another one; `.expected` and `.found`.
            UnsupportedError: an activated LoRA.
            TypeError, ValueError: something else than adapters, the same one twice, or a scale that is not finite.
            BusyError: called from a callback of a step.
        """
        self.require_open()
        wanted = located(as_adapters(adapters))
        with self._leadership.lock:
            if self._adapters.loaded(wanted):
                return self._adapters.load(wanted)
        with self._leadership.between_steps():
            self.require_open()
            return self._adapters.load(wanted)

    def set_adapters(self, sequence: Sequence, adapters: AdaptersLike) -> None:
        """Evaluate a sequence with these LoRA adapters from now on, and with no others.

        What is evaluated of it with others is not used for it any more, unless it gets them again.

        Raises:
            BusyError: a generation runs in it; nothing has changed.
            ModelLoadError, UnsupportedError, TypeError, ValueError: as `load_adapters`; nothing has changed.
        """
        self.require_open()
        loaded = self.load_adapters(adapters)
        with self._leadership.between_steps():
            self.require_open()
            self._settle()
            self._require_idle(sequence)
            if loaded != sequence.adapters:
                self._cache.leave(sequence)
            sequence.adapters = loaded
