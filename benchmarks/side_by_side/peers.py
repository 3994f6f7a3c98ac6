"""The systems beside which causerie is set: where they are installed, or why they are missing.

Each has a folder of its own under `<cache>/benchmark-peers`, never the project's environment. What was once tried stays
tried: a folder holds `installed.json`, or `failed.txt` with the reason; `--retry-peers` tries again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .workplace import PROGRAMS, ROOT, FailedError, Workplace

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVERS = PROGRAMS / "peers"
CMAKE_ARGS = "-DGGML_NATIVE=ON"  # what causerie is built with, but for its own threads instead of OpenMP


@dataclass(frozen=True)
class Installed:
    """A system that can be run.

    Attributes:
        command: its program's, to which a task is given.
        folder: where it is started.
        tools: the folder of llama.cpp's programs, where it needs them.
        about: what is known of it: version, commit of llama.cpp, how it was built.
        differs: what is not as in the other systems.
    """

    command: tuple[str, ...]
    folder: Path | None = None
    tools: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    differs: str = ""


def peers_folder() -> Path:
    """Where peers are installed."""
    from causerie.models.storage import default_cache_dir

    return default_cache_dir() / "benchmark-peers"


def run(*command: object, folder: Path, log: Path, **environment: str) -> None:
    """Run an installer.

    Raises:
        FailedError: it failed; with the line that says why.
    """
    with log.open("a") as file:
        done = subprocess.run(
            [str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            env={**os.environ, **environment}, check=False, timeout=7200,
        )  # fmt: skip
    if done.returncode:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        marked = [line for line in lines if line.lower().startswith(("error", "npm err", "fatal"))]
        raise FailedError(f"{Path(str(command[0])).name}: {(marked or lines or ['no output'])[-1][:300]}")


def python_of(folder: Path) -> Path:
    """The interpreter of the environment in a folder."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install_llama_cpp_python(folder: Path, version: str, log: Path) -> dict[str, Any]:
    """From its source distribution, compiled here."""
    venv.create(folder / "venv", with_pip=True)
    pip = (python_of(folder / "venv"), "-m", "pip", "--disable-pip-version-check")
    archive = folder.parent.parent / f"llama_cpp_python-{version}.tar.gz"  # where vendor/provision.py keeps it
    source = archive if archive.exists() else f"llama-cpp-python=={version}"
    started = time.monotonic()
    flags = " ".join([os.environ.get("CXXFLAGS", ""), *correction()]).strip()
    words = ("install", "--no-binary", "llama-cpp-python", source)
    run(*pip, *words, folder=folder, log=log, CMAKE_ARGS=CMAKE_ARGS, CXXFLAGS=flags)
    return {
        "cmake_args": CMAKE_ARGS,
        "corrected": "GCC's AMX intrinsics, as in causerie" if correction() else "",
        "built_seconds": round(time.monotonic() - started),
        "llama_commit": commit_in(archive) if archive.exists() else None,
    }


def correction() -> list[str]:
    """Options without which llama.cpp, compiled by GCC, crashes on CPUs with AMX (native/gcc_amx.h)."""
    try:
        words = ["c++", "-dM", "-E", "-x", "c++", "-march=native", os.devnull]
        macros = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    needed = "__AMX_INT8__" in macros and "__clang__" not in macros
    return ["-include", str(ROOT / "native" / "gcc_amx.h")] if needed else []


