"""Starting a helper process, and telling what became of it."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from causerie.engine._wire import Wire
from causerie.errors import HelperDiedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HelperProcess", "connected"]

# Not with -m: the helper looks for modules where this process does, and __main__ is nobody's script.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from causerie.engine._helper import main; main(sys.argv[1])"
)
_PATIENCE = 10.0  # seconds for a helper that was told to end
_LOG_BYTES = 4096


class HelperProcess:
    """A running helper. It ends when its wire is closed, as it is when this process ends in any way.

    Args:
        options: what its engine is made with; must be possible to pickle.

    Attributes:
        wire: to it.
        hello: what it told about its engine when that was open.

    Raises:
        Exception: what kept its engine from opening.
        HelperDiedError: it ended by itself.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        mine, its = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        try:
            self._process = _start(its, self._log)
        except BaseException:
            mine.close()
            self._log.close()
            raise
        finally:
            its.close()
        self.wire = Wire(mine)
        self.hello: dict[str, Any] = {}
        try:
            self._greet(options)
        except BaseException:
            self.kill()
            self.stop()
            raise

    def _greet(self, options: Mapping[str, Any]) -> None:
        logger = logging.getLogger("causerie")
        try:
            self.wire.send("open", dict(options), logger.getEffectiveLevel())
        except OSError:
            raise self.death("it was starting") from None
        while not self.hello:
            try:
                messages = self.wire.receive(0.1)  # a moment at a time, so that Ctrl-C ends it
            except EOFError:
                raise self.death("it was opening the model") from None
            for message in messages:
                if message[0] == "hello":
                    self.hello = message[1]
                elif message[0] == "failed":
                    raise message[1]
                elif message[0] == "log":
                    logging.getLogger(message[1]).log(message[2], "%s", message[3])

    def death(self, doing: str) -> HelperDiedError:
        """The exception that tells how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        code = self._process.returncode
        said = self._said()
        how = _how(code)
        message = f"the helper process of this engine {how} while {doing}"
        return HelperDiedError(f"{message}: {said}" if said else message, exit_code=code, log=said)

    def _said(self) -> str:
        """The end of what it wrote to stderr, on one line: llama.cpp's last words."""
        if self._log.closed:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return "; ".join(line.strip() for line in lines if line.strip())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def stop(self) -> None:
        """Let it end, and see to it that it does. Idempotent."""
        self.wire.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # it hangs in a driver, or waits for another machine
            self._process.kill()
            self._process.wait()
        self._log.close()


def _start(its: socket.socket, log: Any) -> subprocess.Popen[bytes]:
    where = json.dumps(sys.path)
    shared = sys.platform == "win32"  # there a process cannot inherit a socket: it is told how to open it
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "-" if shared else str(its.fileno()), where],
        stdin=subprocess.PIPE if shared else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # which would start a debugger, and take its time
        pass_fds=() if shared else (its.fileno(),),
    )
    if sys.platform == "win32" and process.stdin is not None:
        process.stdin.write(its.share(process.pid))
        process.stdin.close()
    return process


def connected(argument: str) -> Wire:
    """The helper's end of the wire, by the argument that it was started with."""
    if sys.platform == "win32":
        return Wire(socket.fromshare(sys.stdin.buffer.read()))
    return Wire(socket.socket(fileno=int(argument)))


def _how(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
