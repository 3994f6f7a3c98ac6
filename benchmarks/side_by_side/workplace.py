"""Where things are: the model, llama.cpp's programs, the systems; and running a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .peers import Installed

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "benchmarks" / "programs"
NATIVE = ROOT / "benchmarks" / "native"


class FailedError(Exception):
    """A program failed, or a system cannot do what a task asks for."""


@dataclass
class Workplace:
    """Attributes:
    model: the model's file.
    threads: for every system.
    installed: the systems that are there, by name.
    timeout: seconds that one run of one program may take.
    """

    model: Path
    threads: int
    installed: Mapping[str, Installed] = field(default_factory=dict)
    timeout: float = 1800.0

    @cached_property
    def tools(self) -> Path:
        """The folder with llama.cpp's own programs (`make bench` builds them).

        Raises:
            FailedError: they are not built.
        """
        chosen = os.environ.get("CAUSERIE_TOOLS_DIR")
        folders = [Path(chosen)] if chosen else sorted((ROOT / "build").glob("*/bin"))
        for folder in folders:
            if (folder / "llama-bench").exists():
                return folder
        raise FailedError("llama-bench is not built: run `make bench-tools`, or set CAUSERIE_TOOLS_DIR")

    def output_of(self, *command: object, given: str = "", folder: Path | None = None) -> str:
        """What a program prints.

        Raises:
            FailedError: it ended with an error, or took too long.
        """
        words = [str(word) for word in command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
        # In a session of its own, so that what a program has started ends with it.
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = process.communicate(given, timeout=self.timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise FailedError(f"{Path(words[0]).name} took more than {self.timeout:.0f} s") from None
            raise
        if process.returncode:
            last = (errors.strip() or output.strip()).splitlines()[-1:] or [f"status {process.returncode}"]
            raise FailedError(f"{Path(words[0]).name} failed: {last[0][:300]}")
        return output

    def figures_of(self, system: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """What a system's program prints when it does a task.

        Raises:
            FailedError: it failed, or has nothing that does it.
        """
        installed = self.installed[system]
        whole = {**task, "model": str(self.model), "threads": self.threads, "tools": installed.tools}
        if system != "causerie":
            whole["options"] = {}
        printed = self.output_of(*installed.command, given=json.dumps(whole), folder=installed.folder)
        figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
        if "unsupported" in figures:
            raise FailedError(figures["unsupported"])
        return figures
