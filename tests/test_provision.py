"""vendor/provision.py: what fills the llama.cpp submodule, from where, and what it says when nothing can.

A small repository stands for llama.cpp, and a handmade source distribution for the one on PyPI; no test needs a network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPT = REPOSITORY / "vendor" / "provision.py"
SUBMODULE = "vendor/llama.cpp"
PROJECT = "tiny-llama"

# An sdist's own build backend, so that pip can read the metadata without installing anything.
BACKEND = """
import pathlib
def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory, "tiny_llama-1.0.dist-info")
    folder.mkdir()
    folder.joinpath("METADATA").write_text("Metadata-Version: 2.1\\nName: tiny-llama\\nVersion: 1.0\\n")
    return folder.name
def build_wheel(*arguments, **options):
    raise NotImplementedError
build_sdist = build_wheel
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def load_script():
    spec = importlib.util.spec_from_file_location("provision", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["provision"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


provision = load_script()

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def plain_git(monkeypatch):
    """Git as on a new machine, except that a submodule may come from a local folder."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "PIP_"))]:
        monkeypatch.delenv(name)
    settings = {"protocol.file.allow": "always", "user.name": "Test", "user.email": "test@example.org"}
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (key, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)


def git(folder, *arguments):
    result = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return result.stdout.strip()


def commit_file(repository, name, text):
    (repository / name).write_text(text)
    git(repository, "add", name)
    git(repository, "commit", "-qm", name)
    return git(repository, "rev-parse", "HEAD")


def make_checkout(folder, url, commit):
    """A repository with a gitlink to that commit and a submodule that is not filled yet."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitmodules").write_text(f'[submodule "{SUBMODULE}"]\n\tpath = {SUBMODULE}\n\turl = {url}\n')
    move_pin(folder, commit)
    return folder


def move_pin(checkout, commit):
    git(checkout, "update-index", "--add", "--cacheinfo", f"160000,{commit},{SUBMODULE}")


def make_archive(folder, upstream, extra=()):
    """A source distribution that carries a shallow object store of upstream, and extra tar members."""
    folder.mkdir(exist_ok=True)
    archive = folder / "tiny_llama-1.0.tar.gz"
    store = folder / "store"
    if upstream:
        git(folder, "clone", "-q", "--bare", "--depth", "1", upstream.as_uri(), str(store))
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in {"pyproject.toml": PYPROJECT, "backend.py": BACKEND, "PKG-INFO": "Name: tiny-llama"}.items():
            add_text(tar, f"tiny_llama-1.0/{name}", text)
        if upstream:
            tar.add(store, f"tiny_llama-1.0/.git/modules/{SUBMODULE}")
        for member in extra:
            tar.addfile(member)
    shutil.rmtree(store, ignore_errors=True)
    return archive


def add_text(tar, name, text):
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    tar.addfile(member, io.BytesIO(text.encode()))


def sdist_of(archive):
    return provision.Sdist(PROJECT, "1.0", hashlib.sha256(archive.read_bytes()).hexdigest())


@pytest.fixture
def world(tmp_path):
    """A checkout whose submodule's host is away, and a cache that holds the source distribution."""
    upstream = tmp_path / "up stream"  # a space, as a path of a person may have
    upstream.mkdir()
    git(upstream, "init", "-q", "-b", "master")
    commit_file(upstream, "README", "first\n")
    pin = commit_file(upstream, "CMakeLists.txt", "project(tiny)\n")
    cache = tmp_path / "the cache"
    archive = make_archive(cache, upstream)
    checkout = make_checkout(tmp_path / "check out", (tmp_path / "away").as_uri(), pin)
    submodule = checkout / SUBMODULE
    return SimpleNamespace(
        upstream=upstream,
        pin=pin,
        cache=cache,
        archive=archive,
        sdist=sdist_of(archive),
        checkout=checkout,
        submodule=submodule,
    )


def fill(world, **options):
    provision.provision(world.checkout, world.sdist, world.cache, **options)


def assert_filled(world):
    assert git(world.submodule, "rev-parse", "HEAD") == world.pin
    assert git(world.submodule, "status", "--porcelain") == ""
    assert git(world.checkout, "submodule", "status").split()[0] == world.pin
    assert (world.submodule / "CMakeLists.txt").read_text() == "project(tiny)\n"


def test_the_submodules_own_host_comes_first(world, tmp_path):
    world.checkout = make_checkout(tmp_path / "online", world.upstream.as_uri(), world.pin)
    world.submodule = world.checkout / SUBMODULE
    world.archive.unlink()
    fill(world)
    assert_filled(world)


def test_the_source_distribution_fills_in_for_a_host_that_is_away(world, capsys):
    fill(world)
    assert_filled(world)
    said = capsys.readouterr().out
    assert f"trying {(world.checkout.parent / 'away').as_uri()}" in said
    assert f"filled with {world.pin}" in said


def test_the_remote_stays_the_real_one(world):
    fill(world)
    assert git(world.submodule, "remote", "get-url", "origin") == (world.checkout.parent / "away").as_uri()


def test_a_filled_submodule_is_left_alone(world, capsys):
    fill(world)
    world.archive.unlink()
    capsys.readouterr()
    fill(world)
    assert capsys.readouterr().out == f"{SUBMODULE}: already at {world.pin}\n"
    fill(world, quiet=True)
    assert capsys.readouterr().out == ""


def test_offline_asks_no_host_and_downloads_nothing(world, tmp_path, capsys, monkeypatch):
    world.checkout = make_checkout(tmp_path / "online", world.upstream.as_uri(), world.pin)
    world.archive.unlink()
    monkeypatch.setattr(provision, "download", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(provision.ProvisionError, match="no intact"):
        fill(world, offline=True)
    assert "trying file:" not in capsys.readouterr().out


def test_a_submodule_emptied_by_git_is_filled_from_what_git_holds(world):
    fill(world)
    git(world.checkout, "submodule", "deinit", "--force", SUBMODULE)
    world.archive.unlink()
    fill(world, offline=True)
    assert_filled(world)


def test_a_moved_pin_is_followed(world):
    fill(world)
    world.pin = commit_file(world.upstream, "NEWS", "news\n")
    move_pin(world.checkout, world.pin)
    world.sdist = sdist_of(make_archive(world.cache, world.upstream))
    fill(world)
    assert_filled(world)


@pytest.mark.parametrize("stage", ["before the fetch", "while files are written"])
def test_an_interrupted_fill_is_begun_again(world, stage):
    fill(world)
    git_dir = world.checkout / ".git" / "modules" / SUBMODULE
    (git_dir / "index").rename(git_dir / "index.lock")
    (world.submodule / "README").unlink()
    if stage == "before the fetch":
        shutil.rmtree(git_dir / "objects")
        (git_dir / "HEAD").unlink()
    fill(world, offline=True)
    assert_filled(world)


def test_two_runs_at_once_both_succeed(world):
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(fill, world) for _ in range(2)]:
            run.result()
    assert_filled(world)


def test_changed_files_are_an_error_until_reset(world):
    fill(world)
    (world.submodule / "README").write_text("mine\n")
    with pytest.raises(provision.ProvisionError, match=r"changed files \(M README\); --reset"):
        fill(world)
    assert (world.submodule / "README").read_text() == "mine\n"
    fill(world, reset=True)
    assert_filled(world)


def test_files_that_git_does_not_know_are_an_error_until_reset(world):
    world.submodule.mkdir(parents=True)
    (world.submodule / "CMakeLists.txt").write_text("copied by hand\n")
    with pytest.raises(provision.ProvisionError, match="no git repository; --reset"):
        fill(world)
    fill(world, reset=True)
    assert_filled(world)


def test_a_source_tree_without_git_uses_what_it_came_with(tmp_path, capsys):
    tree = tmp_path / "causerie-0.1.0"
    (tree / SUBMODULE).mkdir(parents=True)
    sdist = provision.Sdist(PROJECT, "1.0", "0" * 64)
    with pytest.raises(provision.ProvisionError, match="no git checkout"):
        provision.provision(tree, sdist, tmp_path)
    (tree / SUBMODULE / "CMakeLists.txt").touch()
    provision.provision(tree, sdist, tmp_path)
    assert "came with these sources" in capsys.readouterr().out


def test_a_damaged_archive_in_the_cache_is_not_used(world, capsys):
    world.archive.write_bytes(world.archive.read_bytes()[:-1])
    with pytest.raises(provision.ProvisionError, match="no intact"):
        fill(world, offline=True)
    assert "is damaged (wrong SHA-256)" in capsys.readouterr().out
    assert not (world.submodule / "CMakeLists.txt").exists()


def test_an_archive_of_another_commit_is_refused(world):
    move_pin(world.checkout, commit_file(world.upstream, "NEWS", "news\n"))
    with pytest.raises(provision.ProvisionError, match="holds another commit"):
        fill(world, offline=True)


def test_an_archive_without_a_store_is_refused(world):
    world.sdist = sdist_of(make_archive(world.cache, None))
    with pytest.raises(provision.ProvisionError, match="holds no git object store"):
        fill(world, offline=True)


@pytest.mark.parametrize(
    "name",
    [
        "../../../../../../evil",
        "objects/../../evil",
        "/evil",
        "config",
        "hooks/post-checkout",
        "objects/info/alternates",
    ],
)
def test_only_objects_are_taken_out_of_an_archive(world, tmp_path, name):
    prefix = f"tiny_llama-1.0/.git/modules/{SUBMODULE}/"
    archive = make_archive(tmp_path / "made", world.upstream, [tarfile.TarInfo(prefix + name), tarfile.TarInfo(name)])
    before = {path for path in tmp_path.rglob("*") if "store" not in path.parts}
    provision.unpack_store(archive, world.sdist, tmp_path / "store")
    assert {path for path in tmp_path.rglob("*") if "store" not in path.parts} == before
    assert {path.name for path in (tmp_path / "store").iterdir()} == {"objects", "shallow"}
    assert not (tmp_path / "store" / "objects" / "info").exists()


def test_links_are_not_taken_out_of_an_archive(world, tmp_path):
    link = tarfile.TarInfo(f"tiny_llama-1.0/.git/modules/{SUBMODULE}/objects/aa/{'b' * 38}")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive = make_archive(tmp_path / "made", world.upstream, [link])
    provision.unpack_store(archive, world.sdist, tmp_path / "store")
    assert not (tmp_path / "store" / "objects" / "aa" / ("b" * 38)).is_symlink()


def test_pip_downloads_once_into_the_cache(world, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", world.cache.as_uri())
    cache = tmp_path / "other cache"
    kept = provision.cached_sdist(world.sdist, cache, offline=False)
    assert kept.read_bytes() == world.archive.read_bytes()
    assert list(cache.iterdir()) == [kept]
    world.archive.unlink()
    assert provision.cached_sdist(world.sdist, cache, offline=False) == kept


def test_pip_refuses_an_archive_with_another_checksum(world, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", world.cache.as_uri())
    with pytest.raises(provision.ProvisionError, match=r"(?i)hash"):
        provision.cached_sdist(provision.Sdist(PROJECT, "1.0", "0" * 64), tmp_path / "other cache", offline=False)
    assert list((tmp_path / "other cache").iterdir()) == []


def test_the_command_ends_with_one_error_that_names_what_was_tried(tmp_path):
    checkout = make_checkout(tmp_path / "clone", (tmp_path / "away").as_uri(), "1" * 40)
    (checkout / "vendor").mkdir()
    shutil.copy(SCRIPT, checkout / "vendor")
    environment = {
        **os.environ,
        "CAUSERIE_CACHE_DIR": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    command = [sys.executable, checkout / "vendor" / "provision.py"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {SUBMODULE} could not be filled with commit {'1' * 40}; tried:\n")
    assert f"{(tmp_path / 'away').as_uri()}: fatal:" in result.stderr
    assert f"{provision.SDIST.filename} from PyPI: ERROR:" in result.stderr
    assert f"into {tmp_path / 'cache'}" in result.stderr


@pytest.mark.skipif(os.name == "nt", reason="uses a POSIX shell")
def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path):
    started = time.monotonic()
    with pytest.raises(provision.ProvisionError, match="no result after"):
        provision.run("sh", "-c", "sleep 60 & wait", cwd=tmp_path, timeout=0.2)
    assert time.monotonic() - started < 30


def test_a_missing_git_is_named(tmp_path):
    with pytest.raises(provision.ProvisionError, match="no-such-command is not installed"):
        provision.run("no-such-command", cwd=tmp_path, timeout=1)


@pytest.mark.parametrize("chosen", ["~/kept", "kept"])
def test_the_cache_folder_can_be_chosen(monkeypatch, chosen):
    monkeypatch.setenv("CAUSERIE_CACHE_DIR", chosen)
    assert provision.cache_dir() == Path(chosen).expanduser().absolute()


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a git checkout")
def test_the_recorded_pin_is_the_submodules_commit():
    gitlink = git(REPOSITORY, "ls-files", "--stage", SUBMODULE).split()[1]
    assert (REPOSITORY / "vendor" / "PIN").read_text().strip() == gitlink
