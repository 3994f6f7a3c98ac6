"""What leaves the checkout: a wheel that stands on its own, a source distribution that builds without git."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


# cmake and ninja of the running environment come before those of the system.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def run(*command: object, **kwargs: object) -> subprocess.CompletedProcess[str]:
    kwargs.setdefault("env", {**os.environ, "PATH": PATH})
    program = shutil.which(str(command[0]), path=PATH) or str(command[0])
    result = subprocess.run([program, *map(str, command[1:])], capture_output=True, text=True, timeout=580, **kwargs)  # type: ignore[call-overload]
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the checkout; the build folder of `make install` makes this a matter of seconds."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", folder, cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_is_abi3_and_holds_the_libraries_once(wheel: Path) -> None:
    assert "-cp310-abi3-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    libraries = [n for n in names if re.search(r"\.(so|dylib|dll)([.\d]*)$", n)]
    stems = {Path(n).name.split(".")[0] for n in libraries}
    assert {"_native", "libcauserie-llama", "libcauserie-ggml", "libcauserie-ggml-base"} <= stems
    assert len(stems) == len(libraries), libraries
    assert "causerie/py.typed" in names
    assert "causerie/_native.pyi" in names
    assert "causerie/licenses/LICENSE-llama.cpp" in names
    assert not [n for n in names if n.endswith((".h", ".cmake", ".a", ".pc"))]


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF headers with readelf")
def test_libraries_find_each_other_by_relative_paths(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for library in [*tmp_path.glob("causerie/*.so"), *tmp_path.glob("causerie/lib/*.so")]:
        dynamic = run("readelf", "-d", library).stdout
        paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)
        expected = "$ORIGIN/lib" if library.parent.name == "causerie" else "$ORIGIN"
        assert paths == [expected], library
        assert str(ROOT) not in dynamic


def test_an_installed_wheel_works_in_a_path_with_spaces_without_the_checkout(
    wheel: Path, tmp_path: Path, smollm2_path: Path
) -> None:
    home = tmp_path / "a path with spaces"
    venv.create(home / "venv", with_pip=True)
    python = home / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    code = (
        "import causerie, json, sys; from causerie import llama;"
        "model = llama.Model(sys.argv[1]); context = llama.Context(model, n_ctx=64); batch = llama.Batch(8);"
        "batch.add_sequence(model.vocab.tokenize('The sea'), 0, 0); context.decode(batch);"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else '';"
        "print(json.dumps([causerie.build_info().llama_commit, int(context.logits().argmax()), maps]))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_"))}
    commit, token, maps = json.loads(run(python, "-I", "-c", code, smollm2_path, cwd=home, env=environment).stdout)
    assert commit == (ROOT / "vendor/PIN").read_text().strip()
    assert token >= 0
    assert str(ROOT) not in maps
    assert "doctor" in run(python.parent / "causerie", "--help", env=environment).stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    archive.unlink()
    (unpacked,) = folder.iterdir()
    return unpacked


def test_the_sdist_holds_llama_cpp_and_no_git(sdist: Path) -> None:
    assert (sdist / "vendor/llama.cpp/include/llama.h").is_file()
    assert (sdist / "vendor/llama.cpp/ggml/src/ggml.c").is_file()
    assert (sdist / "vendor/llama.cpp/LICENSE").is_file()
    assert not list(sdist.rglob(".git"))
    assert sum(p.stat().st_size for p in sdist.rglob("*") if p.is_file()) < 120e6


@pytest.fixture(scope="module")
def facts(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a build of the source distribution would say of itself, configured without git and with an option."""
    build = tmp_path_factory.mktemp("configured")
    run(
        "cmake", "-S", sdist, "-B", build, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_DISABLE_FIND_PACKAGE_Git=ON", "-DGIT_EXECUTABLE=/nonexistent", "-DGGML_OPENMP=ON",
    )  # fmt: skip
    text = (build / "native/build_info.inc").read_text()
    return json.loads(text.removeprefix('R"json(').rpartition(')json"')[0])


def test_the_sdist_configures_without_git(facts: dict[str, object]) -> None:
    """Configuring needs git nowhere; compiling does not know git at all."""
    assert facts["llama_commit"] == (ROOT / "vendor/PIN").read_text().strip()


def test_options_for_cmake_reach_llama_cpp_and_build_info(facts: dict[str, dict[str, str]]) -> None:
    assert facts["flags"]["GGML_OPENMP"] == "ON"
    assert facts["flags"]["GGML_CPU"] == "ON"


def test_an_empty_submodule_stops_cmake_with_the_command_to_run(tmp_path: Path) -> None:
    for name in ("CMakeLists.txt", "cmake", "native"):
        source = ROOT / name
        shutil.copytree(source, tmp_path / name) if source.is_dir() else shutil.copy(source, tmp_path / name)
    (tmp_path / "vendor/llama.cpp").mkdir(parents=True)
    result = subprocess.run(
        [shutil.which("cmake", path=PATH) or "cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja"],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": PATH},
    )  # fmt: skip
    assert result.returncode != 0
    assert "python vendor/provision.py" in result.stderr


def test_the_pin_is_the_gitlink() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing to compare vendor/PIN with")
    listed = run("git", "ls-files", "--stage", "vendor/llama.cpp", cwd=ROOT).stdout
    assert (ROOT / "vendor/PIN").read_text().strip() == listed.split()[1]
