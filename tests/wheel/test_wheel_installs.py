"""The portable wheel in fresh environments of every Python there is here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from installed import Installed, interpreters

if TYPE_CHECKING:
    from pathlib import Path

CHAT = """
import sys, causerie
with causerie.Engine(sys.argv[1], n_ctx=512) as engine:
    chat = engine.conversation()
    print(chat.send("Name three colours.", max_tokens=24, temperature=0).text)
    print(chat.send("And one more.", max_tokens=8, temperature=0).usage.cached_tokens > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(interpreters(), key=lambda v: int(v[2:])))
def test_it_installs_and_chats(version: str, wheel: Path, tmp_path: Path, smollm2_path: Path) -> None:
    fresh = Installed(tmp_path / "a path with spaces", interpreters()[version], wheel)
    facts = fresh.facts()
    assert facts["python"].startswith(version)
    assert facts["cpu_variant"] in facts["cpu_variants"]
    text, cached = fresh.run(CHAT, smollm2_path).rstrip().rsplit("\n", 1)
    assert "red" in text.lower()
    assert cached == "True"


def test_importing_it_writes_nothing_and_maps_one_variant(installed: Installed) -> None:
    code = (
        "import causerie.llama; print(open('/proc/self/maps').read() if __import__('sys').platform == 'linux' else '')"
    )
    maps = installed.run(code)
    mapped = {line.rsplit("/", 1)[1] for line in maps.splitlines() if "/libggml-cpu" in line}
    if sys.platform == "linux":
        assert mapped == {f"libggml-cpu-{installed.facts()['cpu_variant']}.so"}
