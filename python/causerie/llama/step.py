"""One step of many sequences: decode a batch and choose a token for each that wants one, in one native call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from causerie.errors import CauserieError, GrammarError, NativeError, NotFiniteError
from causerie.llama import _at_exit as at_exit
from causerie.llama._evaluation import evaluate
from causerie.llama._handle import Uncopyable
from causerie.llama._lib import ffi, lib
from causerie.llama._params import uint
from causerie.llama.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from causerie.llama.context import Context
    from causerie.llama.sampler import Sampler

__all__ = ["Chooser", "Chosen", "Step"]


class Chosen(NamedTuple):
    """A token that was chosen from one row of logits.

    Attributes:
        token: its id; the samplers have accepted it.
        logprob: log-softmax of the raw logits at the token; None if it was not asked for.
        top: (id, log-probability) of the likeliest tokens, likeliest first; fewer where others are impossible.
        forced: whether it was put in, and nothing was chosen.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    forced: bool = False


@dataclass(frozen=True, eq=False)
class Chooser:
    """How a token is chosen from a row of logits.

    Attributes:
        chain: a chain that ends with a sampler that chooses; None: the largest logit.
        grammar: what the token must be allowed by: the chain chooses among the tokens that it allows.
        preselect: give only so many of the largest logits, of those tokens, to the chain, which is exact where it
            begins with top_k of that k; 0: all.
        n_top: how many of the likeliest tokens to tell; None: no log-probabilities at all.
    """

    chain: Sampler | None = None
    grammar: Sampler | None = None
    preselect: int = 0
    n_top: int | None = None

    @property
    def samplers(self) -> tuple[Sampler, ...]:
        """The samplers it uses."""
        return tuple(s for s in (self.grammar, self.chain) if s is not None)

    @cached_property
    def has_custom(self) -> bool:
        """Whether a sampler of it is written in Python."""
        return any(sampler._has_custom for sampler in self.samplers)

    def accept(self, token: int) -> None:
        """Tell the samplers that this token came next, where it was not chosen.

        Raises:
            GrammarError, ValueError: as `Sampler.accept`.
        """
        for sampler in self.samplers:
            sampler.accept(token)

    def close(self) -> None:
        """Free its samplers. Idempotent."""
        for sampler in self.samplers:
            sampler.close()


