"""The code in README.md, docs/ and examples/ runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{i}", code)
        for page in PAGES
        for i, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in blocks()])
def test_code_in_prose_runs(code: str, smollm2_path: Path) -> None:
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("path", [pytest.param(p, id=p.name) for p in sorted((ROOT / "examples").glob("*.py"))])
def test_example_runs(path: Path, smollm2_path: Path) -> None:
    result = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md", ROOT / "LICENSES.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
