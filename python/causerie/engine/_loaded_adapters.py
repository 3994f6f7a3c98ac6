"""The LoRA adapters that an engine has loaded, and those that its context computes with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from causerie.engine._opening import resolved
from causerie.errors import StateError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causerie.engine.adapters import Adapter
    from causerie.llama.adapter import LoraAdapter
    from causerie.llama.context import Context

__all__ = ["LoadedAdapters", "located"]


def located(adapters: Iterable[Adapter]) -> tuple[Adapter, ...]:
    """With absolute paths; "hf:..." is fetched. Those with a fingerprint stay as they are.

    Raises:
        ModelLoadError, UnsupportedError: it could not be fetched.
    """
    return tuple(a if a.fingerprint else replace(a, path=_absolute(a.path)) for a in adapters)


def _absolute(path: str) -> str:
    return resolved(path) if path.startswith("hf:") else str(Path(path).expanduser().absolute())


class LoadedAdapters:
    """Each content is loaded once, and stays until the engine is closed.

    `loaded`, and `load` of what is, are for any thread that has the engine's lock; the rest is for whoever leads it.

    Args:
        context: computes with them; one set for all that it evaluates together.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_fingerprint: dict[str, LoraAdapter] = {}
        self._by_file: dict[tuple[str | int, ...], str] = {}
        self._attached: tuple[Adapter, ...] | None = ()

    def loaded(self, wanted: Iterable[Adapter]) -> bool:
        """Whether there is nothing to load."""
        return all(adapter.fingerprint in self._by_fingerprint for adapter in wanted)

    def load(self, wanted: Iterable[Adapter]) -> tuple[Adapter, ...]:
        """Load what is not yet, and give the set that a sequence refers to: equal for equal effects.

        Raises:
            ModelLoadError: a file is missing, damaged, no adapter, or made for another model.
            StateError: a file is not the one that was asked for; `.expected` and `.found`.
            UnsupportedError: an activated LoRA.
            ValueError: the same one twice.
        """
        found = [self._found(adapter) if self.loaded((adapter,)) else self._load(adapter) for adapter in wanted]
        if len({adapter.fingerprint for adapter in found}) < len(found):
            raise ValueError("an adapter can be applied only once: add up its scales instead")
        return tuple(sorted((a for a in found if a.scale), key=lambda a: a.fingerprint))

    def _found(self, adapter: Adapter) -> Adapter:
        return replace(adapter, path=str(self._by_fingerprint[adapter.fingerprint].path))

    def _load(self, adapter: Adapter) -> Adapter:
        path = str(Path(adapter.path).absolute())
        file = _as_it_is(path)
        fingerprint = self._by_file.get(file) or self._opened(path)
        self._by_file[file] = fingerprint
        if adapter.fingerprint and adapter.fingerprint != fingerprint:
            raise StateError(
                f"{path} is not the LoRA adapter it was", expected=adapter.fingerprint, found=fingerprint, path=path
            )
        return replace(adapter, path=path, fingerprint=fingerprint)

    def _opened(self, path: str) -> str:
        from causerie.llama.adapter import LoraAdapter  # not needed before

        lora = LoraAdapter(self._context.model, path)
        if len(lora.alora_invocation_tokens):
            lora.close()
            raise UnsupportedError(f"{path} is an activated LoRA, which begins in the middle of a prompt")
        if lora.fingerprint in self._by_fingerprint:  # a copy
            lora.close()
        else:
            self._by_fingerprint[lora.fingerprint] = lora
        return lora.fingerprint

    def attach(self, adapters: tuple[Adapter, ...]) -> bool:
        """Let the context compute with exactly these, which are loaded; whether it did not before."""
        if adapters == self._attached:
            return False
        self._attached = None  # whatever becomes of it
        self._context.set_adapters([(self._by_fingerprint[a.fingerprint], a.scale) for a in adapters])
        self._attached = adapters
        return True

    def close(self) -> None:
        """Free all; the context is closed."""
        while self._by_fingerprint:
            self._by_fingerprint.popitem()[1].close()


def _as_it_is(path: str) -> tuple[str | int, ...]:
    """What tells a file from one that takes its place."""
    try:
        facts = Path(path).stat()
    except OSError:  # opening it will tell
        return (path,)
    return path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
