#!/usr/bin/env python3
"""Fill the git submodule vendor/llama.cpp with the commit that this repository pins.

The sources, in this order: what git already holds, the submodule's own host, and the source distribution of
llama-cpp-python on PyPI, which carries llama.cpp's git object store. Whichever it is, git checks the content: the
pinned commit is a hash over every file.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUBMODULE = "vendor/llama.cpp"
PROBE_SECONDS = 20.0  # how long a host may take to answer at all
FETCH_SECONDS = 600.0  # how long 40 to 80 MB may take
LOCAL_SECONDS = 300.0  # git at work on local files

# All that is taken out of an archive; no such name can lead out of the folder it is written to.
STORE_FILE = re.compile(r"shallow|objects/[0-9a-f]{2}/[0-9a-f]{38}|objects/pack/pack-[0-9a-f]{40}\.(?:pack|idx)")
# No git process of ours may live on in the background: it would hold the lock, and work on files that we discard.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
# Set in git hooks; they would make our commands act on another repository or index.
HOOK_VARIABLES = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}


class ProvisionError(Exception):
    """One way to fill the submodule, or all of them, did not work."""


@dataclass(frozen=True)
class Sdist:
    """A source distribution on PyPI that holds a git object store with llama.cpp."""

    project: str
    version: str
    sha256: str

    @property
    def root(self) -> str:
        """Name of the archive's one top folder."""
        return f"{self.project.replace('-', '_')}-{self.version}"

    @property
    def filename(self) -> str:
        """Name of the archive, on PyPI and in the cache."""
        return f"{self.root}.tar.gz"


SDIST = Sdist(
    project="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
)


@dataclass(frozen=True)
class Checkout:
    """The git checkout whose submodule is to be filled."""

    root: Path

    def git(self, *arguments: str, timeout: float = LOCAL_SECONDS) -> str:
        """Run git in the top folder and return what it prints."""
        return run(*GIT, *arguments, cwd=self.root, timeout=timeout)

    def pin(self) -> str:
        """The commit that our index records for the submodule."""
        mode, _, rest = self.git("ls-files", "--stage", "--", SUBMODULE).partition(" ")
        if mode != "160000":
            raise ProvisionError(f"{SUBMODULE} is not a submodule in the index of {self.root}")
        return rest.split()[0]

    def url(self) -> str:
        """Where the submodule comes from, as .gitmodules or this checkout's own configuration says."""
        self.git("submodule", "--quiet", "init", SUBMODULE)
        return self.git("config", "--get", f"submodule.{SUBMODULE}.url")

    def path_in_git(self, name: str) -> Path:
        """The file or folder of that name in the git directory."""
        return self.root / self.git("rev-parse", "--git-path", name)

    def head(self) -> str | None:
        """The commit that the submodule is at; None where it is not filled."""
        try:
            return self.git("-C", SUBMODULE, "rev-parse", "--verify", "--quiet", "HEAD")
        except ProvisionError:
            return None

    def changes(self) -> list[str]:
        """The submodule's files that are not as its commit has them."""
        return self.git("-C", SUBMODULE, "status", "--porcelain").splitlines()

    def discard(self) -> None:
        """Remove the submodule's files and its git directory."""
        # Through a temporary folder, whose removal copes with git's read-only files on Windows.
        with tempfile.TemporaryDirectory(prefix="causerie-", dir=self.path_in_git(".")) as trash:
            for number, folder in enumerate((self.path_in_git(f"modules/{SUBMODULE}"), self.root / SUBMODULE)):
                if folder.exists():
                    shutil.move(folder, Path(trash) / str(number))

    def discard_interrupted(self) -> None:
        """Discard a fill that was interrupted, which git by itself would not recover from.

        git writes the index at the end of a checkout: a git directory without one never had a complete checkout, so
        that nothing of a person's own can be in it.
        """
        git_dir = self.path_in_git(f"modules/{SUBMODULE}")
        if git_dir.exists() and not (git_dir / "index").exists():
            say(f"{SUBMODULE}: an earlier run was interrupted; starting again")
            self.discard()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Let one run at a time fill this checkout.

        The commands that run() starts inherit the lock: where this process is killed, the next run waits for the git
        that is still at work. The system releases it with the last of them.
        """
        with self.path_in_git("causerie-provision.lock").open("wb") as file:
            os.set_inheritable(file.fileno(), True)
            lock_file(file)
            yield


def say(message: str) -> None:
    """Tell what happens, at once also where the output is a pipe."""
    print(message, flush=True)


def lock_file(file: BinaryIO) -> None:
    """Wait for an exclusive lock on an open file; closing the file releases it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{SUBMODULE}: waiting for another run to end")
            fcntl.flock(file, fcntl.LOCK_EX)


