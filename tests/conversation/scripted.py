"""Replies with tool calls that the model is made to give, one after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from causerie import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from causerie import Engine, Message, Tool


class Script:
    """A sampler that lets the model say texts, one a reply, each to its end; then the last one again and again."""

    def __init__(self, engine: Engine, *texts: str) -> None:
        vocab = engine.model.vocab
        said = [vocab.tokenize(text, parse_special=False, add_special=False).tolist() for text in texts]
        self.ids = [[*ids, vocab.eos] for ids in said]
        self.place = (0, 0)

    def __call__(self, row: NDArray[np.float32]) -> None:
        reply, index = self.place
        token = self.ids[reply][index]
        last = min(reply + 1, len(self.ids) - 1)
        self.place = (last, 0) if index + 1 == len(self.ids[reply]) else (reply, index + 1)
        row[:] = -np.inf
        row[token] = 0


def tools(one: Callable[[], Any], two: Callable[[], Any]) -> list[Tool]:
    """Two tools that do this. Whatever it is, the model is told the same, which is evaluated once for all tests."""
    return [tool(name=name, description="")(function) for name, function in (("one", one), ("two", two))]


def calls(*names: str) -> str:
    """Calls of these tools as the generic format writes them."""
    written = {"tool_calls": [{"name": name, "arguments": {}} for name in names]}
    return json.dumps(written, separators=(",", ":"))


def told(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    """Roles and texts; of an assistant that calls tools, their names."""
    return [(m.role, " ".join(call.name for call in m.tool_calls) or m.text) for m in messages]
