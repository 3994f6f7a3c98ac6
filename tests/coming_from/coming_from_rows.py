"""Reads the tables of docs/coming-from.md, and runs what stands in their second column."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causerie import Chunk, Conversation, Engine, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
_ROW = re.compile(r"^\| `(?P<theirs>[^`]+)` \| (?:`(?P<ours>[^`]+)`|(?P<none>—)) \| (?P<note>.*)\|$")
_LOOP = re.compile(r"(?:async )?for (\w+) in ")


class Names:
    """What rows speak of, by name; what only some do is made when it is asked for."""

    def __init__(self, values: dict[str, Any], makers: dict[str, Callable[[], Any]]) -> None:
        self.values = values
        self._makers = makers

    def __getitem__(self, name: str) -> Any:
        if name not in self.values and name in self._makers:
            self.values[name] = self._makers[name]()
        return self.values[name]

    def of(self, code: str) -> dict[str, Any]:
        """Those that occur in it."""
        words = set(re.findall(r"\w+", code)) & (self.values.keys() | self._makers.keys())
        return {word: self[word] for word in words}


def table(heading: str) -> dict[str, str | None]:
    """The rows below a heading: their call, and ours, None where there is none."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    rows = [_ROW.match(line) for line in lines]
    assert all(rows), [line for line, row in zip(lines, rows, strict=True) if row is None]
    found = {row["theirs"]: row["ours"] for row in rows if row is not None}
    assert len(found) == len(lines) > 10
    return found


def value_of(code: str, names: Names) -> Any:
    """What a row's code gives: a loop, all that it goes through; an exception, if it raises."""
    if loop := _LOOP.match(code):
        code = f"[{loop[1]} {code}]"
    space = names.of(code)
    exec(f"async def row():\n{textwrap.indent(f'return {code}', '    ')}", space)
    return asyncio.run(space["row"]())


# ---- what rows are checked for ----


def reply(found: Any, names: Names) -> bool:
    return isinstance(found, Reply) and found.usage.completion_tokens > 0


def chunks(found: Any, names: Names) -> bool:
    return bool(found) and all(isinstance(chunk, Chunk) for chunk in found)


def conversation(found: Any, names: Names) -> bool:
    return isinstance(found, Conversation) and reply(found.send("Go on.", max_tokens=1), names)


def engine(found: Any, names: Names) -> bool:
    with found:
        return isinstance(found, Engine) and conversation(found.conversation(), names)


def told(*roles: str, chat: str = "chat") -> Callable[[Any, Names], bool]:
    """Whose messages are in the conversation then."""
    return lambda found, names: [message.role[0] for message in names[chat].messages] == [role[0] for role in roles]


def equals(expected: Any) -> Callable[[Any, Names], bool]:
    return lambda found, names: found == expected


def is_a(kind: type) -> Callable[[Any, Names], bool]:
    return lambda found, names: isinstance(found, kind)


def true(found: Any, names: Names) -> bool:
    return bool(found)


def ids(found: Any, names: Names) -> bool:
    return found.dtype == "int32" and len(found) > 0


def usable(found: Any, names: Names) -> bool:
    """Nothing is given back, and the conversation can be talked to."""
    return found is None and conversation(names["chat"], names)


def answered(found: Any, names: Names) -> bool:
    """A run: the tool was called, and its result is there for the model that replied."""
    roles = [message.role for message in names["aided"].messages]
    return reply(found, names) and roles[:3] == ["user", "assistant", "tool"] and roles[-1] == "assistant"


def written(found: Any, names: Names) -> bool:
    return found is None and names["file"].stat().st_size > 1000


def embeds(found: Any, names: Names) -> bool:
    """A context that gives an embedding."""
    llama, np = names["llama"], names["np"]
    with found:
        batch = llama.Batch(8)
        batch.add_sequence(np.array([10, 11], np.int32), pos0=0, seq=0)
        found.decode(batch)
        return found.embeddings_seq(0).shape == (names["model"].n_embd,)


def closed(found: Any, names: Names) -> bool:
    return found is None and names["chat"].closed
