"""For which processors ggml can be compiled, and what each variant needs, as the vendored source says."""

from __future__ import annotations

import platform
import re
from pathlib import Path

CMAKE = Path(__file__).resolve().parents[2] / "vendor/llama.cpp/ggml/src/CMakeLists.txt"
# ggml's name of a feature -> the kernel's names, which say that the system lets programs use it.
FLAGS = {
    "SSE42": {"sse4_2"}, "AVX": {"avx"}, "AVX2": {"avx2"}, "BMI2": {"bmi2"}, "AVX_VNNI": {"avx_vnni"}, "FMA": {"fma"},
    "F16C": {"f16c"}, "AVX512": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
    "AVX512_VBMI": {"avx512vbmi"}, "AVX512_VNNI": {"avx512_vnni"}, "AVX512_BF16": {"avx512_bf16"},
    "AMX_TILE": {"amx_tile"}, "AMX_INT8": {"amx_int8"},
}  # fmt: skip


def _variants() -> dict[str, frozenset[str]]:
    """Of x86, the features that each is compiled with."""
    text = CMAKE.read_text().partition("if (GGML_CPU_ALL_VARIANTS)")[2]
    text = text.partition('if (GGML_SYSTEM_ARCH STREQUAL "x86")')[2].partition("elseif(GGML_SYSTEM_ARCH")[0]
    found = re.findall(r"ggml_add_cpu_backend_variant\((\w+)\s*([\w ]*)\)", text)
    return {name: frozenset(features.split()) for name, features in found}


VARIANTS = _variants() if platform.machine() in {"x86_64", "AMD64"} else {}


def usable() -> set[str]:
    """The variants that this machine's processor can run."""
    text = Path("/proc/cpuinfo").read_text()
    flags = set(re.findall(r"^flags\s*:(.*)$", text, re.MULTILINE)[0].split())
    return {name for name, features in VARIANTS.items() if set().union(*map(FLAGS.get, features)) <= flags}
