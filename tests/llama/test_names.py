"""The names of the package: the rarer ones are loaded when first used, the same to a type checker, free before."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from causerie import llama

FOLDER = Path(llama.__file__).parent


def output_of(code: str, *arguments: object) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("name", llama._MODULES)
def test_a_name_can_be_used_first(name: str) -> None:
    assert output_of(f"from causerie import llama; print(llama.{name} is llama.{name})") == "True\n"


def test_dir_lists_every_name_before_it_is_loaded() -> None:
    assert set(llama.__all__) <= set(
        json.loads(output_of("import json, causerie.llama as l; print(json.dumps(dir(l)))"))
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'causerie\.llama' has no attribute 'Modell'"):
        _ = llama.Modell  # type: ignore[attr-defined]


def test_a_type_checker_reads_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse((FOLDER / "__init__.py").read_text())
    checked = {
        alias.name: node.module.removeprefix("causerie.llama.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert checked == llama._MODULES
    assert set(checked) < set(llama.__all__)


def test_no_module_takes_the_place_of_a_name() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} & set(llama.__all__) == set()


def test_modules_are_reachable_without_an_import_of_their_own() -> None:
    assert output_of("from causerie import llama; print(llama.sampler.Sampler.__name__)") == "Sampler\n"


def test_a_model_and_a_context_load_nothing_that_they_do_not_need(smollm2_path: Path) -> None:
    seldom = ["adapter", "control_vector", "quantization", "sampler", "state", "template"]
    code = (
        "import sys; from causerie import llama; m = llama.Model(sys.argv[1]); c = llama.Context(m, n_ctx=256)\n"
        f"print([name for name in {seldom} if 'causerie.llama.' + name in sys.modules])"
    )
    assert output_of(code, smollm2_path) == "[]\n"


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not tell")
def test_libraries_that_an_evaluation_does_not_call_hold_no_pages_of_their_files() -> None:
    code = "import causerie.llama; print(open('/proc/self/smaps').read())"
    resident = read_only = 0
    for line in output_of(code).splitlines():
        if "-" in line.split(" ", 1)[0]:
            read_only = ("llama-common" in line or "causerie-mtmd" in line) and line.split()[1] == "r-xp"
        elif line.startswith("Rss:") and read_only:
            resident += int(line.split()[1])
    assert resident <= 128  # KiB; relocating and initialising them touches 1700