def commit_in(archive: Path) -> str | None:
    """The commit of llama.cpp that a source distribution of llama-cpp-python carries."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if re.fullmatch(r"[^/]+/\.git/modules/vendor/llama\.cpp/HEAD", member.name):
                content = tar.extractfile(member)
                found = content.read().decode().strip() if content else ""
                return found if re.fullmatch(r"[0-9a-f]{40}", found) else None
    return None


def install_xllamacpp(folder: Path, version: str, log: Path) -> dict[str, Any]:
    """From its wheel."""
    venv.create(folder / "venv", with_pip=True)
    pip = (python_of(folder / "venv"), "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--only-binary", "xllamacpp", f"xllamacpp=={version}", folder=folder, log=log)
    return {"built": "wheel from PyPI, for any x86-64"}


def install_node_llama_cpp(folder: Path, version: str, log: Path) -> dict[str, Any]:
    """From npm, with the binary that npm has for this system; nothing is downloaded or compiled by its own scripts."""
    npm = shutil.which("npm")
    if npm is None:
        raise FailedError("npm is not installed")
    (folder / "package.json").write_text('{"private": true}\n')
    run(
        npm,
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        f"node-llama-cpp@{version}",
        folder=folder,
        log=log,
    )
    binaries = folder / "node_modules" / "@node-llama-cpp"
    if not any(binaries.glob("*/bins/*/llama-addon.node")):
        raise FailedError("npm has no binary of node-llama-cpp for this system")
    return {"built": "binary from npm, which chooses among variants for this CPU"}


@dataclass(frozen=True)
class Peer:
    """How a system is installed and started."""

    version: str
    install: Callable[[Path, str, Path], dict[str, Any]]
    driver: str
    differs: str

    def command(self, folder: Path) -> tuple[str, ...]:
        """What starts its program."""
        interpreter = "node" if self.driver.endswith(".mjs") else str(python_of(folder / "venv"))
        return interpreter, str(DRIVERS / self.driver)


PEERS = {
    "llama-cpp-python": Peer(
        "0.3.36",
        install_llama_cpp_python,
        "with_llama_cpp_python.py",
        "one conversation after another; OpenMP; no flash attention, by its defaults",
    ),
    "xllamacpp": Peer(
        "2026.10.11549",
        install_xllamacpp,
        "with_xllamacpp.py",
        "a wheel without this CPU's own instructions (no AVX-512, AMX), and its own llama.cpp",
    ),
    "node-llama-cpp": Peer(
        "3.22.1",
        install_node_llama_cpp,
        "with_node_llama_cpp.mjs",
        "its own binary of its own llama.cpp; its own template",
    ),
}


def find(name: str, *, install: bool, retry: bool = False) -> Installed:
    """A peer, installed first where that is wanted.

    Raises:
        FailedError: it is missing; with the reason.
    """
    peer = PEERS[name]
    folder = peers_folder() / f"{name}-{peer.version}"
    stamp, failure = folder / "installed.json", folder / "failed.txt"
    if not stamp.exists():
        if failure.exists() and not retry:
            raise FailedError(failure.read_text().strip())
        if not install:
            raise FailedError("it was not installed")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"installing {name} {peer.version} into {folder}", flush=True)
        try:
            about = peer.install(folder, peer.version, folder / "install.log")
        except (FailedError, OSError, subprocess.SubprocessError) as error:
            failure.write_text(f"{error}\n")
            raise FailedError(str(error)) from error
        stamp.write_text(json.dumps({"version": peer.version, **about}, indent=1) + "\n")
    return Installed(peer.command(folder), folder=folder, about=json.loads(stamp.read_text()), differs=peer.differs)


def find_server(place: Workplace) -> Installed:
    """llama-server, built with causerie.

    Raises:
        FailedError: it is missing.
    """
    if not (place.tools / "llama-server").exists():
        raise FailedError("it is not built: run `make bench-tools`")
    return Installed(
        (sys.executable, str(DRIVERS / "with_llama_server.py")),
        tools=str(place.tools),
        about={"built": "from the same sources and libraries as causerie"},
        differs="a process of its own, over HTTP",
    )


def find_all(place: Workplace, *, install: bool, retry: bool) -> tuple[dict[str, Installed], dict[str, str]]:
    """All systems that are there, and why the others are not."""
    there: dict[str, Installed] = {"causerie": Installed((sys.executable, str(DRIVERS / "with_causerie.py")))}
    missing: dict[str, str] = {}

    def look_for(name: str, finder: Callable[[], Installed]) -> None:
        try:
            there[name] = finder()
        except FailedError as error:
            missing[name] = str(error)

    look_for("llama-server", lambda: find_server(place))
    for name in PEERS:
        look_for(name, partial(find, name, install=install, retry=retry))
    return there, missing


def described(there: dict[str, Installed]) -> dict[str, dict[str, Any]]:
    """What results keep of the systems."""
    return {name: {**each.about, "differs": each.differs} for name, each in there.items()}