def run(*command: str, cwd: Path, timeout: float) -> str:
    """Run a command that must not ask anything and must not hang; return its output without the last line's end."""
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": ""}
    # An empty submodule folder has no .git of its own; git must not take our repository for it.
    environment["GIT_CEILING_DIRECTORIES"] = str(cwd / Path(SUBMODULE).parent)
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # its own process group, for stop()
            close_fds=False,  # it inherits the lock, the one file that is inheritable
        )
    except FileNotFoundError as error:
        raise ProvisionError(f"{command[0]} is not installed") from error
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        raise ProvisionError(f"no result after {timeout:.0f} seconds") from None
    except BaseException:
        stop(process)
        raise
    if process.returncode != 0:
        raise ProvisionError(reason(errors) or f"{command[0]} ended with status {process.returncode}")
    return output.rstrip("\n")


def stop(process: subprocess.Popen[str]) -> None:
    """End a command together with the helpers it started (git-remote-https, pip's build environment)."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGTERM)  # not SIGKILL: git removes its half-made files
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def reason(errors: str) -> str:
    """The line of git's or pip's error output that says why: the first marked as an error, else the last."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(("fatal:", "error:"))]
    return next(iter(marked or lines[-1:]), "")


def fill_from_git_dir(checkout: Checkout, pin: str) -> None:
    """Check out a commit that git already holds, after `git submodule deinit` or a change of branches."""
    git_dir = checkout.path_in_git(f"modules/{SUBMODULE}")
    checkout.git("--git-dir", str(git_dir), "cat-file", "-e", f"{pin}^{{commit}}")
    checkout.git("submodule", "--quiet", "update", "--init", "--no-fetch", SUBMODULE)


def fill_from_host(checkout: Checkout, url: str) -> None:
    """Fetch the pinned commit alone from where the submodule lives."""
    limits = ("-c", "http.lowSpeedLimit=1000", "-c", f"http.lowSpeedTime={PROBE_SECONDS:.0f}")
    checkout.git(*limits, "ls-remote", "--quiet", url, "HEAD", timeout=PROBE_SECONDS)
    update = ("submodule", "--quiet", "update", "--init", "--depth", "1", SUBMODULE)
    checkout.git(*limits, *update, timeout=FETCH_SECONDS)


def fill_from_sdist(checkout: Checkout, url: str, pin: str, archive: Path, sdist: Sdist) -> None:
    """Let git fetch the pinned commit from the object store in a source distribution."""
    with tempfile.TemporaryDirectory(prefix="causerie-") as folder:
        store = Path(folder) / "llama.cpp.git"
        unpack_store(archive, sdist, store)
        checkout.git("init", "--quiet", "--bare", str(store))
        try:
            checkout.git("--git-dir", str(store), "update-ref", "refs/heads/master", pin)
        except ProvisionError as error:
            raise ProvisionError(f"it holds another commit than {pin}") from error
        checkout.git("--git-dir", str(store), "symbolic-ref", "HEAD", "refs/heads/master")
        # git hashes each object that comes through file://; from a bare path it would link them unread.
        rewrite = ("-c", "protocol.file.allow=always", "-c", f"url.{store.as_uri()}.insteadOf={url}")
        checkout.git(*rewrite, "submodule", "--quiet", "update", "--init", SUBMODULE)


def unpack_store(archive: Path, sdist: Sdist, store: Path) -> None:
    """Copy the objects of the git store in the archive to the folder `store`, and nothing else."""
    prefix = f"{sdist.root}/.git/modules/{SUBMODULE}/"
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.removeprefix(prefix)
            content = tar.extractfile(member) if member.isreg() and STORE_FILE.fullmatch(name) else None
            if content is None or name == member.name:
                continue
            target = store / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
    if not store.exists():
        raise ProvisionError(f"{archive.name} holds no git object store of llama.cpp")


