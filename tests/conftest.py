"""Fixtures that every floor's tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that; tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Gives each of several workers a core of its own: what it starts then has as many threads as there is room for.

    llama.cpp's threads wait for each other by spinning, so that two processes with two threads each would stand still.
    Tests that ask for several threads are marked so, and run alone.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The chat model of the tests, fetched once per machine into the user's own cache."""
    from causerie import models

    return models.resolve("smollm2")


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder (not created yet) that stands in for the user's during one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CAUSERIE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def tools_dir() -> Path:
    """Folder with llama.cpp's own programs, built from the vendored source by `make tools`."""
    chosen = os.environ.get("CAUSERIE_TOOLS_DIR")
    for folder in [Path(chosen)] if chosen else sorted((ROOT / "build").glob("*/bin")):
        if shutil.which("llama-completion", path=str(folder)) is not None:
            return folder
    pytest.fail("llama.cpp's own programs are not built: run `make tools`, or set CAUSERIE_TOOLS_DIR")


@pytest.fixture(scope="session")
def tiny_models(tools_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny random-weight model per architecture, by llama.cpp's name for it; kept in CAUSERIE_TINY_MODELS, if set.

    The weights are the same in each run: how far one token changes the logits, by which tests judge, depends on them.
    """
    folder = Path(os.environ.get("CAUSERIE_TINY_MODELS") or tmp_path_factory.mktemp("tiny"))
    if not any(folder.glob("*.gguf")):
        subprocess.run(
            [tools_dir / "test-llama-archs", "-s", "1", "-o", folder],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return {path.name.removesuffix(".gguf"): path for path in sorted(folder.glob("*.gguf"))}


@pytest.fixture(scope="session")
def device() -> str:
    """The device that tests marked `backend` are about: CAUSERIE_TEST_DEVICE, or the first GPU.

    A device that was asked for and is not there is a failure: `make test-vulkan` must not pass without Vulkan.
    """
    from causerie.llama import devices
    from causerie.llama.device import default_devices

    chosen = os.environ.get("CAUSERIE_TEST_DEVICE")
    names = [device.name for device in devices()]
    if chosen:
        assert chosen in names, f"CAUSERIE_TEST_DEVICE is {chosen}; `causerie doctor` finds {names}"
        return chosen
    gpus = default_devices()
    if not gpus:
        pytest.skip("no device but the CPU works here (`causerie doctor` tells why); CAUSERIE_TEST_DEVICE names one")
    return gpus[0].name
