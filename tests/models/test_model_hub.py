"""Hub names, against a local server that speaks the Hub's protocol; each case in a process of its own.

huggingface_hub reads HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE when it is imported, hence the processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from causerie import models

pytest.importorskip("huggingface_hub")

CONTENT = b"GGUF" + random.Random(3).randbytes(400_000)
NAME = "hf:owner/repo:model.gguf"
COMMIT = "c" * 40
CODE = """
import json, sys
from causerie import models
seen, raised = [], json.loads(sys.argv[3])
def progress(done, total):
    seen.append((done, total))
    if raised and done: raise LookupError(raised)
try:
    answer = {"path": str(models.resolve(sys.argv[1], progress=progress, cache_dir=sys.argv[2] or None))}
except Exception as exc:
    hidden = exc.__context__ is None or exc.__suppress_context__
    answer = {"error": type(exc).__name__, "text": str(exc), "errno": getattr(exc, "errno", None), "hidden": hidden}
print(json.dumps({"seen": seen, **answer}))
"""


@dataclass
class Answer:
    """What the Hub has under one file name; ``status`` and ``code`` for a refusal, ``cuts`` breaks GETs in the middle."""

    content: bytes = CONTENT
    status: int = 200
    code: str | None = None
    etag: str | None = None
    linked_size: int | None = None
    cuts: int = 0


@dataclass
class Hub:
    """The server's state, and what it was asked."""

    files: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    address: str = ""

    def ranges(self) -> list[str | None]:
        """The Range header of every download of a file (the library asks for other things too)."""
        return [wanted for method, path, wanted in self.requests if method == "GET" and "/resolve/" in path]


