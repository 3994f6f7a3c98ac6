"""llama.cpp's primitives: one class per noun of llama.h, methods named after its verbs.

`lib` and `ffi` are the generated bindings themselves, for what has no class here: every function of llama.h, ggml.h,
ggml-cpu.h, ggml-backend.h, ggml-opt.h, gguf.h, mtmd.h and mtmd-helper.h that is not deprecated.
"""

from causerie.llama._lib import ffi, lib
from causerie.llama._memory_check import available_memory
from causerie.llama.adapter import LoraAdapter
from causerie.llama.batch import Batch
from causerie.llama.context import Context, ContextPerf
from causerie.llama.control_vector import ControlVector
from causerie.llama.device import Device, buffer_types, devices
from causerie.llama.memory import Memory
from causerie.llama.model import Model
from causerie.llama.quantize import QuantizeOptions, QuantizeReport, quantize
from causerie.llama.sampler import Candidates, Sampler, SamplerChain, SamplerPerf
from causerie.llama.state import State
from causerie.llama.step import Chooser, Chosen, Step
from causerie.llama.template import Template
from causerie.llama.vocab import Vocab

__all__ = [
    "Batch",
    "Candidates",
    "Chooser",
    "Chosen",
    "Context",
    "ContextPerf",
    "ControlVector",
    "Device",
    "LoraAdapter",
    "Memory",
    "Model",
    "QuantizeOptions",
    "QuantizeReport",
    "Sampler",
    "SamplerChain",
    "SamplerPerf",
    "State",
    "Step",
    "Template",
    "Vocab",
    "available_memory",
    "buffer_types",
    "devices",
    "ffi",
    "lib",
    "quantize",
]
