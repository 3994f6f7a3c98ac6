"""Backends that are libraries of their own: which there are, which of them are used, and why others are not.

ggml has a search of its own. It says nothing about what it leaves out, and without a folder it looks into the current
one; so only its loading of one file is used here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from causerie.llama._lib import ffi, lib, path_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Plugin", "is_registered", "load_plugins"]

_PREFIX, _SUFFIX = ("ggml-", ".dll") if sys.platform == "win32" else ("libggml-", ".so")


@dataclass(frozen=True)
class Plugin:
    """A backend in a library of its own, which was looked at when causerie was imported.

    Attributes:
        path: the file; the place itself where `problem` is about a whole folder.
        backend: ggml's name, for example "cpu", "vulkan"; "" if there is no such file.
        variant: for which processors it was compiled, for example "haswell"; "" where there is but one.
        score: how well it suits this machine among its like, by ggml's own measure; 0: not at all.
        used: whether it is the one of its kind that is used.
        problem: why it cannot be used, if something is wrong with it; that another one suits better is nothing wrong.
    """

    path: Path
    backend: str = ""
    variant: str = ""
    score: int = 0
    used: bool = False
    problem: str = ""


def load_plugins(places: Iterable[Path]) -> tuple[Plugin, ...]:
    """Load the best plugin of each kind, from the first of these folders (or files) that has one which works.

    Nothing is raised: a plugin that cannot be loaded is told with its problem.

    Returns:
        All that were found, those of the CPU last.
    """
    found = [(i, plugin) for i, place in enumerate(places) for plugin in _look(place)]
    # Among GPUs ggml prefers the backends that are registered first, as it does itself: CUDA to Vulkan.
    found.sort(key=lambda at: (at[1].backend == "cpu", at[1].backend, at[0], -at[1].score, at[1].path))
    plugins: list[Plugin] = []
    loaded: set[str] = set()
    for _, plugin in found:
        if plugin.score > 0 and plugin.backend not in loaded:
            tried = _load(plugin)
            plugins.append(tried)
            if tried.used or is_registered(plugin.backend):
                loaded.add(plugin.backend)
        else:
            plugins.append(plugin)
    return tuple(plugins)


def _look(place: Path) -> Iterator[Plugin]:
    try:
        files = sorted(place.iterdir()) if place.is_dir() else [place]
    except OSError as error:
        yield Plugin(place, problem=error.strerror or str(error))
        return
    plugins = [file for file in files if file.name.startswith(_PREFIX) and file.suffix == _SUFFIX]
    if not plugins:
        yield Plugin(place, problem=f"no plugin is there ({_PREFIX}*{_SUFFIX})")
    for file in plugins:
        backend, _, variant = file.name[len(_PREFIX) : -len(_SUFFIX)].partition("-")
        yield _scored(Plugin(file, backend, variant))


def _scored(plugin: Plugin) -> Plugin:
    score = lib.causerie_plugin_score(path_bytes(plugin.path))
    if score < 0:
        return replace(plugin, problem=_said(lib.causerie_error_message()))
    if score == 0 and not plugin.variant:
        return replace(plugin, problem="it does not work on this machine")
    return replace(plugin, score=score)


def is_registered(backend: str) -> bool:
    """Whether a backend of that name (ggml's, in any case: "cuda") has started (ggml_backend_reg_by_name)."""
    return bool(lib.ggml_backend_reg_by_name(backend.encode()) != ffi.NULL)


def _load(plugin: Plugin) -> Plugin:
    if is_registered(plugin.backend):
        return replace(plugin, problem=f"the backend {plugin.backend} is compiled in")
    if lib.ggml_backend_load(path_bytes(plugin.path)) != ffi.NULL:
        return replace(plugin, used=True)
    failed = lib.causerie_error_code() != lib.CAUSERIE_ERROR_NONE
    return replace(plugin, problem=_said(lib.causerie_error_message() if failed else lib.causerie_error_log()))


def _said(text: Any) -> str:
    """What the shim or ggml says, without the name of the function that says it."""
    said = " ".join(ffi.string(text).decode("utf-8", "replace").split())
    return said.partition(": ")[2] or said
