"""The portable wheel with plugins taken away, and with one dropped in beside it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from installed import Installed

FAILS = """
import json, sys, causerie
from causerie import llama
def fails(call):
    try:
        call()
    except causerie.CauserieError as error:
        return [type(error).__name__, str(error)]
    return None
path = sys.argv[1]
print(json.dumps({
    "devices": [d.name for d in llama.devices()],
    "Model": fails(lambda: llama.Model(path)),
    "Engine": fails(lambda: causerie.Engine(path)),
    "isolate": fails(lambda: causerie.Engine(path, isolate=True)),
    "fit": fails(lambda: llama.fit(path)),
    "serve": fails(lambda: llama.rpc_serve("127.0.0.1:1")),
    "vocab": llama.Model(path, vocab_only=True).vocab.tokenize("The sea").tolist(),
}))
"""


def take(installed: Installed, pattern: str, folder: Path) -> Path:
    """Move plugins out of the package."""
    folder.mkdir()
    found = list(installed.libraries.glob(pattern))
    assert found
    for path in found:
        shutil.move(path, folder)
    return folder


def test_without_the_cpus_plugins_import_works_and_use_is_a_typed_error(
    changed: Installed, tmp_path: Path, smollm2_path: Path
) -> None:
    """Nor are they found in the current folder, where llama.cpp itself looks for them."""
    away = take(changed, "*ggml-cpu*", tmp_path / "away")
    found = json.loads(changed.run(FAILS, smollm2_path, cwd=away))
    assert found["devices"] == []
    for call in ("Model", "Engine", "isolate", "fit", "serve"):
        assert found[call][0] == "DeviceError", call
        assert "no CPU backend: no plugin for it was found" in found[call][1]
    assert len(found["vocab"]) > 1
    search = "from causerie import llama; llama.lib.ggml_backend_load_all(); print(len(llama.devices()))"
    assert changed.run(search, cwd=away).strip() == "1"
    told = changed.process("-m", "causerie.cli", "doctor", cwd=away)
    assert told.returncode == 0
    assert "nothing can be computed" in told.stdout
    asked = changed.process("-m", "causerie.cli", "chat", "--model", smollm2_path, "Hello", cwd=away)
    assert asked.returncode == 1
    assert asked.stderr.startswith("causerie: error: there is no CPU backend")


def test_without_any_plugin_import_works_too(changed: Installed, tmp_path: Path, smollm2_path: Path) -> None:
    away = take(changed, "*ggml-[!b]*", tmp_path / "away")
    for left in changed.libraries.glob("libggml-*"):
        left.unlink()
    found = json.loads(changed.run(FAILS, smollm2_path, cwd=away))
    assert found["devices"] == []
    assert found["serve"][0] == "UnsupportedError"
    assert found["Model"][0] == "DeviceError"


def test_a_damaged_plugin_is_left_out_for_the_next_best(changed: Installed) -> None:
    best = changed.facts()["cpu_variant"]
    (damaged,) = changed.libraries.glob(f"*ggml-cpu-{best}.*")
    damaged.write_bytes(b"no library")
    facts = changed.facts()
    assert facts["cpu_variant"] not in {None, best}
    assert [p["variant"] for p in facts["plugins"] if p["problem"]] == [best]


@pytest.fixture
def server(changed: Installed) -> Iterator[int]:
    """The port of an RPC server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [changed.python, "-m", "causerie.cli", "rpc-server", "--port", str(port), "--threads", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=changed.environment,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not _answers(port):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    yield port
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_plugin_that_is_dropped_in_elsewhere_is_found_and_used(
    changed: Installed, server: int, tmp_path: Path, smollm2_path: Path
) -> None:
    """Here the RPC backend, in a folder of its own; the server has it from the package as it was when it started."""
    folder = take(changed, "*ggml-rpc*", tmp_path / "plugins, and more")
    chat = (
        "import sys, causerie\n"
        f"with causerie.Engine(sys.argv[1], n_ctx=256, rpc=['127.0.0.1:{server}'], n_gpu_layers=99) as engine:\n"
        "    print([d.backend for d in engine.stats().devices if d.layers], engine.conversation().send('Say hello.',"
        " max_tokens=8).usage.completion_tokens)"
    )
    without = changed.process("-c", chat, smollm2_path)
    assert "UnsupportedError" in without.stderr
    place = {"CAUSERIE_BACKEND_PATH": os.pathsep.join([str(tmp_path / "absent"), str(folder)])}
    assert changed.run(chat, smollm2_path, env=place).strip() == "['RPC'] 8"
    facts = changed.facts(env=place)
    (plugin,) = [p for p in facts["plugins"] if p["backend"] == "rpc"]
    assert plugin["used"]
    assert plugin["path"].startswith(str(folder))
    assert [p["problem"] for p in facts["plugins"] if p["problem"]] == [f"no plugin is there ({_pattern()})"]
    assert "rpc" not in facts["missing"]


def test_a_processors_plugin_that_is_dropped_in_comes_first(changed: Installed, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (plain,) = changed.libraries.glob("*ggml-cpu-x64.*")
    shutil.copy(plain, folder)
    assert changed.facts(env={"CAUSERIE_BACKEND_PATH": str(folder)})["cpu_variant"] == "x64"


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _pattern() -> str:
    return "ggml-*.dll" if sys.platform == "win32" else "libggml-*.so"
