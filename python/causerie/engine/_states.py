"""What a sequence holds, out of an engine and into one: a part of `TokenEngine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.engine._carrying import put_in, take_out
from causerie.engine.sequence import Sequence

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable

    from causerie.engine._cache import Cache
    from causerie.engine._leadership import Leadership
    from causerie.engine.adapters import Adapter, AdaptersLike
    from causerie.engine.sequence_state import SequenceState
    from causerie.llama.context import Context

__all__ = ["CarriesStates"]


class CarriesStates:
    """The calls of an engine that take states out and put them in."""

    if TYPE_CHECKING:
        _context: Context
        _cache: Cache
        _leadership: Leadership
        _sequences: weakref.WeakSet[Sequence]

        def require_open(self) -> None: ...
        def _settle(self) -> None: ...
        def _require_idle(self, sequence: Sequence) -> None: ...
        def load_adapters(self, adapters: AdaptersLike) -> tuple[Adapter, ...]: ...

    def take_state(self, sequence: Sequence, ids: Iterable[int]) -> SequenceState | None:
        """What is evaluated of the beginning of some ids, wherever the engine finds it; None: hardly anything.

        Args:
            sequence: whose they are. What it holds besides is given up.
            ids: what its next prompt begins with. Where the memory cannot be cut, a state is of use only if the whole
                of it is a beginning of these.

        Raises:
            BusyError: a generation runs in it.
        """
        wanted = [int(token) for token in ids]
        with self._leadership.between_steps():
            self.require_open()
            self._settle()
            self._require_idle(sequence)
            return take_out(self._context, self._cache, sequence, wanted)

    def put_state(self, state: SequenceState, name: str = "") -> Sequence:
        """A new sequence that holds a state, of which nothing will be evaluated again.

        It goes into the context if nobody has to leave for it, else to where sequences are parked, if they are.

        Args:
            state: from `take_state`, of this engine or another one with the same model.
            name: of the sequence.

        Raises:
            StateError: the state is damaged, or of another model, llama.cpp or kind of cache; `.expected`, `.found`.
            CacheFullError: there is no room for it.
            ModelLoadError: its adapters cannot be loaded from where they were.
        """
        sequence = Sequence(name, self.load_adapters(state.adapters))
        with self._leadership.between_steps():
            self.require_open()
            self._settle()
            put_in(self._context, self._cache, sequence, state)
            self._sequences.add(sequence)
        return sequence
