"""Python functions that native code calls: progress, evaluation, and samplers written in Python.

An exception cannot cross C frames. It is kept in the `Callback` that belongs to the running call, the native side is
told to stop, and the code that made the call raises it again, with its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causerie.llama._lib import ffi

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Callback", "CustomSampler"]


class Callback:
    """A user's function, its native handle, and the exception it raised."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.error: BaseException | None = None
        self.handle = ffi.new_handle(self)
        self.stopped = False
        self.on_stop: Callable[[], object] = lambda: None

    def __call__(self, *args: Any) -> bool:
        """Call the function; False if it raised, or returned False."""
        if self.error is not None:
            return False
        try:
            return self.function(*args) is not False
        except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt too must get back to the caller
            self.error = error
            return False

    def stop(self) -> None:
        """Have the native side stop; the function is not called again."""
        self.stopped = True
        self.on_stop()

    def reraise(self) -> None:
        """Raise what the function raised, once."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame: no cycle may keep the caller's objects


class CustomSampler:
    """What a sampler written in Python needs to answer native calls; kept alive until native code frees it."""

    _alive: dict[Any, CustomSampler] = {}  # noqa: RUF012 - handle -> object, shared on purpose

    def __init__(
        self,
        apply: Callable[[Any], None],
        accept: Callable[[int], None] | None = None,
        reset: Callable[[], None] | None = None,
        clone: Callable[[], CustomSampler] | None = None,
    ) -> None:
        self.apply = apply
        self.accept = accept
        self.reset = reset
        self.clone = clone
        self.error: BaseException | None = None

    def register(self) -> Any:
        """A handle for native code, valid until `causerie_py_sampler_free`."""
        handle = ffi.new_handle(self)
        self._alive[handle] = self
        return handle

    def run(self, function: Callable[..., Any] | None, *args: Any) -> Any:
        """Call one of the functions, keeping what it raises."""
        if function is None or self.error is not None:
            return None
        try:
            return function(*args)
        except BaseException as error:  # noqa: BLE001
            self.error = error
            return None


def _keep(_: object, error: BaseException, trace: TracebackType) -> bool | None:
    """Keep what interrupts a function below outside of the user's own code, as Ctrl-C can at any line."""
    arguments = trace.tb_frame.f_locals
    owner: Callback | CustomSampler = ffi.from_handle(arguments["handle"])
    owner.error = owner.error or error
    if isinstance(owner, Callback):
        owner.stop()
        return not arguments.get("ask", True)
    return None


@ffi.def_extern(onerror=_keep)
def causerie_py_progress(fraction: float, handle: Any) -> bool:
    """Loading: `fraction` in 0..1; False stops it."""
    callback: Callback = ffi.from_handle(handle)
    if not callback.stopped and not callback(fraction):
        callback.stop()
    return not callback.stopped


@ffi.def_extern(onerror=_keep)
def causerie_py_eval(tensor: Any, ask: bool, handle: Any) -> bool:
    """Evaluation of one graph node: asked before (does the user want it?) and told after (False stops).

    To ggml's scheduler False means that the graph is finished, and llama.cpp would take what was not computed for
    output. So it is told to go on, and the context's cancel flag ends the evaluation.
    """
    callback: Callback = ffi.from_handle(handle)
    if callback.stopped:
        return not ask
    answer = callback(tensor, ask)
    if callback.error is not None or not (ask or answer):
        callback.stop()
        return not ask
    return answer


@ffi.def_extern(onerror=_keep)
def causerie_py_sampler_apply(candidates: Any, handle: Any) -> None:
    """Let the user's sampler see and change the candidates."""
    sampler: CustomSampler = ffi.from_handle(handle)
    sampler.run(sampler.apply, candidates)
    if candidates.selected < 0 and sampler.error is not None and candidates.size:
        candidates.selected = 0  # lets llama_sampler_sample end; the exception is raised instead of the token


@ffi.def_extern(onerror=_keep)
def causerie_py_sampler_accept(token: int, handle: Any) -> None:
    """Tell the user's sampler which token was chosen."""
    sampler: CustomSampler = ffi.from_handle(handle)
    sampler.run(sampler.accept, token)


@ffi.def_extern(onerror=_keep)
def causerie_py_sampler_reset(handle: Any) -> None:
    """Tell the user's sampler to forget its state."""
    sampler: CustomSampler = ffi.from_handle(handle)
    sampler.run(sampler.reset)


@ffi.def_extern(onerror=_keep)
def causerie_py_sampler_clone(handle: Any) -> Any:
    """Copy the user's sampler; NULL if that failed."""
    sampler: CustomSampler = ffi.from_handle(handle)
    if sampler.clone is None:
        return CustomSampler(sampler.apply, sampler.accept, sampler.reset).register()
    copy = sampler.run(sampler.clone)
    return ffi.NULL if copy is None else copy.register()


@ffi.def_extern()
def causerie_py_sampler_free(handle: Any) -> None:
    """Native code is done with this handle."""
    CustomSampler._alive.pop(handle, None)
