"""llama.cpp's primitives: one class per noun of llama.h, methods named after its verbs.

`lib` and `ffi` are the generated bindings themselves, for what has no class here: every function of llama.h, ggml.h,
ggml-cpu.h, ggml-backend.h, ggml-opt.h, gguf.h, mtmd.h and mtmd-helper.h that is not deprecated.

What evaluates batches is loaded at once. The rest, of which a process often needs nothing, is loaded when its name is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from causerie.llama._lib import ffi, lib, plugins
from causerie.llama._memory_check import available_memory
from causerie.llama._plugins import Plugin
from causerie.llama.batch import Batch
from causerie.llama.context import Context, ContextPerf
from causerie.llama.device import Device, buffer_types, devices
from causerie.llama.memory import Memory
from causerie.llama.model import Model
from causerie.llama.placement import DeviceUse, device_uses, find_devices
from causerie.llama.vocab import Vocab

if TYPE_CHECKING:
    from causerie.llama.adapter import LoraAdapter
    from causerie.llama.control_vector import ControlVector
    from causerie.llama.fitting import Fit, fit
    from causerie.llama.quantization import QuantizeOptions, QuantizeReport, quantize
    from causerie.llama.rpc import rpc_devices, rpc_serve
    from causerie.llama.sampler import Candidates, Sampler, SamplerChain, SamplerPerf, Section
    from causerie.llama.state import State
    from causerie.llama.step import Chooser, Chosen, Step
    from causerie.llama.template import Template

__all__ = [
    "Batch",
    "Candidates",
    "Chooser",
    "Chosen",
    "Context",
    "ContextPerf",
    "ControlVector",
    "Device",
    "DeviceUse",
    "Fit",
    "LoraAdapter",
    "Memory",
    "Model",
    "Plugin",
    "QuantizeOptions",
    "QuantizeReport",
    "Sampler",
    "SamplerChain",
    "SamplerPerf",
    "Section",
    "State",
    "Step",
    "Template",
    "Vocab",
    "available_memory",
    "buffer_types",
    "device_uses",
    "devices",
    "ffi",
    "find_devices",
    "fit",
    "lib",
    "plugins",
    "quantize",
    "rpc_devices",
    "rpc_serve",
]

# No module may be named as one of these is: importing it would put it in that name's place.
_WHERE = {
    "adapter": ("LoraAdapter",),
    "control_vector": ("ControlVector",),
    "fitting": ("Fit", "fit"),
    "quantization": ("QuantizeOptions", "QuantizeReport", "quantize"),
    "rpc": ("rpc_devices", "rpc_serve"),
    "sampler": ("Candidates", "Sampler", "SamplerChain", "SamplerPerf", "Section"),
    "state": ("State",),
    "step": ("Chooser", "Chosen", "Step"),
    "template": ("Template",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _WHERE:  # the module itself, which no import statement has named yet
        return importlib.import_module(f"causerie.llama.{name}")
    if name in _MODULES:
        value = getattr(importlib.import_module(f"causerie.llama.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'causerie.llama' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
