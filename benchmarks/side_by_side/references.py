"""llama.cpp's own programs, and other measurements that are no conversations."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .workplace import NATIVE, PROGRAMS, ROOT, FailedError

if TYPE_CHECKING:
    from .case import Values
    from .workplace import Workplace


@dataclass(frozen=True)
class LlamaBench:
    """Tokens per second of llama-bench, without sampling: of `tokens` behind `depth` others, or of a prompt."""

    measure: str
    tokens: int = 0
    depth: int = 0
    prompt: int = 0
    differs: str = "no template, no sampling, no text; its prompt is in batches of 2,048"

    def run(self, place: Workplace) -> Values:
        text = place.output_of(
            place.tools / "llama-bench", "-m", place.model, "-p", self.prompt, "-n", self.tokens, "-d", self.depth,
            "-r", 1, "-t", place.threads, "-o", "json",
        )  # fmt: skip
        rate = float(json.loads(text)[0]["avg_ts"])
        return {self.measure: 1e3 * self.prompt / rate if self.prompt else rate}


@dataclass(frozen=True)
class BatchedBench:
    """Tokens per second from start to end of llama-batched-bench: so many sequences, with prompts of their own or one.

    Where the prompt is shared, its length is the beginning that all have in common and all questions behind it: the
    program has no option for questions of one's own, and so evaluates as many tokens.
    """

    measure: str
    sequences: int
    prompt: int
    tokens: int
    n_ctx: int
    shared: bool = False
    differs: str = "no template, no sampling, no text; all prompts are computed first, in batches of 2,048"

    def run(self, place: Workplace) -> Values:
        text = place.output_of(
            place.tools / "llama-batched-bench", "-m", place.model, "-c", self.n_ctx, "-b", 2048, "-ub", 512,
            "-t", place.threads, "-tb", place.threads, "-npp", self.prompt, "-ntg", self.tokens,
            "-npl", self.sequences, "--output-format", "jsonl", *(["-pps", "-kvu"] if self.shared else []),
        )  # fmt: skip
        line = next(line for line in text.splitlines() if line.startswith("{"))
        return {self.measure: self.sequences * self.tokens / float(json.loads(line)["t"])}


@dataclass(frozen=True)
class NativeLoad:
    """Loading by a C program that is linked to the very libraries that causerie uses."""

    n_ctx: int
    differs: str = "no Python, no template, no reply"

    def run(self, place: Workplace) -> Values:
        printed = place.output_of(native_load(), place.model, self.n_ctx, place.threads)
        load, context, resident = map(float, printed.split())
        return {"model loaded": load + context, "resident": resident / 1024}


@dataclass(frozen=True)
class Import:
    """Milliseconds that an import in Python takes, in a process of its own."""

    system: str
    statement: str
    differs: str = ""

    def run(self, place: Workplace) -> Values:
        installed = place.installed.get(self.system)
        python = sys.executable if installed is None else installed.command[0]
        code = f"import time; t = time.perf_counter(); {self.statement}; print(time.perf_counter() - t)"
        return {"import": 1e3 * float(place.output_of(python, "-c", code))}


@cache
def native_load() -> Path:
    """The C program programs/native_load.c, compiled.

    Raises:
        FailedError: there is no compiler, or it failed.
    """
    from causerie import llama

    libraries = Path(llama.__file__).parents[1] / "lib"
    if not libraries.is_dir():  # an editable install keeps them elsewhere
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
        libraries = next(Path(path).parent for path in mapped if "causerie-llama" in Path(path).name)
    includes = [ROOT / "vendor/llama.cpp/include", ROOT / "vendor/llama.cpp/ggml/include"]
    return compiled(
        PROGRAMS / "native_load.c", *(f"-I{path}" for path in includes), f"-L{libraries}", f"-Wl,-rpath,{libraries}",
        "-lcauserie-llama", "-lcauserie-ggml-base", "-lcauserie-ggml",
    )  # fmt: skip


@cache
def compiled(source: Path, *options: str) -> Path:
    """A program of ours in C, compiled for this machine into a folder that is removed in the end.

    Raises:
        FailedError: there is no compiler, or it failed.
    """
    import atexit
    import subprocess

    compiler = shutil.which("cc")
    if compiler is None:
        raise FailedError(f"{source.name} needs a C compiler (cc)")
    folder = tempfile.mkdtemp(prefix="causerie-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder, source.stem)
    command = [compiler, "-O3", "-march=native", "-pthread", str(source), "-o", str(program), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"{source.name} does not compile: {done.stderr.strip().splitlines()[0]}")
    return program


PROBE = NATIVE / "limits.c"
