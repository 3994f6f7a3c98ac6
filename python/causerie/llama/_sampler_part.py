"""What Python keeps about a native sampler, and the candidates that samplers work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie.errors import NativeError
from causerie.llama._callbacks import CustomSampler
from causerie.llama._errors import check
from causerie.llama._lib import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from causerie.llama.model import Model

__all__ = ["TOKEN_DATA", "Candidates", "Part"]

TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
if TOKEN_DATA.itemsize != ffi.sizeof("llama_token_data"):  # pragma: no cover - a new pin may change the struct
    raise ImportError("llama_token_data is not what causerie.llama was written for")

# Those that choose a token, by their factory's name. A custom sampler may.
_SELECTING = {"greedy", "dist", "mirostat", "mirostat_v2", "adaptive_p", "custom"}
# Their state becomes NaN when every candidate they choose from is -inf.
_SPOILED_BY_NOTHING = {"mirostat", "mirostat_v2", "adaptive_p"}


@dataclass(frozen=True, eq=False)
class Candidates:
    """Tokens to choose from (llama_token_data_array).

    Attributes:
        ids: token ids, int32 of shape (n,).
        logits: float32 of shape (n,), -inf for what is excluded.
        selected: id of the token a sampler has chosen, None if none has.
    """

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    selected: int | None = None

    @property
    def probs(self) -> NDArray[np.float32]:
        """Probability of each: softmax of the logits, float32 of shape (n,); zeros if all logits are -inf."""
        top = self.logits.max(initial=-np.inf)
        if top == -np.inf:
            return np.zeros(self.logits.shape, np.float32)
        weights = np.exp(self.logits - top)
        return np.asarray(weights / weights.sum(), np.float32)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(eq=False)
class Part:
    """One native sampler, or a chain with its parts.

    Attributes:
        kind: the factory's name.
        pointer: the native sampler, valid as long as the handle that owns it.
        name: llama.cpp's name, or the custom sampler's.
        model: the model whose vocabulary it works with; None: any.
        n_tokens: the size of the vocabulary it was made for; None: any.
        custom, handle: of a custom sampler: its functions, and what native code calls them with.
        no_perf: of a chain: do not count times.
    """

    kind: str
    pointer: Any
    name: str = ""
    model: Model | None = None
    n_tokens: int | None = None
    custom: CustomSampler | None = None
    handle: Any = None
    no_perf: bool = True
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or ffi.string(lib.llama_sampler_name(self.pointer)).decode()

    def walk(self) -> Iterator[Part]:
        """Itself and, of a chain, all parts in order, at any depth."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @property
    def selects(self) -> bool | None:
        """Whether the last one that does anything chooses a token; None: nothing here does anything."""
        if self.kind != "chain":
            return None if self.name.startswith("?") else self.kind in _SELECTING
        return next((s for s in (part.selects for part in reversed(self.parts)) if s is not None), None)

    @property
    def spoiled_by_nothing(self) -> bool:
        """Whether choosing among candidates that are all -inf leaves NaN in the state."""
        return any(part.kind in _SPOILED_BY_NOTHING for part in self.walk())

    @property
    def shape(self) -> tuple[Any, ...]:
        """Kinds and names, for comparing two samplers."""
        return (self.kind, self.name, tuple(part.shape for part in self.parts))

    def claim_functions(self) -> None:
        """Make this, not a global table, what keeps a custom sampler's functions alive."""
        for key in list(CustomSampler._alive):
            if key == self.pointer.ctx:
                self.custom, self.handle = CustomSampler._alive.pop(key), key
                return

    def clone(self) -> Part:
        """A copy with its own native sampler and the same state.

        Raises:
            NativeError: llama.cpp failed; nothing is left over. The error of a custom sampler stays with it.
        """
        if self.kind == "chain":
            return self._clone_chain()
        pointer = lib.llama_sampler_clone(self.pointer)
        check(f"cloning the sampler {self.name}")
        copy = Part(self.kind, pointer, self.name, self.model, self.n_tokens)
        if self.kind == "custom":
            copy.claim_functions()
        copy.settle()
        return copy

    def _clone_chain(self) -> Part:
        chain = Part("chain", new_chain(self.no_perf), no_perf=self.no_perf)
        try:
            for part in self.parts:
                chain.append(part.clone())
        except BaseException:
            lib.llama_sampler_free(chain.pointer)
            raise
        return chain

    def append(self, part: Part) -> None:
        """Give a part to this chain, which then owns it (llama_sampler_chain_add)."""
        lib.llama_sampler_chain_add(self.pointer, part.pointer)
        check("adding to a chain")
        self.parts.append(part)

    def settle(self) -> None:
        """After llama.cpp copied state into this part: put right what it copies only in half."""
        if self.kind == "adaptive_p":
            # The copy waits for the chosen token without the probabilities that it would then look up. A token that
            # cannot be the one makes it wait no longer.
            lib.llama_sampler_accept(self.pointer, -2)
            check(f"settling the sampler {self.name}")
        elif self.kind == "custom" and self.pointer.ctx != self.handle:
            self.claim_functions()


def new_chain(no_perf: bool) -> Any:
    """A native chain without samplers (llama_sampler_chain_init)."""
    params = lib.llama_sampler_chain_default_params()
    params.no_perf = no_perf
    pointer = lib.llama_sampler_chain_init(params)
    check("creating a chain of samplers")
    if pointer == ffi.NULL:
        raise NativeError("llama.cpp gave no chain of samplers")
    return pointer
