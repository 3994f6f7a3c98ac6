"""Conversations that last: snapshots of them, and files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from causerie.conversation.tool_loop import ToolLoop

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from causerie.conversation.snapshot import Snapshot

__all__ = ["Keeping"]


class Keeping(ToolLoop):
    """Takes a conversation out of its engine.

    Attributes:
        file: where `Engine.save_all` has put it, or `Engine.load_all` found it.
    """

    file: Path | None = None

    @property
    def name(self) -> str:
        """For people, in `Engine.cache_map` and file names; a fork has its parent's until it is given one."""
        return self._sequence.name

    @name.setter
    def name(self, name: str) -> None:
        self._sequence.name = name

    def snapshot(self, *, cache: bool = True) -> Snapshot:
        """The conversation as it is now, for `Engine.restore`; it stays what it is, whatever becomes of this one.

        Args:
            cache: with what is evaluated of it, so that nothing has to be evaluated again: some 20 to 200 KB per token.
                Without it, a snapshot may be taken at any time, also while a reply is generated (which is not in it).

        Raises:
            BusyError: a reply is being generated, and `cache` is asked for.
        """
        if not cache:
            self.require_open()
            self._settle_dropped()
            return self._pictured()
        with self._idle():
            return self._with_state(self._pictured())

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        cache: bool = True,
        compress: bool = False,
        drop_functions: bool = False,
    ) -> None:
        """Write the conversation to a file, for `Engine.load_conversation`. An old one is replaced in one step.

        Saved are the messages with the ids that were generated for them, all options, the schemas of tools, and paths
        and fingerprints of adapters. Other functions are saved by the names that `register_transform` gave them.

        Args:
            path: where to; ".causerie" is the suffix that `Engine.load_all` looks for.
            cache: with what is evaluated, as for `snapshot`.
            compress: with zlib: some 7 per cent smaller, and many times slower.
            drop_functions: leave out transforms, samplers and an overflow policy that have no registered name.

        Raises:
            OSError: it cannot be written; a file that was there is as it was.
            ValueError: a function has no registered name.
            BusyError: as for `snapshot`.
        """
        from causerie.conversation.record import to_record
        from causerie.conversation.saved_file import write_saved

        if cache:
            with self._idle():
                snapshot = self._pictured()
                record = to_record(snapshot, drop_functions=drop_functions)
                snapshot = self._with_state(snapshot)
        else:
            snapshot = self.snapshot(cache=False)
            record = to_record(snapshot, drop_functions=drop_functions)
        write_saved(path, snapshot, record, compress=compress)

    def _pictured(self) -> Snapshot:
        from causerie.conversation.snapshot import Snapshot, own_template

        model = self._engine.model
        return Snapshot(
            name=self.name,
            model=(model.fingerprint, model.desc),
            history=self._history,
            settings=self._settings,
            template=own_template(self._engine, self._settings),
            report=self._report,
            context_full=self._context_full,
            adapters=self._sequence.adapters,
        )

    def _with_state(self, snapshot: Snapshot) -> Snapshot:
        ids = self._known_ids()
        return replace(snapshot, state=self._engine.take_state(self._sequence, ids)) if ids else snapshot

    def _known_ids(self) -> tuple[int, ...]:
        """What the next prompt begins with, as far as it is known; where a template refuses it, nothing is."""
        history, settings = self._history, self._settings
        if not history.messages:
            return ()
        try:
            if history.messages[-1].role in {"user", "tool"}:
                return settings.encode(history).ids[:-1]  # the last one is evaluated for what comes out of it
            return settings.encode(history, add_generation_prompt=False).ids
        except Exception:  # noqa: BLE001 - also of the user's transform; saving goes on without what is evaluated
            return ()

    def resume_at(self, snapshot: Snapshot) -> None:
        """Take over what is known of the last reply; `Engine.restore` calls it."""
        self._report, self._context_full = snapshot.report, snapshot.context_full
