"""What this installation is made of, and what it found on this machine."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causerie.llama.device import Device

__all__ = ["BuildInfo", "Diagnosis", "build_info", "doctor"]

# Backends by ggml's name: the CMake option that compiles it, and what a machine needs to use it.
BACKENDS: Mapping[str, tuple[str, str]] = {
    "cuda": ("GGML_CUDA", "an NVIDIA GPU and its driver; the CUDA toolkit to build"),
    "metal": ("GGML_METAL", "macOS on a Mac with a GPU; Xcode's command line tools to build"),
    "vulkan": ("GGML_VULKAN", "a Vulkan driver; the Vulkan headers and glslc to build"),
    "hip": ("GGML_HIP", "an AMD GPU and ROCm"),
    "sycl": ("GGML_SYCL", "an Intel GPU and oneAPI"),
    "blas": ("GGML_BLAS", "a BLAS library, for example OpenBLAS"),
    "rpc": ("GGML_RPC", "other machines that run ggml-rpc-server"),
}


@dataclass(frozen=True)
class BuildInfo:
    """Facts fixed when causerie was compiled.

    Attributes:
        version: causerie's version.
        llama_commit: llama.cpp's commit, 40 hex digits.
        llama_version: llama.cpp's own version.
        backends: ggml backends that were compiled, for example ("cpu", "cuda").
        flags: llama.cpp's and ggml's CMake options.
        compiler: name and version of the C++ compiler.
        build_type: CMake's build type.
        system: operating system and processor the build is for.
    """

    version: str
    llama_commit: str
    llama_version: str
    backends: tuple[str, ...]
    flags: Mapping[str, str]
    compiler: str
    build_type: str
    system: str


def build_info() -> BuildInfo:
    """Facts fixed when causerie was compiled."""
    from causerie.llama import ffi, lib

    facts = json.loads(ffi.string(lib.causerie_build_info()).decode())
    return BuildInfo(
        version=facts["version"],
        llama_commit=facts["llama_commit"],
        llama_version=ffi.string(lib.causerie_llama_version()).decode(),
        backends=tuple(facts["backends"]),
        flags=facts["flags"],
        compiler=facts["compiler"],
        build_type=facts["build_type"],
        system=facts["system"],
    )


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found.

    Attributes:
        build: the compiled facts.
        python: version of the running Python.
        platform: the running system.
        devices: devices that work here.
        cpu_features: instruction sets the CPU backend uses.
        threads: how many compute where nobody chooses.
        threads_reason: why so many.
        memory_available: bytes that can be allocated now, None if the system does not tell.
        missing: backend -> what to do to have it.
    """

    build: BuildInfo
    python: str
    platform: str
    devices: tuple[Device, ...]
    cpu_features: tuple[str, ...]
    threads: int
    threads_reason: str
    memory_available: int | None
    missing: Mapping[str, str]


def _cpu_features() -> tuple[str, ...]:
    from causerie.llama import ffi, lib

    # "CPU : SSE3 = 1 | AVX = 1 | ... | " per backend
    text = ffi.string(lib.llama_print_system_info()).decode("utf-8", "replace")
    fields = (field.rsplit(":", 1)[-1].partition("=") for field in text.split("|"))
    return tuple(name.strip() for name, _, value in fields if value.strip() == "1")


def _missing(build: BuildInfo, devices: tuple[Device, ...]) -> dict[str, str]:
    found = {d.backend.lower() for d in devices}
    advice = {}
    for name, (option, needs) in BACKENDS.items():
        if name == "metal" and sys.platform != "darwin":
            continue
        if name not in build.backends:
            advice[name] = f"not compiled: pip install . -C cmake.define.{option}=ON (needs {needs})"
        elif name not in found and name != "rpc":
            advice[name] = f"compiled, but no device was found: needs {needs}"
    return advice


def doctor() -> Diagnosis:
    """What this installation can use on this machine, and what to do about what is missing."""
    from causerie.llama import available_memory, devices
    from causerie.llama.processors import processors

    build = build_info()
    found = tuple(devices())
    usable = processors()
    return Diagnosis(
        build=build,
        python=platform.python_version(),
        platform=platform.platform(),
        devices=found,
        cpu_features=_cpu_features(),
        threads=usable.threads,
        threads_reason=usable.reason,
        memory_available=available_memory(),
        missing=_missing(build, found),
    )
