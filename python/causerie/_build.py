"""What this installation is made of, and what it found on this machine."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causerie.llama import Plugin
    from causerie.llama.device import Device

__all__ = ["BuildInfo", "Diagnosis", "build_info", "doctor"]


@dataclass(frozen=True)
class Backend:
    """What is told about a backend that cannot be used.

    Attributes:
        option: the CMake option that compiles it.
        name: ggml's name for it.
        to_run, to_build: what a machine needs.
    """

    option: str
    name: str
    to_run: str
    to_build: str = ""


BACKENDS: Mapping[str, Backend] = {
    "cuda": Backend("GGML_CUDA", "CUDA", "an NVIDIA GPU and its driver", "the CUDA toolkit (make cuda-toolkit)"),
    "metal": Backend("GGML_METAL", "MTL", "macOS on a Mac with a GPU", "Xcode's command line tools"),
    "vulkan": Backend(
        "GGML_VULKAN",
        "Vulkan",
        "a GPU with a Vulkan driver; a driver that computes on the CPU has to be chosen: GGML_VK_VISIBLE_DEVICES=0",
        "Vulkan headers and glslc (make vulkan-packages)",
    ),
    "hip": Backend("GGML_HIP", "ROCm", "an AMD GPU and ROCm"),
    "sycl": Backend("GGML_SYCL", "SYCL", "an Intel GPU and oneAPI"),
    "blas": Backend("GGML_BLAS", "BLAS", "a BLAS library, for example OpenBLAS"),
    "rpc": Backend("GGML_RPC", "RPC", "other machines that run `causerie rpc-server`"),
}


@dataclass(frozen=True)
class BuildInfo:
    """What causerie was compiled with, and for which processors what of it runs was compiled.

    Attributes:
        version: causerie's version.
        llama_commit: llama.cpp's commit, 40 hex digits.
        llama_version: llama.cpp's own version.
        backends: ggml backends that were compiled, for example ("cpu", "cuda").
        cpu_variants: the kinds of processors for each of which the CPU backend was compiled, for example ("x64",
            "haswell"); empty where it was compiled once, into the libraries themselves.
        cpu_variant: which of them is used on this machine; None where there is no choice, or none can be used.
        flags: llama.cpp's and ggml's CMake options.
        compiler: name and version of the C++ compiler.
        build_type: CMake's build type.
        system: operating system and processor the build is for.
    """

    version: str
    llama_commit: str
    llama_version: str
    backends: tuple[str, ...]
    cpu_variants: tuple[str, ...]
    cpu_variant: str | None
    flags: Mapping[str, str]
    compiler: str
    build_type: str
    system: str


def build_info() -> BuildInfo:
    """What causerie was compiled with, and which variant for processors is used."""
    from causerie.llama import ffi, lib, plugins

    variants = [p.variant for p in plugins() if p.backend == "cpu" and p.used and p.variant]
    facts = json.loads(ffi.string(lib.causerie_build_info()).decode())
    return BuildInfo(
        version=facts["version"],
        llama_commit=facts["llama_commit"],
        llama_version=ffi.string(lib.causerie_llama_version()).decode(),
        backends=tuple(facts["backends"]),
        cpu_variants=tuple(facts["cpu_variants"]),
        cpu_variant=variants[0] if variants else None,
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
        plugins: backends in libraries of their own: those that were found, and what is wrong with them.
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
    plugins: tuple[Plugin, ...]
    missing: Mapping[str, str]


def _cpu_features() -> tuple[str, ...]:
    from causerie.llama import ffi, lib

    # "CPU : SSE3 = 1 | AVX = 1 | ... | " per backend
    text = ffi.string(lib.llama_print_system_info()).decode("utf-8", "replace")
    fields = (field.rsplit(":", 1)[-1].partition("=") for field in text.split("|"))
    return tuple(name.strip() for name, _, value in fields if value.strip() == "1")


def _missing(build: BuildInfo, devices: tuple[Device, ...], plugins: tuple[Plugin, ...]) -> dict[str, str]:
    from causerie.llama.backends import why_no_device

    found = {d.backend for d in devices}
    loaded = {p.backend for p in plugins if p.used}
    problems = {p.backend: p.problem for p in plugins if p.problem and p.backend not in loaded}
    advice = {}
    if "CPU" not in found:
        reason = problems.get("cpu", "no plugin for it was found")
        advice["cpu"] = f"{reason}; nothing can be computed: pip install --force-reinstall causerie"
    for library, backend in BACKENDS.items():
        if library == "metal" and sys.platform != "darwin":
            continue
        if library in problems:
            advice[library] = f"its plugin cannot be used: {problems[library]} (needs {backend.to_run})"
        elif library not in loaded and library not in build.backends:
            needs = " and ".join(filter(None, (backend.to_run, backend.to_build)))
            advice[library] = f"not compiled: pip install . -C cmake.define.{backend.option}=ON (needs {needs})"
        elif library not in loaded and build.flags.get("GGML_BACKEND_DL") == "ON":
            advice[library] = "its plugin is not there any more: pip install --force-reinstall causerie"
        elif backend.name not in found and library != "rpc":
            why = why_no_device(backend.name)
            advice[library] = f"compiled, but no device was found{why and f' ({why})'}: needs {backend.to_run}"
    return advice


def doctor() -> Diagnosis:
    """What this installation can use on this machine, and what to do about what is missing."""
    from causerie.llama import available_memory, devices, plugins
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
        plugins=plugins(),
        missing=_missing(build, found, plugins()),
    )
