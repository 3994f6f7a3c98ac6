"""The command line: headers in, ``_native.c``, guard, stub and ``bindings.json`` out."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from . import macros
from .cdef import write_cdef, write_module
from .compiler import PROBE_NAME, Compiler
from .declarations import Declarations, parse, select
from .definitions import mentioned_names
from .errors import BindgenError
from .guard import REDIRECT, include_lines, write_guard_header, write_guard_source
from .source import Chunk, split
from .stub import write_stub


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator; return the exit status of the process."""
    options = _parser().parse_args(arguments)
    try:
        print(generate(options))
    except BindgenError as error:
        print(f"bindgen: error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bindgen", description=__doc__)
    parser.add_argument("--module", required=True, help="full name of the extension module")
    parser.add_argument("--cc", required=True, help="the C compiler: gcc, clang or cl")
    parser.add_argument("--cflag", action="append", default=[], help="one compiler flag, as --cflag=-DX")
    parser.add_argument("-I", dest="include", action="append", default=[], type=Path, metavar="DIR")
    parser.add_argument("--root", action="append", default=[], type=Path, metavar="DIR",
                        help="take the types of headers below this directory too")  # fmt: skip
    for name, meaning in (
        ("guard", "header whose functions are called inside the C++ guard"),
        ("plain", "header whose functions are called directly"),
        ("callbacks", "header whose functions Python defines"),
    ):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="HEADER", help=meaning)
    parser.add_argument("--source", action="append", default=[], type=Path, metavar="DIR",
                        help="leave out guarded functions that no source below this directory mentions")  # fmt: skip
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--depfile", type=Path, help="write the headers that were read, for make or ninja")
    return parser


def generate(options: argparse.Namespace) -> str:
    """Write the outputs and return the summary line."""
    headers = [*options.guard, *options.plain, *options.callbacks]
    compiler = Compiler(options.cc, tuple(options.cflag), tuple(options.include))
    paths = {name: compiler.find_header(name) for name in headers}
    names = [n for path in paths.values() for n in macros.defined_names(_read(path))]
    chunks = split(compiler.preprocess(include_lines(headers) + "\n" + macros.probe(names)))
    found = _declarations(chunks, paths, options.root)
    if options.source:
        found.drop_undefined(frozenset(options.guard), mentioned_names(options.source))

    guarded = [f for f in found.functions if f.header in options.guard]
    preamble = f'{include_lines(headers)}\n#define {REDIRECT}\n#include "_guard.h"\n'
    cdef = write_cdef(found, frozenset(options.callbacks))
    stem = options.module.rpartition(".")[2]
    outputs = {
        f"{stem}.c": write_module(options.module, cdef, preamble),
        f"{stem}.pyi": write_stub(found, frozenset(options.callbacks)),
        "_guard.h": write_guard_header(guarded, options.guard),
        "_guard.cpp": write_guard_source(guarded, found.table),
        "bindings.json": _report(found),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in outputs.items():
        _write_if_changed(options.out / name, text)
    if options.depfile:
        _write_depfile(options.depfile, [options.out / name for name in outputs], chunks)
    return (
        f"bindgen: {len(found.functions)} functions ({len(guarded)} guarded), {len(found.types)} types, "
        f"{len(found.constants)} constants; left out: {len(found.deprecated)} deprecated, "
        f"{len(found.skipped)} skipped"
    )


def _declarations(chunks: list[Chunk], paths: dict[str, Path], roots: list[Path]) -> Declarations:
    """Select what the named headers declare, and what that needs from below the roots."""
    named = {_real(str(path)): name for name, path in paths.items()}
    below = tuple(_real(str(root)) + os.sep for root in roots)
    files = {chunk.file for chunk in chunks}
    kept = {file for file in files if _real(file) in named or _real(file).startswith(below)}
    exported = {file: named[_real(file)] for file in kept if _real(file) in named}
    items = parse([c for c in chunks if c.file in kept and not c.has_function_body])
    found = select(items, exported)
    found.constants += macros.integer_macros(chunks, set(found.constants))
    return found


@cache
def _real(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _report(found: Declarations) -> str:
    """Return the record of what was bound and what was left out, and why."""
    record = {
        "functions": [{"name": f.name, "header": f.header} for f in found.functions],
        "constants": found.constants,
        "deprecated": found.deprecated,
        "skipped": [{"name": name, "reason": reason} for name, reason in found.skipped.items()],
    }
    return json.dumps(record, indent=1) + "\n"


def _write_if_changed(path: Path, text: str) -> None:
    """Write a file only when that changes it, so that nothing is compiled again for nothing."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="\n")


def _write_depfile(path: Path, targets: list[Path], chunks: list[Chunk]) -> None:
    files = sorted({c.file for c in chunks if Path(c.file).is_file() and Path(c.file).name != PROBE_NAME})
    path.write_text(
        " ".join(_escape(str(target)) for target in targets)
        + ": "
        + " ".join(_escape(str(Path(file).absolute())) for file in files)
        + "\n",
        encoding="utf-8",
    )


def _escape(path: str) -> str:
    return path.replace("\\", "/").replace(" ", "\\ ")