class Step(Uncopyable):
    """Collects what several sequences want evaluated, and runs it as one batch. Owned by one thread at a time.

    Args:
        context: evaluates; at most its n_batch tokens and n_seq_max choosers a step.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._n_vocab = context.model.n_vocab
        self._batch = Batch(context.n_batch)
        self._rows = ffi.new("struct causerie_row[]", context.n_seq_max)
        self._choosers: list[Chooser] = []
        self._tops: list[Any] = []
        self._repeatable = False
        self._enough = ffi.gc(lib.causerie_cancel_new(), lib.causerie_cancel_free)

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def room(self) -> int:
        """How many more tokens fit."""
        return self._batch.capacity - len(self._batch)

    def clear(self) -> None:
        """Forget all that was added."""
        self._batch.clear()
        self._choosers.clear()
        self._tops.clear()
        self._repeatable = False
        lib.causerie_cancel_set(self._enough, False)

    def add(self, tokens: Sequence[int] | NDArray[Any], pos0: int, seq: int, chooser: Chooser | None = None) -> None:
        """Evaluate consecutive tokens of one sequence, and choose the token behind the last one.

        Args:
            tokens: ids, at least one.
            pos0: position of the first; it must continue what the memory holds of the sequence.
            seq: the sequence's id.
            chooser: how the next token is chosen; None: none is.

        Raises:
            ValueError: they do not fit, or an argument is out of range.
        """
        seq = uint("sequence id", seq, 0, self._context.n_seq_max - 1)
        count = len(self._choosers)
        if chooser is not None and count == self._context.n_seq_max:
            raise ValueError(f"a step has at most n_seq_max={count} choosers")
        if len(tokens) == 1:  # what most steps are made of
            if not 0 <= tokens[0] < self._n_vocab:
                raise ValueError(f"token ids must be in 0..{self._n_vocab - 1}")
            index = self._batch.add(tokens[0], pos0, (seq,), output=chooser is not None)
        else:
            ids = np.asarray(tokens, np.int32)
            if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < self._n_vocab:
                raise ValueError(f"token ids must be in 0..{self._n_vocab - 1}")
            index = self._batch.add_sequence(ids, pos0, seq, output_last=chooser is not None)
        if chooser is None:
            return
        row = self._rows[count]
        row.index = index
        row.preselect = chooser.preselect
        row.n_top = -1 if chooser.n_top is None else uint("n_top", chooser.n_top, 0, self._n_vocab)
        row.top = ffi.NULL
        if row.n_top > 0:
            self._tops.append(ffi.new("llama_token_data[]", row.n_top))
            row.top = self._tops[-1]
        self._choosers.append(chooser)

    def run(self) -> list[Chosen | BaseException]:
        """Decode and choose. Before the next `run`, `clear` what was added.

        Returns:
            For each chooser, in the order they were added: what it chose, or the exception that stopped it. One that
            fails does not touch the others.

        Raises:
            CacheFullError, DecodeError, OutOfMemoryError: as `Context.decode`; nothing was chosen.
        """
        self._repeatable = False
        try:
            results = self._run(lib.causerie_step, again=False)
            self._repeatable = len(self._batch) == len(results) and all(isinstance(r, Chosen) for r in results)
            return results
        finally:
            at_exit.gate()

    @property
    def repeatable(self) -> bool:
        """Whether `run_again` is possible: one token of each sequence was evaluated, and one chosen for each."""
        return self._repeatable

    def run_again(self, times: int = 1) -> list[list[Chosen | BaseException]]:
        """As `run`, for the tokens that were chosen in the step before: every sequence goes on by one, or by several.

        Args:
            times: steps to run at most. It ends early behind a step in which a chooser failed or chose a token that
                ends a turn, or during which `hurry` was called, and before one that fails. Choosers that tell
                log-probabilities, or have a sampler in Python, take one step at a time; so does a context with an
                `eval_callback`, as what it raises would lose the steps before, and one that computes them in parts.

        Returns:
            What `run` returns, for each step that was done: at least one.

        Raises:
            CacheFullError, DecodeError, OutOfMemoryError: as `run`; no step was done.
            ValueError: not every sequence can (`repeatable`).
        """
        if not self._repeatable:
            raise ValueError("the step before cannot be repeated: not every sequence evaluated and chose one token")
        self._repeatable = False
        count = len(self._choosers)
        times = uint("times", times, 1, 1024)
        in_parts = count > self._context.n_ubatch  # of a step that fails, the first ones would stay in memory
        alone = in_parts or self._context._eval is not None
        if alone or any(c.n_top is not None or c.has_custom for c in self._choosers):
            times = 1
        tokens = ffi.new("llama_token[]", times * count)
        done = ffi.new("int32_t *")

        def native(ctx: Any, batch: Any, rows: Any, n: int) -> int:
            return int(lib.causerie_step_again(ctx, batch, rows, n, times, self._enough, tokens, done))

        try:
            try:
                last = self._run(native, again=True)
            except CauserieError:
                if not done[0]:
                    raise
                # The step behind those that were done failed, and left nothing behind.
                return [[Chosen(tokens[k * count + i]) for i in range(count)] for k in range(done[0])]
            self._repeatable = all(isinstance(result, Chosen) for result in last)
            steps: list[list[Chosen | BaseException]] = [
                [Chosen(tokens[k * count + i]) for i in range(count)] for k in range(done[0] - 1)
            ]
            return [*steps, last]
        finally:
            lib.causerie_cancel_set(self._enough, False)
            at_exit.gate()

    def hurry(self) -> None:
        """Let a `run_again` that runs now end behind its present step. From any thread."""
        lib.causerie_cancel_set(self._enough, True)

    def _run(self, native: Callable[[Any, Any, Any, int], int], *, again: bool) -> list[Chosen | BaseException]:
        choosers, rows = self._choosers, self._rows
        refused: dict[int, BaseException] = {}
        entered: list[Sampler] = []
        with self._context._lock:
            try:
                for i, chooser in enumerate(choosers):
                    try:
                        rows[i].grammar = self._enter(entered, chooser.grammar, again=again)
                        rows[i].chain = self._enter(entered, chooser.chain, again=again)
                    except (CauserieError, ValueError) as error:  # noqa: PERF203 - each row by itself
                        refused[i] = error.with_traceback(None)
                        rows[i].grammar = rows[i].chain = ffi.NULL
                count = len(choosers)
                evaluate(
                    self._context,
                    "decode",
                    self._batch,
                    lambda ctx, batch: native(ctx, batch, rows, count),
                    again=again,
                )
                return [refused.get(i) or self._result(rows[i], chooser) for i, chooser in enumerate(choosers)]
            finally:
                for sampler in reversed(entered):
                    sampler._release()

    def _enter(self, entered: list[Sampler], sampler: Sampler | None, *, again: bool) -> Any:
        """The native sampler, with nobody else inside until the step is over."""
        if sampler is None:
            return ffi.NULL
        pointer = sampler._acquire()
        entered.append(sampler)
        if not again:
            sampler._require_model(self._context.model)
        return pointer

    @staticmethod
    def _result(row: Any, chooser: Chooser) -> Chosen | BaseException:
        if row.status != lib.CAUSERIE_ROW_CHOSEN or chooser.has_custom:
            try:
                for sampler in chooser.samplers:
                    sampler._reraise()
                _require_chosen(row, chooser)
            except BaseException as error:  # noqa: BLE001 - it belongs to this row, and is raised where that is wanted
                return error
        if row.n_top < 0:
            return Chosen(row.token)
        top = ((row.top[k].id, row.top[k].p) for k in range(row.n_top))
        return Chosen(row.token, row.logprob, tuple((token, p) for token, p in top if token >= 0))


def _require_chosen(row: Any, chooser: Chooser) -> None:
    """Raise what a row's status says."""
    status = row.status
    if status == lib.CAUSERIE_ROW_CHOSEN:
        return
    if status == lib.CAUSERIE_ROW_NOT_FINITE:
        raise NotFiniteError("the logits hold NaN or infinity: there is nothing to choose from")
    if status == lib.CAUSERIE_ROW_UNCHOSEN:
        raise ValueError("no sampler of the chain chose a token: it must end with one that does")
    if status in {lib.CAUSERIE_ROW_NOTHING, lib.CAUSERIE_ROW_GRAMMAR}:
        for sampler in chooser.samplers:
            sampler._spoil()
        if status == lib.CAUSERIE_ROW_GRAMMAR:
            raise GrammarError("the grammar accepts none of the candidates that are left")
        raise ValueError("the samplers left no candidate: every logit is -inf")
    reason = ffi.string(row.message).decode("utf-8", "replace")
    aborted = status == lib.CAUSERIE_ROW_ABORT
    for sampler in chooser.samplers:
        sampler._broken = (NativeError, reason)
    if chooser.grammar is not None and not aborted:
        raise GrammarError(f"choosing a token: {reason}")
    raise NativeError(f"choosing a token: {reason}", aborted=aborted)
