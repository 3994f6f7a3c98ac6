"""The engine: any number of sequences of token ids on one context, evaluated together."""

from __future__ import annotations

import os
import weakref
from itertools import count
from typing import TYPE_CHECKING, Any

from causerie.engine._cache import Cache
from causerie.engine._counters import Counters
from causerie.engine._leadership import Leadership, weakly
from causerie.engine._loaded_adapters import LoadedAdapters
from causerie.engine._opening import open_context, open_model
from causerie.engine._pace import Pace
from causerie.engine._parking import Parking
from causerie.engine._parking_folder import ParkingFolder
from causerie.engine._report import gather_map, gather_stats
from causerie.engine._scheduler import Scheduler
from causerie.engine._sequences import KeepsSequences
from causerie.engine._states import CarriesStates
from causerie.engine.generation import Generation, prompt_ids
from causerie.engine.settings import settings
from causerie.errors import ClosedError, NativeError
from causerie.llama.model import Model
from causerie.llama.placement import device_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from causerie.engine.generation import Forcing, TokenSink
    from causerie.engine.sequence import Sequence
    from causerie.engine.stats import CacheMap, EngineStats
    from causerie.llama.step import Chooser

__all__ = ["TokenEngine"]


class TokenEngine(KeepsSequences, CarriesStates):
    """Evaluates any number of sequences together in one context. Every method may be called from any thread.

    Args:
        model: a loaded model, which stays the caller's; or a path or name, which is loaded, and closed with the engine.
        n_ctx: tokens all sequences together can hold in the context; None: 8192, or what the model was trained with if
            that is less. Sequences that find no room leave for a while, so there may be more of them.
        max_resident: sequences in the context at the same time; None: 32, or 8 for recurrent models.
        n_batch: most tokens evaluated in one step, 512 by default; at least one for each sequence in the context.
        n_ubatch: most tokens computed at once; None: n_batch on a GPU, and 48 where there is none: from 64 on, the CPU
            computes attention in another order, so that a sequence would get slightly other logits in company than
            alone. More makes long prompts faster, on some CPUs several times: docs/performance.md.
        n_threads: threads to compute with; None: one for each physical core that may be used.
        kv_unified: one pool of cells for all sequences, so that they can share what they begin with, and forks cost
            nothing; else each has n_ctx // max_resident cells of its own, which is some per cent faster where nothing
            is shared.
        swa_full: as for `llama.Context`; False saves memory with models that have a sliding window, and costs
            evaluating again whatever is taken back.
        parking_bytes: RAM for the state of sequences that left the context; beyond it they go to `parking_folder`, or
            are evaluated again.
        parking_folder: where a private folder is made for them, which is removed with the engine (after a crash, by the
            next one that is given the same); None: none.
        parking_disk_bytes: what may be in there.
        stretch: while answers run, a step that also evaluates prompts takes at most about so many times as long as one
            without.
        model_options: options of `llama.Model`, where a path or name is given.
        context: further options of `llama.Context`; and of `llama.Model`: devices, rpc, strict, n_gpu_layers (also
            "auto": as many as fit, `fit_margin` bytes staying free on each device), ... See docs/backends.md.

    Raises:
        ModelLoadError, OutOfMemoryError, DeviceError, ValueError: as `llama.Model` and `llama.Context`.
        OSError: there can be no parking folder.
        UnsupportedError: the model does not generate text from text (encoders, embedding and diffusion models).
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        max_resident: int | None = None,
        n_batch: int | None = None,
        n_ubatch: int | None = None,
        n_threads: int | None = None,
        kv_unified: bool = True,
        swa_full: bool = True,
        parking_bytes: int = 1 << 30,
        parking_folder: str | os.PathLike[str] | None = None,
        parking_disk_bytes: int = 8 << 30,
        stretch: float = 2.2,
        model_options: dict[str, Any] | None = None,
        **context: Any,
    ) -> None:
        if not stretch > 1:
            raise ValueError(f"stretch must be more than 1, not {stretch}")
        folder = None if parking_folder is None else ParkingFolder(parking_folder)
        parking = Parking(parking_bytes, folder, parking_disk_bytes)
        self._pid = os.getpid()
        self._owns_model = not isinstance(model, Model)
        context |= {
            "n_ctx": n_ctx, "max_resident": max_resident, "n_batch": n_batch, "n_ubatch": n_ubatch,
            "n_threads": n_threads, "kv_unified": kv_unified, "swa_full": swa_full,
        }  # fmt: skip
        asked = {**context, "kv_unified": None if kv_unified else False}  # before a fitting n_ctx joins the options
        self.model = open_model(model, model_options, context)
        try:
            self._context = open_context(self.model, **context)
            self._settings = settings(self._context, asked)
            self._devices = device_uses(self.model, self._context)
        except BaseException:
            if self._owns_model:
                self.model.close()
            raise
        self.n_ctx = min(self._context.n_ctx_seq, self.model.n_positions or self._context.n_ctx_seq)
        self._closed = False
        self._numbers = count()
        self._sequences: weakref.WeakSet[Sequence] = weakref.WeakSet()
        self._counters = Counters()
        self._cache = Cache(self._context, parking)
        self._adapters = LoadedAdapters(self._context)
        self._leadership = Leadership(weakly(self._step), weakly(self._interrupt), weakly(self._hurry))
        self._scheduler = Scheduler(
            self._context,
            self._cache,
            self._adapters,
            Pace(self._context.n_batch, stretch),
            self._counters,
            self._leadership.lock,
            self.n_ctx,
        )
        self._to_forget: list[Sequence] = []

    # ---- generating ----

    def generate(
        self,
        sequence: Sequence,
        prompt: Iterable[int],
        *,
        chooser: Chooser | None,
        max_tokens: int | None = None,
        sink: TokenSink | None = None,
        forcing: Forcing | None = None,
    ) -> Generation:
        """Ask for tokens behind a prompt. Returns at once; `wait` brings it forward.

        Args:
            sequence: where it runs; what it holds of the prompt's beginning is not evaluated again.
            prompt: all ids, from the first one on.
            chooser: how tokens are chosen; the engine closes it when the generation ends. None: only evaluate.
            max_tokens: so many tokens at most; None: until the model ends its turn or the context is full.
            sink: is given every token.
            forcing: puts in tokens of its own, as if they had been chosen.

        Raises:
            ContextOverflowError: the prompt leaves no room for a token; `.needed` and `.available`.
            BusyError: a generation runs in this sequence.
            ValueError: the prompt is empty or holds ids out of range.
        """
        ids = prompt_ids(prompt, self.model.n_vocab, self.n_ctx, more=chooser is not None)
        self.require_open()
        last = sequence.generation
        if last is not None and last.cancelled and not last.done:
            with self._leadership.between_steps():
                self._settle()
        with self._leadership.lock:
            self.require_open()
            self._require_idle(sequence)
            generation = Generation(
                sequence, ids, chooser, max_tokens=max_tokens, sink=sink, forcing=forcing, number=next(self._numbers)
            )
            sequence.generation = generation
            self._scheduler.submit(generation)
        return generation

    def wait(self, generation: Generation, ready: Callable[[], bool] | None = None) -> None:
        """Return when the generation has ended, or `ready()`; until then run steps whenever nobody else does.

        Raises:
            BusyError: called from a callback of a step.
        """
        self.wait_for((generation,), ready)

    def wait_for(self, generations: Iterable[Generation], ready: Callable[[], bool] | None = None) -> None:
        """As `wait`, until all of several have ended, or `ready()`, which is asked when any of them has changed."""
        self.require_process()
        running = [generation for generation in generations if not generation.done]

        def enough() -> bool:
            return all(generation.done for generation in running) or (ready is not None and ready())

        self._leadership.wait(running, enough)

    def cancel(self, generation: Generation) -> None:
        """End a generation from any thread, within a step; at once if it is evaluated alone. Ended: no-op."""
        if generation.done or self._closed or self._foreign:
            return
        generation.abandon()
        with self._leadership.lock:
            if self._leadership.vacant:
                self._settle()
            else:
                self._scheduler.hurry()
                if self._scheduler.running == (generation,):
                    self._context.cancel()

    def _settle(self) -> None:
        """Do what waits for the next step and needs no evaluation. Called while nobody else leads."""
        self._scheduler.collect()
        while self._to_forget:
            self._cache.forget(self._to_forget.pop())

    def _step(self) -> None:
        if self._context.closed:
            self._scheduler.fail_all(ClosedError("the model was closed while this was generated"))
            return
        self._settle()
        self._scheduler.step()

    def _hurry(self) -> None:
        self._scheduler.hurry()

    def _interrupt(self) -> None:
        """Ctrl-C on the leading thread: a step of one generation ends now; it is tried again if it is not cancelled."""
        if len(self._scheduler.running) == 1:
            self._context.cancel()

    # ---- the engine itself ----

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    @property
    def _foreign(self) -> bool:
        return os.getpid() != self._pid

    def require_process(self) -> None:
        """ClosedError in a child of the process that made the engine."""
        if self._foreign:
            raise ClosedError(
                "this engine belongs to the process that made it: after os.fork() the child must make its own "
                "(its threads and its context were not copied)"
            )

    def require_open(self) -> None:
        """ClosedError once it is closed, or in another process; NativeError once llama.cpp has stopped in a step."""
        self.require_process()
        if self._closed or self._context.closed:
            raise ClosedError("this engine is closed")
        broken = self._scheduler.broken
        if broken is not None:
            raise NativeError(f"this engine is no longer usable, close it: {broken}", aborted=True)

    def close(self) -> None:
        """End all generations with `ClosedError`, and free the context, and the model if it is the engine's own.

        Idempotent; waits for a running step to stop.
        """
        if self._closed or self._foreign:
            return
        with self._leadership.between_steps(hurry=self._context.cancel):
            if self._closed:
                return
            self._closed = True
            for generation in self._scheduler.unfinished():
                self._scheduler.fail(generation, ClosedError("the engine was closed while this was generated"))
            self._cache.close()
            self._context.close()
            with self._leadership.lock:
                self._adapters.close()
        if self._owns_model:
            self.model.close()

    def __enter__(self) -> Self:
        self.require_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("an engine refers to native memory of this process: it cannot be pickled or copied")

    def stats(self) -> EngineStats:
        """Counts and rates so far. Waits for the end of a running step."""
        self.require_open()
        with self._leadership.between_steps():
            self.require_open()
            self._settle()
            with self._leadership.lock:
                unfinished = self._scheduler.unfinished()
                return gather_stats(
                    self._counters, self._cache, unfinished, self._sequences, self._settings, self._devices
                )

    def cache_map(self) -> CacheMap:
        """Which cells belong to which sequence, now. Waits for the end of a running step."""
        self.require_open()
        with self._leadership.between_steps():
            self.require_open()
            return gather_map(self._cache)
