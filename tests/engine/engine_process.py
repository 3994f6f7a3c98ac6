"""Programs that tests run in a process of their own: what they say is on stdout, and stderr must stay empty."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from causerie.engine import TokenEngine
from causerie.errors import ClosedError
from causerie.llama import Chooser, Model

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINE = None


class Slow:
    def token(self, chosen: object) -> bool:
        time.sleep(0.002)
        return False


def ids(n: int, seed: int) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randint(10, 120) for _ in range(n)]


def start(engine: TokenEngine, seed: int, n: int | None = None, sink: object = None):
    return engine.generate(engine.sequence(), ids(10, seed), chooser=Chooser(), max_tokens=n, sink=sink)


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except ClosedError:
        return True
    return False


def interrupt(engine: TokenEngine) -> None:
    """Ctrl-C in the main thread: there only, at a moment of its own; everybody else goes on."""
    want = start(engine, 1, 60)
    engine.wait(want)
    for leads in (True, False) * 3:
        other = start(engine, 1, 60, Slow())
        thread = threading.Thread(target=engine.wait, args=(other,))
        mine = start(engine, 2, None, Slow())
        if not leads:
            thread.start()
        threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            engine.wait(mine)
            caught = False
            time.sleep(0.2)
        except KeyboardInterrupt:
            caught = True
        assert caught or mine.done
        if leads:
            thread.start()
        engine.cancel(mine)
        thread.join(20)
        assert other.tokens == want.tokens, (other, want)
    print("fine")


def fork(engine: TokenEngine) -> None:
    """A child cannot use the engine, and is told so at once."""
    running = start(engine, 1)
    thread = threading.Thread(target=engine.wait, args=(running,), daemon=True)
    thread.start()
    time.sleep(0.02)
    child = os.fork()
    if not child:
        calls = (engine.sequence, engine.stats, lambda: engine.wait(running), lambda: start(engine, 2))
        code = sum(not refused(call) for call in calls)
        engine.cancel(running)
        engine.close()
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    engine.cancel(running)
    thread.join(20)
    print("fine")


def leave(engine: TokenEngine) -> None:
    """The interpreter ends while threads wait for tokens."""
    for seed in range(4):
        thread = threading.Thread(target=engine.wait, args=(start(engine, seed, None, Slow()),), daemon=True)
        thread.start()
    time.sleep(0.1)
    globals()["ENGINE"] = engine
    print("fine")


if __name__ == "__main__":
    name, path = sys.argv[1:]
    globals()[name](TokenEngine(Model(path), n_ctx=4096, n_threads=1))
