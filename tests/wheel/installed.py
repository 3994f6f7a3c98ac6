"""causerie installed from a wheel, and programs that run on it."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def interpreters() -> dict[str, str]:
    """Every CPython that starts here, by its version."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    for minor in range(10, 20):
        name = f"3.{minor}"
        for candidate in [shutil.which(f"python{name}"), *sorted(versions.glob(f"{name}.*/bin/python"))]:
            works = candidate and subprocess.run(
                [candidate, "-c", f"import sys, venv, ctypes; assert sys.version_info[:2] == (3, {minor})"],
                check=False,
                capture_output=True,
            )
            if works and works.returncode == 0:
                found.setdefault(name, str(candidate))
    return found


class Installed:
    """An environment with the wheel in it."""

    def __init__(self, folder: Path, python: str, wheel: Path, *requirements: str, extra: str = "") -> None:
        subprocess.run([python, "-m", "venv", folder], check=True)
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        self.before: list[str] = []
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_", "CAUSERIE_B"))}
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        result = subprocess.run([*pip, what, *requirements], capture_output=True, text=True, env=self.environment)
        assert result.returncode == 0, result.stderr
        where = self.run("import causerie; print(causerie.__path__[0])").strip()
        self.package = Path(where)

    @property
    def libraries(self) -> Path:
        return self.package / "lib"

    def copy(self, folder: Path) -> Installed:
        """The same with a package of its own, of which files can be taken away."""
        other = copy.copy(self)
        other.package = folder / "causerie"
        shutil.copytree(self.package, other.package)
        other.environment = {**self.environment, "PYTHONPATH": str(folder)}
        return other

    def under(self, *before: str) -> Installed:
        """The same, run by a program that is given Python as its argument."""
        other = copy.copy(self)
        other.before = list(before)
        return other

    def process(
        self, *arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.before, str(self.python), *map(str, arguments)],
            cwd=cwd or self.python.parent, env={**self.environment, **(env or {})},
            capture_output=True, text=True, timeout=580,
        )  # fmt: skip

    def run(self, code: str, *arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """What a program writes; nothing may be on stderr."""
        result = self.process("-c", code, *arguments, cwd=cwd, env=env)
        errors = [line for line in result.stderr.splitlines() if not line.startswith("qemu-x86_64: warning: ")]
        assert (result.returncode, errors) == (0, [])
        return result.stdout

    def facts(self, **options: Any) -> dict[str, Any]:
        """`causerie doctor --json`."""
        result = self.process("-m", "causerie.cli", "doctor", "--json", **options)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        return found


def greedy(installed: Installed, model: Path, ids: Sequence[int], count: int) -> dict[str, Any]:
    """The tokens that a model goes on with and its first logits, by the primitives alone."""
    code = f"""
import json, sys
from causerie import build_info, llama
with llama.Model(sys.argv[1]) as model, llama.Context(model, n_ctx=64, n_threads=1, n_threads_batch=1) as context:
    batch = llama.Batch(64)
    batch.add_sequence({list(ids)}, 0, 0)
    tokens, first = [], None
    for position in range({len(ids)}, {len(ids)} + {count}):
        context.decode(batch)
        logits = context.logits()
        first = logits.tolist() if first is None else first
        tokens.append(int(logits.argmax()))
        batch.clear()
        batch.add(tokens[-1], position, output=True)
print(json.dumps({{"variant": build_info().cpu_variant, "tokens": tokens, "logits": first}}))
"""
    found: dict[str, Any] = json.loads(installed.run(code, model))
    return found
