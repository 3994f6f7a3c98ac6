"""What every sampler can do: choose, accept, apply, reset, copy."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from causerie.errors import BusyError, GrammarError, NativeError
from causerie.llama import _at_exit as at_exit
from causerie.llama._lib import ffi, lib
from causerie.llama._sampler_handle import SamplerHandle
from causerie.llama._sampler_options import INT32_MAX, count, finite_or_minus_inf
from causerie.llama._sampler_part import TOKEN_DATA, Candidates, Part

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from causerie.llama.context import Context
    from causerie.llama.model import Model

__all__ = ["SamplerBase"]

_scratch = threading.local()


def _room(n: int) -> NDArray[Any]:
    """Where native code writes candidates; read before anything else of this thread can write there."""
    room: NDArray[Any] | None = getattr(_scratch, "room", None)
    if room is None or room.size < n:
        room = _scratch.room = np.empty(n, TOKEN_DATA)
    return room


class SamplerBase(SamplerHandle):
    """The verbs of a sampler."""

    def sample(self, ctx: Context, i: int = -1) -> int:
        """Choose a token from one row of logits of the last batch, and accept it (as llama_sampler_sample does).

        Args:
            ctx: the context.
            i: index in the batch, of an entry with output; negative: counted from the last output.

        Raises:
            IndexError: no output was asked for that entry, or the last evaluation failed.
            ValueError: no sampler here chooses a token; none of them left a candidate; the context belongs to another
                model than the sampler; the logits are NaN.
            GrammarError: the grammar allows none of the candidates.
            UnsupportedError: the last evaluation gave embeddings only.
            BusyError: called from a Python function of this sampler, or while the context evaluates.
        """
        try:
            return self._sample(ctx, i)
        finally:
            at_exit.gate()

    def _sample(self, ctx: Context, i: int) -> int:
        with ctx._exclusive() as native, self._use() as pointer:
            self._require_model(ctx.model)
            if not self._part.selects:
                raise ValueError(
                    "this sampler only changes probabilities: a chain must end with one that chooses a token "
                    "(greedy, dist, mirostat, mirostat_v2, adaptive_p or custom)"
                )
            i = ctx._outputs.logits_index(i)
            row = lib.llama_get_logits_ith(native, i)
            ctx._check("reading logits")
            if row == ffi.NULL:
                raise IndexError("llama.cpp has no logits for that entry")
            n = ctx.model.n_vocab
            self._require_choice(np.frombuffer(ffi.buffer(row, 4 * n), np.float32), "the context's logits")
            try:
                ctx._running = True  # a Python function of a custom sampler must not evaluate now
                token = self._choose(pointer, row, n)
                self._accept(pointer, token)
            finally:
                ctx._running = False
            return token

    def _choose(self, pointer: Any, row: Any, n: int) -> int:
        left, selected = self._run(pointer, row, n)
        if left.size and selected < 0:
            raise ValueError("the custom sampler at the end chose no token: return an id, or add one that chooses")
        chosen = left[selected]["logit"] if left.size else -np.inf
        # llama.cpp's samplers keep finite logits finite, so the chosen one tells; Python functions may leave anything.
        if not np.isfinite(chosen) or self._has_custom:
            top = finite_or_minus_inf(left["logit"], "the logits that the samplers left") if left.size else -np.inf
            if top == -np.inf or chosen == -np.inf:
                self._spoil()
                self._refuse_all()
        return int(left[selected]["id"])

    @property
    def _has_custom(self) -> bool:
        return any(part.custom is not None for part in self._part.walk())

    @property
    def _has_grammar(self) -> bool:
        return any(part.kind in {"grammar", "grammar_lazy"} for part in self._part.walk())

    def _refuse_all(self) -> NoReturn:
        if self._has_grammar:
            raise GrammarError("the grammar accepts none of the candidates that are left")
        raise ValueError("the samplers left no candidate: every logit is -inf")

    def _spoil(self) -> None:
        """Candidates that are all -inf were chosen from."""
        if self._part.spoiled_by_nothing:
            self._broken = (NativeError, "it chose among candidates that were all -inf, so its state is NaN")

    def _run(self, pointer: Any, row: Any, n: int) -> tuple[NDArray[Any], int]:
        """Apply; returns the candidates left, in memory that is soon overwritten, and the index of the chosen one."""
        room = _room(n)
        selected = ffi.new("int64_t *")
        size = lib.causerie_sampler_apply(pointer, row, n, ffi.from_buffer("llama_token_data[]", room), selected)
        self._after("applying the sampler", GrammarError if self._has_grammar else NativeError)
        return room[:size], int(selected[0])

    def _require_model(self, model: Model) -> None:
        bound, n_tokens = self._bound()
        if bound is not None and bound is not model:
            raise ValueError("this sampler was made with the vocabulary of another model than the context's")
        if n_tokens not in {None, model.n_vocab}:
            raise ValueError(
                f"this sampler was made for a vocabulary of {n_tokens} tokens, the context's model has {model.n_vocab}"
            )

    @staticmethod
    def _require_choice(row: NDArray[np.float32], what: str) -> None:
        if finite_or_minus_inf(row, what) == -np.inf:
            raise ValueError(f"{what} are all -inf: there is nothing to choose from")

    def accept(self, token: int) -> None:
        """Tell the sampler that this token came next (llama_sampler_accept); `sample` does so by itself.

        Raises:
            GrammarError: the grammar does not accept it here; nothing has changed. Where llama.cpp finds out only while
                it accepts (a lazy grammar whose trigger is followed by what it does not match), the message says that
                `reset` is needed.
            ValueError: the token id is out of range.
        """
        with self._use() as pointer:
            _, n_tokens = self._bound()
            self._accept(pointer, count("token id", token, 0, INT32_MAX if n_tokens is None else n_tokens - 1))

    def _accept(self, pointer: Any, token: int) -> None:
        for part in self._part.walk():
            if part.kind in {"grammar", "grammar_lazy"} and part.model is not None:
                self._require_accepted(part, part.model, token)
        lib.llama_sampler_accept(pointer, token)
        self._after(f"accepting token {token}", GrammarError, breaks=True)

    def _require_accepted(self, part: Part, model: Model, token: int) -> None:
        """Ask the grammar first: llama.cpp would throw, or abort, with half of the chain changed."""
        candidate = ffi.new("llama_token_data *", {"id": token})
        lib.llama_sampler_apply(part.pointer, ffi.new("llama_token_data_array *", (candidate, 1, -1, False)))
        self._after("asking the grammar", GrammarError)
        if candidate.logit == -np.inf:
            piece = model.vocab.piece(token)
            raise GrammarError(f"the grammar does not accept token {token} ({piece!r}) here", token=token)

    def apply(self, logits: ArrayLike) -> Candidates:
        """What the sampler makes of a row of logits (llama_sampler_apply); the row is not modified.

        Nothing is accepted. Samplers that choose do move their random state.

        Args:
            logits: float32 of shape (n_vocab,), finite or -inf.

        Raises:
            ValueError: the row has another length than the vocabulary the sampler was made with, holds NaN or +inf, or
                is all -inf.
        """
        with np.errstate(over="ignore"):
            row = np.asarray(logits, np.float32, order="C")
        _, n_tokens = self._bound()
        if row.ndim != 1 or not row.size or row.size > INT32_MAX:
            raise ValueError(f"logits must be a flat, non-empty array, not of shape {row.shape}")
        if n_tokens not in {None, row.size}:
            raise ValueError(f"logits must have shape ({n_tokens},), one for each token, not {row.shape}")
        self._require_choice(row, "logits")
        with self._use() as pointer:
            left, selected = self._run(pointer, ffi.from_buffer("float[]", row), row.size)
            ids, values = left["id"].copy(), left["logit"].copy()
            if not ids.size or values.max() == -np.inf:
                self._spoil()
        chosen = selected >= 0 and values[selected] > -np.inf
        return Candidates(ids, values, int(ids[selected]) if chosen else None)

    def reset(self) -> None:
        """Forget what was accepted, and seed anew (llama_sampler_reset). A sampler that had failed is usable again."""
        with self._use(broken=True) as pointer:
            self._broken = None
            lib.llama_sampler_reset(pointer)
            self._after("resetting the sampler", breaks=True)

    def clone(self) -> Self:
        """A copy with the same state that goes its own way (llama_sampler_clone).

        The copy of `adaptive_p` starts with fresh random numbers, as llama.cpp does not copy them.

        Raises:
            UnsupportedError: a custom sampler keeps state and has no `clone` function.
        """
        with self._use():
            part = None
            try:
                part = self._part.clone()
            except NativeError:
                if all(p.custom is None or p.custom.error is None for p in self._part.walk()):
                    raise
            self._reraise()
            if part is None:
                raise NativeError("the sampler could not be cloned")
            return type(self)(part)

    def copy_from(self, source: SamplerBase) -> None:
        """Take over the state of a sampler that was made in the same way (llama_sampler_copy).

        Raises:
            ValueError: it was not: other kinds, another order, or another model.
            BusyError: another thread is using it.
        """
        if source is self:
            return
        with self._use(broken=True) as pointer:
            if not source._lock.acquire(blocking=False):  # two of the same kind: waiting could deadlock
                raise BusyError("the sampler to copy from is in use")
            try:
                with source._use() as other:
                    if source._part.shape != self._part.shape or source._bound() != self._bound():
                        raise ValueError("only the state of a sampler that was made in the same way can be copied")
                    lib.llama_sampler_copy(other, pointer)
                    failed = lib.causerie_error_code()
                    self._broken = (NativeError, "another sampler's state was copied in part") if failed else None
                    source._reraise()
                    self._after("copying the sampler's state")
                    for part in self._part.walk():
                        part.settle()
            finally:
                source._lock.release()
