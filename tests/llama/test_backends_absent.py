"""What is said about backends that were compiled and have no device here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from causerie import _build
from causerie.llama import devices
from causerie.llama._plugins import is_registered
from causerie.llama.backends import why_no_device

NO_DRIVER = "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\n"


def test_what_a_backend_said_is_told() -> None:
    assert why_no_device("CUDA", [NO_DRIVER]) == (
        "failed to initialize CUDA: no driver, or one that is too old "
        "(CUDA driver version is insufficient for CUDA runtime version)"
    )
    nothing = ["ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"]
    assert why_no_device("CUDA", nothing) == "failed to initialize CUDA: no CUDA-capable device is detected"


def test_what_others_said_is_not() -> None:
    assert why_no_device("CPU", [NO_DRIVER, "the CPU is fine"]) == ""
    assert why_no_device("Unknown", [NO_DRIVER]) == "it does not start"


def test_backends_that_work_are_registered() -> None:
    assert is_registered("CPU")
    assert not is_registered("Nowhere")


@pytest.mark.parametrize(("library", "name"), [("hip", "ROCm"), ("metal", "MTL"), ("vulkan", "Vulkan")])
def test_a_backend_with_a_device_is_not_missing(library: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    build = replace(_build.build_info(), backends=("cpu", library), flags={})
    cpu = devices()[0]
    assert "no device was found" in _build._missing(build, (cpu,), ())[library]
    assert library not in _build._missing(build, (cpu, replace(cpu, backend=name)), ())
    assert "not compiled" in _build._missing(build, (cpu,), ())["cuda"]
