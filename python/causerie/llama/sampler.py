"""Samplers: from logits to a token (the llama_sampler part of llama.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.errors import BusyError, ClosedError
from causerie.llama._errors import check
from causerie.llama._handle import _counts
from causerie.llama._lib import ffi, lib
from causerie.llama._sampler_lazy import LazyFactories, Section
from causerie.llama._sampler_options import INT32_MAX, count
from causerie.llama._sampler_part import Candidates, Part, new_chain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.llama.model import Model

__all__ = ["Candidates", "Sampler", "SamplerChain", "SamplerPerf", "Section"]


@dataclass(frozen=True)
class SamplerPerf:
    """A chain's own counters (llama_perf_sampler)."""

    sample_ms: float
    n_sample: int


class Sampler(LazyFactories):
    """Changes the logits of the tokens that may come next, or chooses one; made by its class methods.

    Samplers are put together with `Sampler.chain`. A sampler may be used from any thread, one call at a time: others
    wait. Samplers that work with a model's vocabulary keep the model in memory, and are closed with it.
    """

    @classmethod
    def _wrap(cls, part: Part) -> Sampler:
        return SamplerChain(part) if part.kind == "chain" else Sampler(part)

    @classmethod
    def chain(cls, samplers: Iterable[Sampler] = (), *, no_perf: bool = True) -> SamplerChain:
        """Several samplers, one after the other (llama_sampler_chain_init).

        To `sample` with it, the last one must choose a token: greedy, dist, mirostat, mirostat_v2, adaptive_p, or a
        custom one. The chain takes the samplers over: see `SamplerChain.add`.

        Args:
            samplers: in order.
            no_perf: do not count times for `SamplerChain.perf`.
        """
        members = list(samplers)
        for member in members:
            _require_sampler(member)
            with member._use():
                pass
        _require_agreement(members)
        if len({id(member) for member in members}) != len(members):
            raise ValueError("a sampler can be in a chain only once: add a clone()")
        chain = SamplerChain(Part("chain", new_chain(bool(no_perf)), no_perf=bool(no_perf)))
        for member in members:
            chain.add(member)
        return chain


def _require_sampler(value: object) -> None:
    if not isinstance(value, Sampler):
        raise TypeError(f"a chain consists of samplers, not {type(value).__name__}")


def _require_agreement(samplers: Iterable[Sampler]) -> None:
    """Check that one context can be sampled with all of them."""
    bounds = [sampler._bound() for sampler in samplers]
    if len({id(model) for model, _ in bounds if model is not None}) > 1:
        raise ValueError("the samplers of a chain must all work with the same model")
    if len(sizes := {n_tokens for _, n_tokens in bounds if n_tokens is not None}) > 1:
        raise ValueError(f"the samplers were made for vocabularies of different sizes: {sorted(sizes)}")


class SamplerChain(Sampler):
    """Samplers applied in order (llama_sampler_chain_*); made by `Sampler.chain`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The samplers' names in order."""
        return tuple(part.name for part in self._part.parts)

    def __len__(self) -> int:
        return len(self._part.parts)

    def add(self, sampler: Sampler) -> None:
        """Append a sampler (llama_sampler_chain_add). It belongs to the chain from then on.

        The object that was passed in is closed by that (`ClosedError` on use); pass a `clone()` to keep it.

        Raises:
            ValueError: it works with another model, or another size of vocabulary, than one that is here already.
            BusyError: another thread is using it.
        """
        _require_sampler(sampler)
        if sampler is self:
            raise ValueError("a chain cannot contain itself")
        with self._use():
            if not sampler._lock.acquire(blocking=False):  # two of the same kind: waiting could deadlock
                raise BusyError("the sampler to add is in use")
            try:
                with sampler._use():
                    _require_agreement([self, sampler])
                    model, _ = sampler._bound()
                    if model is not None:
                        self._depend_on(model)
                    self._part.append(sampler._part)
                    sampler._give_up()
            finally:
                sampler._lock.release()

    def _depend_on(self, model: Model) -> None:
        """Keep the model in memory, and be closed with it."""
        if self._parent_handle is model:
            return
        if self._parent_handle is not None:  # of samplers that were removed
            raise ValueError("this chain was used with another model before: make a new one")
        with model._resource:
            model._resource.claim()
            self._resource._parent = model._resource
        self._parent_handle = model
        with _counts:
            model._children.add(self)
        if model.closed:
            self.close()
            raise ClosedError("the model of this sampler is closed")

    def remove(self, index: int) -> Sampler:
        """Take out the sampler at an index and return it, with its state (llama_sampler_chain_remove).

        Raises:
            IndexError: there is none; negative indices count from the end.
        """
        with self._use() as chain:
            parts = self._part.parts
            index = count("index", index, -INT32_MAX)
            if not -len(parts) <= index < len(parts):
                raise IndexError(f"the chain has {len(parts)} samplers, so none at {index}")
            pointer = lib.llama_sampler_chain_remove(chain, index % len(parts))
            check("removing from a chain")
            if pointer == ffi.NULL:
                raise IndexError(f"llama.cpp has no sampler at {index}")
            return self._wrap(parts.pop(index))

    def perf(self) -> SamplerPerf:
        """Time and number of tokens since creation or `perf_reset`; time is zero unless made with no_perf=False."""
        with self._use(broken=True) as chain:
            data = lib.llama_perf_sampler(chain)
            check("reading the sampler's counters")
            return SamplerPerf(data.t_sample_ms, data.n_sample)

    def perf_reset(self) -> None:
        """Start the counters anew (llama_perf_sampler_reset)."""
        with self._use(broken=True) as chain:
            lib.llama_perf_sampler_reset(chain)
            check("resetting the sampler's counters")

    def __repr__(self) -> str:
        return f"<SamplerChain {' '.join(self.names)} {'closed' if self.closed else 'open'}>"
