"""An engine in a process of its own: what ends that process does not end this one."""

from __future__ import annotations

import os
import pickle
import weakref
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from causerie.engine._leadership import Leadership, weakly
from causerie.engine._loaded_adapters import located
from causerie.engine._opening import resolved
from causerie.engine._remote import Remote
from causerie.engine.adapters import as_adapters
from causerie.engine.engine import TokenEngine
from causerie.engine.sequence import Sequence
from causerie.errors import UnsupportedError
from causerie.llama.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.engine.adapters import Adapter, AdaptersLike
    from causerie.engine.generation import Generation
    from causerie.engine.sequence_state import SequenceState
    from causerie.engine.stats import CacheMap, EngineStats

__all__ = ["IsolatedTokenEngine"]

# What the model of this process, which has no weights, is loaded with too.
_FACTS = frozenset({"kv_overrides"})


class IsolatedTokenEngine(TokenEngine):
    """A `TokenEngine` whose context is in a helper process. docs/backends.md says what happens where, and when it dies.

    Used like a `TokenEngine`, but for this: `generate` is given a recipe of a chooser, an object with
    ``make(model, ids) -> Chooser`` that can be pickled. It is called in the helper.

    Args:
        model: a path or name.
        options: as for `TokenEngine`, as far as they can be pickled.

    Raises:
        UnsupportedError: the model is loaded already, or an option cannot be sent to another process.
        HelperDiedError: the helper ended while it was opening the model.
        Exception: as `TokenEngine`.
    """

    def __init__(self, model: Model | str | os.PathLike[str], **options: Any) -> None:
        if isinstance(model, Model):
            raise UnsupportedError("a loaded model belongs to this process: give a path or name with isolate=True")
        path = resolved(model)
        for name, value in options.items():
            _require_portable(name, value)
        of_model = {**(options.get("model_options") or {}), **options}
        self._pid = os.getpid()
        self._owns_model = True
        self._closed = False
        # Vocabulary, template and facts are needed on this side too; devices are the helper's.
        known = {name: of_model[name] for name in _FACTS & set(of_model)}
        self.model = Model(path, devices="cpu", no_alloc=True, **known)
        self._numbers = count()
        self._sequences: weakref.WeakSet[Sequence] = weakref.WeakSet()
        self._to_forget: list[Sequence] = []
        self._leadership = Leadership(weakly(self._step), weakly(self._interrupt), weakly(self._hurry))
        remote = Remote({**options, "model": path}, self._leadership.lock)
        self._remote = remote
        parts: Any = remote  # the engine above asks of its parts what this one can do
        self._context = self._cache = self._adapters = self._scheduler = parts
        self._finalizer = weakref.finalize(self, remote.close)
        try:
            self.n_ctx = remote.start()["n_ctx"]
        except BaseException:
            self.close()
            raise

    @property
    def helper_pid(self) -> int | None:
        """The process id of the helper; None: it has died, and the next call starts another one."""
        return self._remote.pid

    def generate(self, sequence: Sequence, prompt: Iterable[int], **options: Any) -> Generation:
        """As `TokenEngine.generate`, with recipes for `chooser` and `forcing`, which have a method `make`.

        Starts a new helper if the last one has died.

        Raises:
            Exception: as `TokenEngine.generate`, and as opening an engine.
        """
        self._revive()
        return super().generate(sequence, prompt, **options)

    def _revive(self) -> None:
        """Start a new helper if there is none. What is evaluated is gone then, and the next prompts are anew."""
        self.require_open()
        if self._remote.lost:
            with self._leadership.between_steps():
                while self._remote.lost:  # what it has told before it died counts
                    self._remote.step()
        self.n_ctx = self._remote.start()["n_ctx"]

    def _asked(self, name: str, *arguments: Any) -> Any:
        self._revive()
        pending: Any = self._remote.ask(name, *arguments)
        self._leadership.wait((pending,), lambda: pending.done)
        if pending.error is not None:
            raise pending.error
        return pending.value

    def stats(self) -> EngineStats:
        """As `TokenEngine.stats`, of the helper that lives now."""
        found: EngineStats = self._asked("stats")
        return replace(found, sequences=sum(not sequence.closed for sequence in self._sequences))

    def cache_map(self) -> CacheMap:
        """As `TokenEngine.cache_map`."""
        found: CacheMap = self._asked("cache_map")
        return found

    def load_adapters(self, adapters: AdaptersLike) -> tuple[Adapter, ...]:
        """As `TokenEngine.load_adapters`: the helper loads them, and the next one those that its sequences have."""
        self.require_open()
        wanted = located(as_adapters(adapters))
        if not wanted:
            return ()
        found: tuple[Adapter, ...] = self._asked("load_adapters", wanted)
        return found

    def take_state(self, sequence: Sequence, ids: Iterable[int]) -> SequenceState | None:
        """As `TokenEngine.take_state`."""
        with self._leadership.between_steps():
            self.require_open()
            self._settle()
            self._require_idle(sequence)
        if not self._remote.holds(sequence):
            return None
        wanted = [int(token) for token in ids]
        place = self._remote.place(sequence)
        found: SequenceState | None = self._asked("take_state", place, sequence.name, sequence.adapters, wanted)
        return found

    def put_state(self, state: SequenceState, name: str = "") -> Sequence:
        """As `TokenEngine.put_state`."""
        sequence = Sequence(name, self.load_adapters(state.adapters))
        portable = replace(state, data=bytes(state.data), lasting=True, adapters=sequence.adapters)
        self._revive()
        self._asked("put_state", self._remote.place(sequence), portable, name)
        self._sequences.add(sequence)
        return sequence

    def close(self) -> None:
        """As `TokenEngine.close`; the helper ends."""
        super().close()
        self._finalizer.detach()


def _require_portable(name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except Exception as error:
        raise UnsupportedError(f"{name} cannot be sent to another process, as isolate=True needs: {error}") from error
