"""Vulkan that does not start, or has no memory left: each in a process of its own, on the driver that is the CPU's."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import causerie
from causerie.llama import devices

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(
        "vulkan" not in causerie.build_info().backends,
        reason="this build has no Vulkan: pip install . -C cmake.define.GGML_VULKAN=ON",
    ),
]
ON_CPU = [device for device in devices() if device.backend == "Vulkan" and "llvmpipe" in device.description]
needs_lavapipe = pytest.mark.skipif(
    not ON_CPU, reason="memory can be limited for lavapipe alone (make vulkan-packages)"
)


def run(code: str, *arguments: object, **environment: str) -> str:
    """What a program prints; it must not print anything else, nor fail."""
    unset = {"GGML_VK_VISIBLE_DEVICES", "VK_ICD_FILENAMES", "VK_DRIVER_FILES"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, env={**kept, **environment}
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


ABSENT = """
import sys
import causerie
from causerie import Engine, UnsupportedError
print(causerie.doctor().missing["vulkan"])
for options, expected in (({"devices": ["Vulkan0"]}, ValueError), ({"strict": True}, UnsupportedError)):
    try:
        Engine(sys.argv[1], **options)
    except expected as error:
        print(type(error).__name__, error)
with Engine(sys.argv[1], n_ctx=256, n_threads=1) as engine:
    print(engine.stats().devices[0].name, engine.conversation().send("Hello", max_tokens=2).usage.completion_tokens)
"""


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"VK_ICD_FILENAMES": "/nowhere.json", "VK_DRIVER_FILES": "/nowhere.json"}, "(it does not start)"),
        ({"GGML_VK_VISIBLE_DEVICES": "99"}, "(it does not start)"),
        ({"VK_ICD_FILENAMES": "/nowhere.json", "GGML_VK_VISIBLE_DEVICES": "0"}, "(it does not start)"),
    ],
    ids=["no driver", "no such device", "no driver for the device"],
)
def test_without_it_the_cpu_is_used(smollm2_path: Path, environment: dict[str, str], why: str) -> None:
    told, unknown, strict, used = run(ABSENT, smollm2_path, **environment).splitlines()
    assert told.startswith(f"compiled, but no device was found {why}: needs a GPU with a Vulkan driver")
    assert unknown == "ValueError no device named 'Vulkan0'; found: CPU"
    assert strict.startswith("UnsupportedError strict: 30 of 30 layers")
    assert used == "CPU 2"


@needs_lavapipe
def test_a_driver_that_is_the_cpus_has_to_be_chosen(smollm2_path: Path) -> None:
    told = run(ABSENT, smollm2_path).splitlines()[0]
    assert told.startswith("compiled, but no device was found: needs")
    assert "GGML_VK_VISIBLE_DEVICES=0" in told


LIMITED = """
import resource, sys
from causerie import OutOfMemoryError
from causerie.llama import Batch, Context, Model, find_devices

def limit(megabytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))

def evaluate(context):
    batch = Batch(8)
    for i in range(8):
        batch.add(1000 + i, i, [0], output=i == 7)
    context.decode(batch)
    return context.logits().tolist()

def told(error):
    return error.needed > 0, error.available > 0, "Vulkan0" in str(error)

path, options = sys.argv[1], {"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, "n_threads": 1}
with Model(path, devices=["Vulkan0"], strict=True) as model, Context(model, **options) as context:
    want = evaluate(context)
    limit(700)
    for check_memory in (True, False):
        try:
            Context(model, **{**options, "n_ctx": 131072}, check_memory=check_memory)
        except OutOfMemoryError as error:
            print("context", *told(error))
    with Context(model, **options) as again:
        print("again", evaluate(again) == want)
limit(70)
try:
    Model(path, devices=["Vulkan0"], load_mode="none")
except OutOfMemoryError as error:
    print("model", *told(error))
limit(4000)
with Model(path, devices=["Vulkan0"], strict=True) as model, Context(model, **options) as context:
    print("again", evaluate(context) == want)
"""


@needs_lavapipe
def test_memory_that_is_denied_is_told_and_less_of_it_works(smollm2_path: Path) -> None:
    lines = run(LIMITED, smollm2_path, GGML_VK_VISIBLE_DEVICES="0").splitlines()
    assert lines == ["context True True True"] * 2 + ["again True", "model True True True", "again True"]
