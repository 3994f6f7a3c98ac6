#!/usr/bin/env python3
"""Collect what a build with GGML_VULKAN=ON and its tests need on Debian and its relatives: `make vulkan-packages`.

The folder serves as VULKAN_SDK: headers of a Debian release that has new enough ones, which are unpacked there and
nowhere else, and links to the system's loader and glslc. Those two, a Vulkan driver that computes on the processor
(Mesa's lavapipe) and a compiler cache are installed where they are missing, if the user may do so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# With ccache, which llama.cpp's build uses where it is there, a second build compiles only what differs.
INSTALLED = ("mesa-vulkan-drivers", "libvulkan1", "glslc", "ccache")
# llama.cpp needs Vulkan headers from 1.4.301 or so on; Debian 12 has 1.3.239.
HEADERS = ("libvulkan-dev", "spirv-headers")
HEADERS_RELEASE = "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
STAMP = "packages.txt"


class ToolchainError(Exception):
    """What is needed cannot be collected here."""


def run(*command: str | Path, folder: Path | None = None) -> str:
    """What a command prints.

    Raises:
        ToolchainError: it failed; with its own words.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)
    if result.returncode:
        raise ToolchainError(f"{' '.join(map(str, command))}\n{(result.stderr or result.stdout).strip()}")
    return result.stdout


def require_apt() -> None:
    """Refuse systems that have none.

    Raises:
        ToolchainError: with what to do there.
    """
    for program in ("apt-get", "dpkg-deb", "dpkg-query"):
        if shutil.which(program) is None:
            raise ToolchainError(
                f"{program} is not here: this works on Debian and its relatives. Elsewhere install the Vulkan SDK "
                "(1.4 or newer) and a driver, and set VULKAN_SDK to the folder of the SDK"
            )


def install(packages: tuple[str, ...]) -> list[str]:
    """Install those that are missing, and return them.

    Raises:
        ToolchainError: there are such, and the user may not install them; with the command for who may.
    """
    status = "${db:Status-Status}"
    missing = [name for name in packages if not _prints(f"dpkg-query --show --showformat={status} {name}", "installed")]
    if not missing:
        return []
    if os.geteuid() != 0:
        raise ToolchainError(f"missing packages: sudo apt-get install --no-install-recommends {' '.join(missing)}")
    command = ("apt-get", "-o", "DPkg::Lock::Timeout=300", "--yes", "--no-install-recommends", "install", *missing)
    try:
        run(*command)
    except ToolchainError:  # lists that are missing or old
        run("apt-get", "update")
        run(*command)
    return missing


def _prints(command: str, text: str) -> bool:
    try:
        return run(*command.split()) == text
    except ToolchainError:
        return False


def mirror() -> str:
    """Where this machine's own packages come from.

    Raises:
        ToolchainError: not from Debian.
    """
    form = "--format=$(REPO_URI)"
    found = run("apt-get", "indextargets", form, "Created-By: Packages", "Origin: Debian", "Label: Debian").split()
    if not found or not KEYRING.exists():
        raise ToolchainError(
            f"no Debian archive among the sources of apt, or no {KEYRING}: install libvulkan-dev (1.4.301 or newer) "
            "and spirv-headers yourself; a build finds them without VULKAN_SDK"
        )
    return found[0]


def unpack_headers(folder: Path) -> None:
    """Fetch the packages of headers with an apt that has files of its own, and unpack them into the folder.

    Raises:
        ToolchainError: the archive cannot be reached, or lacks them.
    """
    source = mirror()
    with tempfile.TemporaryDirectory() as name:
        apt = Path(name)
        for part in ("lists/partial", "cache/archives/partial", "debs"):
            (apt / part).mkdir(parents=True)
        apt.chmod(0o755)
        (apt / "status").touch()
        (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {source} {HEADERS_RELEASE} main\n")
        settings = {
            "Dir::State": apt,
            "Dir::State::status": apt / "status",
            "Dir::Cache": apt / "cache",
            "Dir::Etc::sourcelist": apt / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",  # another user could not write into this folder
        }
        own = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        run("apt-get", *own, "update", "--error-on=any")
        run("apt-get", *own, "download", *HEADERS, folder=apt / "debs")
        for package in sorted((apt / "debs").glob("*.deb")):
            run("dpkg-deb", "--extract", package, apt / "root")
        for part in ("include", "share"):
            shutil.copytree(apt / "root" / "usr" / part, folder / part, symlinks=True)


def loader() -> Path:
    """The system's libvulkan.so.1.

    Raises:
        ToolchainError: there is none.
    """
    for line in run("dpkg-query", "--listfiles", "libvulkan1").splitlines():
        if line.endswith("/libvulkan.so.1"):
            return Path(line)
    raise ToolchainError("the package libvulkan1 has no libvulkan.so.1")


def collect(folder: Path) -> list[str]:
    """Install what is missing, fill the folder if it is not, and return what was done.

    Raises:
        ToolchainError: something cannot be had here; with what to do.
    """
    require_apt()
    done = [f"installed {name}" for name in install(INSTALLED)]
    stamp = folder / STAMP
    wanted = f"{HEADERS_RELEASE}: {' '.join(HEADERS)}\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        unpack_headers(folder)
        links = {folder / "lib" / "libvulkan.so": loader(), folder / "bin" / "glslc": Path("/usr/bin/glslc")}
        for link, target in links.items():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(target)
        stamp.write_text(wanted)
        done.append(f"unpacked {' and '.join(HEADERS)}")
    return done


def main() -> int:
    """Collect, and say what was done."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="is emptied and filled")
    folder = parser.parse_args().folder
    try:
        done = collect(folder)
    except (ToolchainError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: {', '.join(done) or 'there already'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
