"""Drives the C compiler's preprocessor, for GCC, Clang and MSVC."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePath

from .errors import BindgenError

PROBE_NAME = "bindgen_probe.c"


@dataclass(frozen=True)
class Compiler:
    """A C compiler with the flags and include directories of the build."""

    command: str
    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()

    @property
    def is_msvc(self) -> bool:
        """Whether the compiler takes ``cl`` options."""
        return PurePath(self.command).stem.lower() in ("cl", "clang-cl")

    def find_header(self, name: str) -> Path:
        """Return the file that ``#include "name"`` would read."""
        for directory in self.include_dirs:
            if (directory / name).is_file():
                return directory / name
        places = ", ".join(str(directory) for directory in self.include_dirs) or "none given"
        raise BindgenError(f"{name}: no such header in the include directories ({places})")

    def preprocess(self, source: str) -> str:
        """Return ``source`` preprocessed as C, with line markers."""
        with tempfile.TemporaryDirectory(prefix="bindgen-") as folder:
            probe = Path(folder, PROBE_NAME)
            probe.write_text(source, encoding="utf-8")
            try:
                done = subprocess.run(self._arguments(probe), capture_output=True, check=False)
            except OSError as error:
                raise BindgenError(f"cannot run the C compiler {self.command!r}: {error}") from None
        if done.returncode != 0:
            raise BindgenError(_first_complaint(done.stderr.decode("utf-8", "replace")))
        return done.stdout.decode("utf-8", "replace")

    def _arguments(self, probe: Path) -> list[str]:
        if self.is_msvc:
            includes = [f"/I{directory}" for directory in self.include_dirs]
            return [self.command, "/nologo", "/E", "/TC", *self.flags, *includes, str(probe)]
        includes = [f"-I{directory}" for directory in self.include_dirs]
        return [self.command, "-E", "-x", "c", *self.flags, *includes, str(probe)]


def _first_complaint(stderr: str) -> str:
    """Return the compiler's first error with the source line it quotes below."""
    lines = stderr.splitlines()
    for number, line in enumerate(lines):
        if "error" in line:
            quoted = lines[number + 1].strip() if number + 1 < len(lines) else ""
            return f"cannot preprocess: {line.strip()}" + (f"\n  {quoted}" if quoted else "")
    return f"cannot preprocess: {stderr.strip() or 'the compiler gave no reason'}"
