"""Backends that are dropped in as libraries of their own: found, chosen, and told when something is wrong with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import causerie

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
GGML = ROOT / "vendor/llama.cpp/ggml"
PREFIX, SUFFIX = ("ggml-", ".dll") if sys.platform == "win32" else ("libggml-", ".so")

REPORT = """
import json, logging, sys
seen = []
class Keep(logging.Handler):
    def emit(self, record): seen.append(record.getMessage())
log = logging.getLogger("causerie.llama")
log.addHandler(Keep()); log.setLevel("WARNING")
import causerie
from causerie import llama
found = {p.path.name: {**vars(p), "path": str(p.path)} for p in causerie.doctor().plugins}
names = [llama.ffi.string(llama.lib.ggml_backend_reg_name(llama.lib.ggml_backend_reg_get(i))).decode()
         for i in range(llama.lib.ggml_backend_reg_count())]
print(json.dumps({"plugins": found, "log": seen, "backends": names, "missing": dict(causerie.doctor().missing)}))
"""


def report(places: str, cwd: Path, **env: str) -> dict[str, Any]:
    """What a new process finds; nothing but the report is written, whatever is wrong."""
    result = subprocess.run(
        [sys.executable, "-c", REPORT], cwd=cwd, env={**os.environ, "CAUSERIE_BACKEND_PATH": places, **env},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def compile_plugin() -> Callable[..., Path]:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to make plugins with")

    def compiled(folder: Path, name: str, /, **defines: object) -> Path:
        chosen = {"NAME": f'"{name.upper()}"', "API": "GGML_BACKEND_API_VERSION"}
        chosen["COMMIT"] = f'"{causerie.build_info().llama_commit}"'
        chosen |= {key: str(value) for key, value in defines.items() if value is not None}
        flags = [f"-D{key}={value}" for key, value in chosen.items() if defines.get(key, "") is not None]
        folder.mkdir(exist_ok=True)
        target = folder / f"{PREFIX}{name}{SUFFIX}"
        source = Path(__file__).parent / "programs/plugin.c"
        includes = [f"-I{GGML / 'include'}", f"-I{GGML / 'src'}"]
        subprocess.run([compiler, "-shared", "-fPIC", *includes, *flags, source, "-o", target], check=True)
        return target

    return compiled


def test_a_plugin_is_found_in_each_folder_and_as_a_file(compile_plugin: Callable[..., Path], tmp_path: Path) -> None:
    compile_plugin(tmp_path / "a folder", "one")
    two = compile_plugin(tmp_path / "other", "two", SCORE=7)
    places = os.pathsep.join([str(tmp_path / "a folder"), "", str(two)])
    found = report(places, tmp_path)
    assert [plugin["used"] for plugin in found["plugins"].values()] == [True, True]
    assert [plugin["score"] for plugin in found["plugins"].values()] == [1, 7]
    assert {"ONE", "TWO", "CPU"} <= set(found["backends"])
    assert found["log"] == []


@pytest.mark.parametrize(
    ("defines", "problem"),
    [
        ({"COMMIT": None}, "it is no plugin of causerie"),
        ({"COMMIT": '"0123abc"'}, "it is of llama.cpp 0123abc, and not of "),
        ({"SCORE": 0}, "it does not work on this machine"),
        ({"FAILS": 1}, "ggml_backend_init returned NULL"),
        ({"API": 1}, "incompatible API version"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_told_in_doctor_and_log(
    compile_plugin: Callable[..., Path], tmp_path: Path, defines: dict[str, object], problem: str
) -> None:
    path = compile_plugin(tmp_path, "vulkan", **defines)
    found = report(str(tmp_path), tmp_path)
    plugin = found["plugins"][path.name]
    assert not plugin["used"]
    assert problem in plugin["problem"]
    assert "VULKAN" not in found["backends"]
    assert f"the backend in {path} is not used: {plugin['problem']}" in found["log"]
    assert plugin["problem"] in found["missing"]["vulkan"]


def test_what_is_no_library_is_told(tmp_path: Path) -> None:
    path = tmp_path / f"{PREFIX}junk{SUFFIX}"
    path.write_bytes(b"no library")
    found = report(os.pathsep.join([str(tmp_path), str(tmp_path / "absent"), str(tmp_path / "x.txt")]), tmp_path)
    problems = {name: plugin["problem"] for name, plugin in found["plugins"].items()}
    assert problems[path.name]
    assert str(path) in problems[path.name] or sys.platform == "win32"
    assert problems["absent"] == problems["x.txt"] == f"no plugin is there ({PREFIX}*{SUFFIX})"
    assert len(found["log"]) == 3


def test_the_best_of_a_kind_in_the_first_folder_that_has_one(
    compile_plugin: Callable[..., Path], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for variant, score in (("a", 3), ("b", 9), ("c", 5), ("d", 0)):
        compile_plugin(first, f"kind-{variant}", SCORE=score)
    compile_plugin(first, "kind-e", SCORE=100, FAILS=1)
    compile_plugin(second, "kind-f", SCORE=99)
    plugins = report(os.pathsep.join([str(first), str(second)]), tmp_path)["plugins"].values()
    assert [plugin["variant"] for plugin in plugins if plugin["used"]] == ["b"]
    assert [plugin["variant"] for plugin in plugins if plugin["problem"]] == ["e"]


def test_nothing_is_loaded_from_the_current_folder(compile_plugin: Callable[..., Path], tmp_path: Path) -> None:
    path = compile_plugin(tmp_path, "one")
    found = report("", tmp_path, GGML_BACKEND_PATH=str(path))
    assert path.name not in found["plugins"]
    assert "ONE" not in found["backends"]
    assert path.name in report(".", tmp_path)["plugins"]


@pytest.mark.skipif(
    causerie.build_info().flags.get("GGML_BACKEND_DL") == "ON", reason="the CPU backend is a plugin in this build"
)
def test_a_backend_that_is_compiled_in_is_not_loaded_again(compile_plugin: Callable[..., Path], tmp_path: Path) -> None:
    path = compile_plugin(tmp_path, "cpu-b", SCORE=1000)
    compile_plugin(tmp_path, "cpu-a", SCORE=3)
    found = report(str(tmp_path), tmp_path)
    assert {name: plugin["problem"] for name, plugin in found["plugins"].items() if plugin["problem"]} == {
        path.name: "the backend cpu is compiled in"
    }
    assert found["backends"].count("CPU") == 1
