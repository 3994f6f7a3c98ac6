"""The floors of DESIGN section 1: imports point down only, pointers stay on the second, files stay small."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "causerie"
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 350

# A module's floor is that of its longest prefix here. What has no floor of its own stands beside them all: it may be used
# by any, and uses nothing but itself.
FLOORS = {
    "causerie.errors": 0,
    "causerie._native": 1,
    "causerie._build": 2,
    "causerie.llama": 2,
    "causerie.files": 2,
    "causerie.models": 2,
    "causerie.engine": 3,
    "causerie.chat": 4,
    "causerie.conversation": 4,
    "causerie.cli": 5,
    "causerie.chat_model": 5,
    "causerie.integrations": 5,
    "causerie": 6,  # the package itself names what is in it
}
# Functions of llama.h and its kin are called here only.
NATIVE = {"causerie.llama", "causerie._build"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> int:
    """The floor of a module, by its longest known prefix."""
    name = module
    while name not in FLOORS:
        name, _, _ = name.rpartition(".")
    if name == "causerie" and module != "causerie":
        pytest.fail(f"{module} has no floor: add it to FLOORS, and to DESIGN section 1")
    return FLOORS[name]


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports, anywhere in it, also for annotations."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "causerie")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module and node.module.split(".")[0] == "causerie":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield whole if is_module(whole) else node.module


@pytest.mark.parametrize("path", FILES, ids=module_name)
class TestEachFile:
    def test_imports_point_down_only(self, path: Path) -> None:
        module = module_name(path)
        allowed = {"causerie"} if module.startswith("causerie.cli") else set()
        assert {name for name in imports(path) if floor(name) > floor(module)} <= allowed

    def test_pointers_stay_on_the_second_floor(self, path: Path) -> None:
        module = module_name(path)
        if any(module == name or module.startswith(f"{name}.") for name in NATIVE):
            return
        text = path.read_text()
        names = {
            alias.name
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("causerie")
            for alias in node.names
        }
        assert names.isdisjoint({"ffi", "lib", "_native"})
        assert "causerie._native" not in text
        assert not [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr == "ffi"
        ]

    def test_private_modules_of_the_second_floor_are_used_there_only(self, path: Path) -> None:
        if module_name(path).startswith("causerie.llama"):
            return
        private = {name for name in imports(path) if name.startswith("causerie.llama._")}
        assert private - {"causerie.llama._lib"} == set() or module_name(path) == "causerie._build"

    def test_begins_with_a_sentence_that_says_its_job(self, path: Path) -> None:
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring
        assert path.read_text().startswith('"""')

    def test_stays_small(self, path: Path) -> None:
        assert len(path.read_text().splitlines()) <= MOST_LINES


def test_the_bindings_are_imported_in_one_place() -> None:
    assert [module_name(p) for p in FILES if "causerie._native" in set(imports(p))] == ["causerie.llama._lib"]


def test_every_floor_that_exists_is_known() -> None:
    known = {name.split(".")[1] for name in FLOORS if "." in name}
    found = {p.stem for p in PACKAGE.glob("*.py")} | {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    assert found - {"__init__"} - known == set()


def test_names_of_test_files_differ() -> None:
    """pytest imports them by their bare names: two files of one name cannot be collected together."""
    paths = sorted(Path(__file__).parent.rglob("*.py"))
    names = [path.name for path in paths if path.name not in ("__init__.py", "conftest.py")]
    assert sorted(names) == sorted(set(names))
