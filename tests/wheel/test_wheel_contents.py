"""What is in the portable wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from variants import VARIANTS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF headers with readelf")


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def dynamic(library: Path) -> str:
    return subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout


def test_its_tag_is_that_of_any_linux_with_a_new_enough_glibc(wheel: Path) -> None:
    auditwheel = shutil.which("auditwheel", path=str(sys.executable).rpartition("/")[0]) or shutil.which("auditwheel")
    if auditwheel is None:
        pytest.skip("auditwheel is not installed: pip install 'causerie[wheel]'")
    shown = subprocess.run([auditwheel, "show", wheel], check=True, capture_output=True, text=True).stdout
    (tag,) = re.findall(r'following platform tag: "(manylinux_\w+)"', " ".join(shown.split()))
    assert wheel.stem.split("-")[2:4] == ["cp310", "abi3"]
    assert tag in wheel.stem.split("-")[4].split(".")


def test_it_has_every_variant_and_nothing_links_one(unpacked: Path) -> None:
    libraries = {path.name: dynamic(path) for path in unpacked.rglob("*.so*")}
    assert {f"libggml-cpu-{variant}.so" for variant in VARIANTS} <= set(libraries)
    needed = {name for text in libraries.values() for name in re.findall(r"NEEDED.*\[(.*)\]", text)}
    assert {"libcauserie-ggml-base.so", "libcauserie-llama.so"} <= needed
    assert not [name for name in needed if name.startswith("libggml-")]
    own = {name for name in needed if "ggml" in name or "llama" in name or "mtmd" in name}
    assert own <= set(libraries)


def test_paths_stay_relative(unpacked: Path) -> None:
    for library in unpacked.rglob("*.so"):
        expected = "$ORIGIN/lib" if library.parent.name == "causerie" else "$ORIGIN"
        assert re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic(library)) == [expected], library
