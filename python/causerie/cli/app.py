"""Runs one command: chooses it, and turns whatever ends it into an exit code and at most one line on stderr."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from causerie.cli.arguments import build_parser
from causerie.cli.text import one_line
from causerie.errors import CauserieError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

__all__ = ["main"]

EXIT_ERROR = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_BROKEN_PIPE = 128 + 13  # SIGPIPE, which Windows has no name for


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `causerie`.

    Args:
        argv: the arguments; None: those of this process.

    Returns:
        0; 1 after an error; 130 after Ctrl-C; 141 where nobody reads the output any more.

    Raises:
        SystemExit: `--help` (code 0), or wrong usage (code 2).
    """
    _prepare_streams()
    parser = build_parser()
    args = parser.parse_args(argv)
    try:
        with _logging(verbose=getattr(args, "verbose", False)):
            code = _run(args, parser)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_BROKEN_PIPE
    except (CauserieError, ImportError, OSError, MemoryError) as error:
        if os.environ.get("CAUSERIE_DEBUG"):
            raise
        print(f"causerie: error: {_explain(error)}", file=sys.stderr)
        return EXIT_ERROR
    return code


def _run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if args.version:
        import causerie

        print(f"causerie {causerie.__version__}")
        return 0
    if args.command == "chat":
        from causerie.cli.chat import chat

        return chat(args)
    if args.command == "models":
        from causerie.cli.models import models

        return models(args)
    if args.command == "fit":
        from causerie.cli.fit import fit

        return fit(args)
    if args.command == "rpc-server":
        from causerie.cli.rpc_server import rpc_server

        return rpc_server(args, parser)
    if args.command is None:
        parser.error("a command is missing: chat, models, fit, rpc-server or doctor")
    from causerie.cli.doctor import doctor

    return doctor(as_json=args.json)


def _explain(error: BaseException) -> str:
    text = one_line(error)
    if isinstance(error, ImportError):
        return f"{text}; `causerie doctor` says what to do"
    return text


def _prepare_streams() -> None:
    """Models write any character, terminals know few: print a replacement rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _silence_stdout() -> None:
    """Python flushes stdout once more at exit, and would complain about the closed pipe there."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _logging(*, verbose: bool) -> Iterator[None]:
    logger = logging.getLogger("causerie")
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
