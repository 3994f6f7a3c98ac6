"""What the tests of conversations share: samplers that dictate or fail, and a context driven by hand."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie import llama

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from causerie import Conversation, Engine

# What makes the logits equal to the last bit, whatever else a step evaluates and in whichever cells: llama.cpp's flash
# attention on the CPU, below the 64 tokens at which it takes another path. Without it, the order of sums follows the
# cells.
EXACT: dict[str, Any] = {"n_threads": 1, "flash_attn": "enabled", "n_ubatch": 32}
HOT = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
# Joined emoji, flags, skin tones, CJK, combining marks: what tokens of bytes cut anywhere.
CHARACTERS = "👩‍🚀 漢字かな 🏳️‍🌈👍🏽 é ñ 한국 🇫🇷."


class Dictation:
    """A sampler that lets the model say a text, token by token, and then end its turn."""

    def __init__(self, engine: Engine, text: str, *, end: bool = True) -> None:
        vocab = engine.model.vocab
        self.ids = vocab.tokenize(text, parse_special=False, add_special=False).tolist()
        if end:
            self.ids.append(vocab.eos)
        self.calls = 0

    def __call__(self, row: NDArray[np.float32]) -> None:
        token = self.ids[min(self.calls, len(self.ids) - 1)]
        self.calls += 1
        row[:] = -np.inf
        row[token] = 0


class FailingAt:
    """A sampler that raises instead of choosing its k-th token."""

    def __init__(self, k: int, error: type[BaseException] = ZeroDivisionError) -> None:
        self.left = k
        self.error = error

    def __call__(self, row: NDArray[np.float32]) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error("the sampler's own")


class Gate:
    """A sampler that tells that a token is being chosen; from the k-th one on it waits to be let through."""

    def __init__(self, k: int = 0) -> None:
        self.left = k
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, row: NDArray[np.float32]) -> None:
        self.left -= 1
        if self.left < 0:
            self.reached.set()
            assert self.open.wait(60)


class Oracle:
    """A context of its own, fed token by token: what any conversation must equal, to the last bit."""

    def __init__(self, model: llama.Model) -> None:
        self.model = model
        self._context = llama.Context(model, n_ctx=1024, **EXACT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.close()

    def continuation(self, prompt: Sequence[int], n: int) -> tuple[list[int], list[NDArray[np.float32]]]:
        """The likeliest tokens behind a prompt, at most n, and the logits each was chosen from."""
        self._context.memory.clear()
        batch = llama.Batch(1024)
        batch.add_sequence(np.asarray(prompt, np.int32), pos0=0, seq=0)
        ids: list[int] = []
        rows: list[NDArray[np.float32]] = []
        while len(ids) < n:
            self._context.decode(batch)
            rows.append(self._context.logits().copy())
            token = int(np.argmax(rows[-1]))
            if self.model.vocab.is_eog(token):
                break
            ids.append(token)
            batch.clear()
            batch.add(token, len(prompt) + len(ids) - 1, output=True)
        return ids, rows

    def text(self, prompt: Sequence[int], n: int) -> str:
        """What they say."""
        return self.model.vocab.detokenize(self.continuation(prompt, n)[0], special=False)


def kill(engine: Any) -> None:
    """End the helper, and wait until it is known to have ended: its threads go one after the other."""
    os.kill(engine.helper_pid, signal.SIGKILL)
    end = time.monotonic() + 15
    while not engine._remote.lost:
        assert time.monotonic() < end
        time.sleep(0.01)


def fresh(chat: Conversation, engine: Engine) -> Conversation:
    """A conversation with the same messages, in which nothing was generated."""
    return engine.conversation(messages=chat.messages)


def spoken(chat: Conversation) -> list[tuple[str, str]]:
    """Who said what."""
    return [(message.role, message.text) for message in chat.messages]