def handler_for(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            wanted = self.headers.get("Range")
            hub.requests.append((self.command, self.path, wanted))
            name = self.path.partition("/owner/repo/resolve/main/")[2]
            missing = Answer(status=404, code="EntryNotFound" if name else "RepoNotFound")
            file = hub.files.get(name, missing)
            data = file.content if file.status == 200 else b""
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and body else 0
            self.send_response(206 if start else file.status)
            headers = {
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{file.etag or hashlib.sha256(file.content).hexdigest()}"',
                "X-Linked-Size": file.linked_size or len(file.content),
                "Content-Length": len(data) - start,
                "X-Error-Code": file.code,
                "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}" if start else None,
            }
            for key, value in headers.items():
                if value is not None and (file.status == 200 or key in ("Content-Length", "X-Error-Code")):
                    self.send_header(key, str(value))
            self.end_headers()
            if body:
                stop = len(data)
                if file.cuts > 0:
                    file.cuts -= 1
                    stop = (start + len(data)) // 2
                self.wfile.write(data[start:stop])
            self.close_connection = True

    return Handler


@pytest.fixture
def hub() -> Iterator[Hub]:
    state = Hub({"model.gguf": Answer()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_for(state)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()


Resolve = Callable[..., "dict[str, Any]"]


@pytest.fixture
def resolve(hub: Hub, tmp_path: Path) -> Resolve:
    """``models.resolve`` in a fresh process whose Hub is the local server, and whose home is this test's."""

    def call(name: str = NAME, *, raised: str = "", cache_dir: str = "", **env: str) -> dict[str, Any]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1"}
        environment = {**kept, **own, "PYTHONPATH": str(Path(models.__file__).parents[2]), **env}
        command = [sys.executable, "-c", CODE, name, cache_dir, json.dumps(raised)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        return {"stderr": done.stderr, **json.loads(done.stdout)}

    return call


def visible_files(tmp_path: Path) -> list[Path]:
    """What a program would find in the Hub's cache (older versions keep a hidden part, to resume from)."""
    return list((tmp_path / "hf").rglob("*.gguf"))


def test_a_file_is_fetched_once_and_silently(hub: Hub, resolve: Resolve, tmp_path: Path) -> None:
    first = resolve()
    assert Path(first["path"]).read_bytes() == CONTENT
    assert Path(first["path"]).is_relative_to(tmp_path / "hf")
    assert first["stderr"] == ""
    assert first["seen"][-1] == [len(CONTENT), len(CONTENT)]
    again = resolve()
    assert again["path"] == first["path"]
    assert again["seen"] == []
    assert hub.ranges() == [None]


def test_a_warm_cache_serves_without_a_network(hub: Hub, resolve: Resolve) -> None:
    path = resolve()["path"]
    asked = len(hub.requests)
    assert resolve(HF_HUB_OFFLINE="1")["path"] == path
    assert len(hub.requests) == asked
    assert resolve(HF_ENDPOINT="http://127.0.0.1:9")["path"] == path


def test_a_cold_cache_without_a_network_says_so(resolve: Resolve) -> None:
    got = resolve(HF_HUB_OFFLINE="1")
    assert got["error"] == "ModelLoadError"
    assert "not cached" in got["text"]
    assert "HF_HUB_OFFLINE" in got["text"]
    assert got["hidden"]


def test_another_cache_folder_may_be_asked_for(resolve: Resolve, tmp_path: Path) -> None:
    got = resolve(cache_dir=str(tmp_path / "mine"))
    assert Path(got["path"]).is_relative_to(tmp_path / "mine" / "hub")


def test_a_connection_cut_in_the_middle_is_resumed(hub: Hub, resolve: Resolve) -> None:
    """By the same call, or by the next where the library is too old to; it keeps what came in steps of 10 MB."""
    content = CONTENT * 60
    hub.files["model.gguf"] = Answer(content=content, cuts=1)
    got = resolve()
    if "error" in got:
        got = resolve()
    assert Path(got["path"]).read_bytes() == content
    whole, rest = hub.ranges()
    assert whole is None
    assert re.fullmatch(r"bytes=[1-9]\d*-", rest or "")
    assert got["seen"][-1] == [len(content), len(content)]


def test_another_size_than_promised_is_refused(hub: Hub, resolve: Resolve, tmp_path: Path) -> None:
    hub.files["model.gguf"].linked_size = len(CONTENT) + 1
    got = resolve()
    assert got["error"] == "ModelLoadError"
    assert str(len(CONTENT) + 1) in got["text"]
    assert visible_files(tmp_path) == []


def test_other_content_than_promised_is_refused_and_removed(hub: Hub, resolve: Resolve) -> None:
    promised = "a" * 64
    hub.files["model.gguf"].etag = promised
    got = resolve()
    assert got["error"] == "ModelLoadError"
    assert "arrived damaged" in got["text"]
    assert promised in got["text"]
    assert "error" in resolve(HF_HUB_OFFLINE="1"), "nothing of it is left in the cache"


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Answer(status=404, code="EntryNotFound"), "has no file 'model.gguf'"),
        (Answer(status=404, code="RepoNotFound"), "no repository owner/repo"),
        (Answer(status=401, code="GatedRepo"), "accept its terms"),
        (Answer(status=403, code="GatedRepo"), "accept its terms"),
        (Answer(status=401), "no repository owner/repo on the Hub, or it is private"),
    ],
)
def test_a_refusal_says_what_to_do(hub: Hub, resolve: Resolve, refusal: Answer, said: str) -> None:
    hub.files["model.gguf"] = refusal
    got = resolve()
    assert got["error"] == "ModelLoadError"
    assert said in got["text"]
    assert got["hidden"]


def test_an_exception_in_the_callback_ends_the_fetch(resolve: Resolve, tmp_path: Path) -> None:
    got = resolve(raised="enough")
    assert (got["error"], got["text"]) == ("LookupError", "enough")
    assert visible_files(tmp_path) == []
    assert "path" in resolve()


def test_a_cache_that_cannot_be_written_keeps_its_errno(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    got = resolve(cache_dir=str(tmp_path / "file"))
    assert got["error"] == "ModelLoadError"
    assert got["errno"]


def test_every_part_of_a_split_model_is_fetched_and_the_first_returned(hub: Hub, resolve: Resolve) -> None:
    parts = [f"big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for number, part in enumerate(parts):
        hub.files[f"Q4/{part}"] = Answer(content=CONTENT[: 100_000 * (number + 1)])
    got = resolve(f"hf:owner/repo:Q4/{parts[1]}")
    first = Path(got["path"])
    assert first.name == parts[0]
    assert sorted(path.name for path in first.parent.iterdir()) == parts
    assert got["seen"][-1] == [600_000, 600_000]
    assert {total for _, total in got["seen"]} == {600_000}


def test_a_split_model_with_a_missing_part_is_refused(hub: Hub, resolve: Resolve) -> None:
    hub.files["big-00001-of-00002.gguf"] = Answer()
    got = resolve("hf:owner/repo:big-00001-of-00002.gguf")
    assert got["error"] == "ModelLoadError"
    assert "has no file 'big-00002-of-00002.gguf'" in got["text"]


def test_without_the_library_the_extra_is_named(resolve: Resolve, tmp_path: Path, package_alone: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    environment = {**os.environ, "PYTHONPATH": str(package_alone)}
    command = [str(python), "-c", CODE, NAME, "", '""']
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)
    assert got["error"] == "UnsupportedError"
    assert "pip install causerie[hf]" in got["text"]