def cache_dir() -> Path:
    """Where downloads are kept between runs and between clones."""
    if chosen := os.environ.get("CAUSERIE_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "causerie"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "causerie"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "causerie"


def cached_sdist(sdist: Sdist, cache: Path, *, offline: bool) -> Path:
    """The archive in the cache, downloaded first where it is missing or damaged."""
    archive = cache / sdist.filename
    if archive.exists():
        if has_checksum(archive, sdist.sha256):
            say(f"{SUBMODULE}: using {archive}")
            return archive
        say(f"{SUBMODULE}: {archive} is damaged (wrong SHA-256); not using it")
    if offline:
        raise ProvisionError(f"no intact {archive}")
    say(f"{SUBMODULE}: downloading {sdist.filename} with pip (73 MiB)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=cache) as folder:
        downloaded = download(sdist, Path(folder))
        downloaded.replace(archive)  # atomic: another run sees the whole file or none
    return archive


def download(sdist: Sdist, folder: Path) -> Path:
    """Download the archive with pip, which knows this system's package index, proxy and certificates."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{sdist.project}=={sdist.version} --hash=sha256:{sdist.sha256}\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", "download")
    # --no-binary for this project alone: pip also applies it to the build tools that it needs for the metadata.
    options = ("--no-deps", "--no-binary", sdist.project, "--require-hashes", "--dest", str(folder))
    run(*pip, *options, "--requirement", str(requirements), cwd=folder, timeout=FETCH_SECONDS)
    archive = folder / sdist.filename
    if not archive.exists() or not has_checksum(archive, sdist.sha256):
        raise ProvisionError(f"pip downloaded no {sdist.filename} with SHA-256 {sdist.sha256}")
    return archive


def has_checksum(file: Path, sha256: str) -> bool:
    """Whether the file's SHA-256 is the expected one."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == sha256


def is_filled(checkout: Checkout, pin: str) -> bool:
    """Whether the submodule is at the pinned commit; files of another origin are an error, whatever its commit."""
    head = checkout.head()
    changes = checkout.changes() if head else []
    if changes:
        listed = ", ".join(change.strip() for change in changes[:3]) + (", ..." if changes[3:] else "")
        raise ProvisionError(f"{SUBMODULE} has changed files ({listed}); --reset discards them and fills it anew")
    if not head and any((checkout.root / SUBMODULE).glob("*")):
        raise ProvisionError(f"{SUBMODULE} has files but no git repository; --reset discards them and fills it anew")
    return head == pin


def fill(checkout: Checkout, pin: str, sdist: Sdist, cache: Path, *, offline: bool) -> None:
    """Try each source until one gives the pinned commit."""
    url = checkout.url()

    def from_sdist() -> None:
        fill_from_sdist(checkout, url, pin, cached_sdist(sdist, cache, offline=offline), sdist)

    sources: dict[str, Callable[[], None]] = {f"{sdist.filename} from PyPI": from_sdist}
    if not offline:
        sources = {url: lambda: fill_from_host(checkout, url), **sources}
    with contextlib.suppress(ProvisionError):
        fill_from_git_dir(checkout, pin)
        return
    failures = []
    for name, source in sources.items():
        say(f"{SUBMODULE}: trying {name}")
        try:
            source()
        except (ProvisionError, OSError) as error:
            say(f"{SUBMODULE}: {error}")
            failures.append(f"\n  {name}: {error}")
        else:
            return
    raise ProvisionError(
        f"{SUBMODULE} could not be filled with commit {pin}; tried:{''.join(failures)}\n"
        f"Go where one of them can be reached, or put {sdist.filename} (SHA-256 {sdist.sha256}) into {cache}."
    )


def provision(
    root: Path, sdist: Sdist, cache: Path, *, offline: bool = False, reset: bool = False, quiet: bool = False
) -> None:
    """Make vendor/llama.cpp hold the pinned commit; do nothing where it does already.

    Raises:
        ProvisionError: no source gave that commit, or a person's changes are in the way.
    """
    if not (root / ".git").exists():
        if not (root / SUBMODULE / "CMakeLists.txt").exists():
            raise ProvisionError(f"{SUBMODULE} is empty, and {root} is no git checkout that says how to fill it")
        if not quiet:
            say(f"{SUBMODULE}: came with these sources")
        return
    checkout = Checkout(root)
    pin = checkout.pin()
    with checkout.lock():
        if reset:
            checkout.discard()
        checkout.discard_interrupted()
        if is_filled(checkout, pin):
            if not quiet:
                say(f"{SUBMODULE}: already at {pin}")
            return
        fill(checkout, pin, sdist, cache, offline=offline)
        if not is_filled(checkout, pin):
            raise ProvisionError(f"{SUBMODULE} is at {checkout.head()} after the fill, not at {pin}")
        say(f"{SUBMODULE}: filled with {pin}")


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--offline", action="store_true", help="use only what this machine holds already")
    parser.add_argument("--reset", action="store_true", help=f"first discard what is in {SUBMODULE}")
    parser.add_argument("--quiet", action="store_true", help="say nothing where nothing has to be done")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # an exception, so that run() cleans up
    root = Path(__file__).resolve().parent.parent
    try:
        provision(root, SDIST, cache_dir(), offline=options.offline, reset=options.reset, quiet=options.quiet)
    except (ProvisionError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
