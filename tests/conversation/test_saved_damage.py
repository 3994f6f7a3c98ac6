"""A file that was changed in any way is refused, or gives the conversation that it was; the engine is as before."""

from __future__ import annotations

import json
import os
import random
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from spoiling import damaged, forged, sections

from causerie import Engine, StateError, StateWarning, TemplateError, UnsupportedError
from causerie.conversation.record import to_record
from causerie.files import write_container

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOADS = int(os.environ.get("CAUSERIE_FUZZ_LOADS", "150"))


@pytest.fixture(scope="module")
def quiet(model: Any) -> Any:
    with Engine(model, n_ctx=512, n_threads=1, max_resident=3) as engine:
        yield engine


@pytest.fixture(scope="module")
def saved(quiet: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("saved")
    chat = quiet.conversation(
        system="Answer in one sentence.", sampling={"stop": ["x"], "logit_bias": {5: False}}, thinking=False,
        template_kwargs={"k": [1, "a"]},
    )  # fmt: skip
    chat.send("Why is the sea salty?", max_tokens=9, temperature=0)
    chat.save(folder / "a")
    chat.send("And lakes?", max_tokens=9, temperature=0)
    chat.save(folder / "b")
    chat.close()
    return folder / "a", folder / "b"


def record(chat: Any) -> bytes:
    return to_record(chat.snapshot(cache=False), drop_functions=False)


def state(engine: Engine) -> tuple[int, ...]:
    stats = engine.stats()
    return stats.sequences, stats.resident, stats.parked, stats.running


def load(engine: Engine, path: Path) -> Any:
    """The conversation, or what it was refused with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StateWarning)
        try:
            return engine.load_conversation(path)
        except (StateError, TemplateError, UnsupportedError) as error:
            return error


def test_accidents(quiet: Engine, saved: tuple[Path, Path], tmp_path: Path) -> None:
    r, path = random.Random(5), tmp_path / "file"
    raw, other = (each.read_bytes() for each in saved)
    originals = [record(quiet.load_conversation(each)) for each in saved]
    before, refused = state(quiet), 0
    for _ in range(LOADS):
        path.write_bytes(damaged(raw, other, r))
        found = load(quiet, path)
        if isinstance(found, Exception):
            assert isinstance(found, StateError)
            refused += 1
        else:  # nothing was changed, or all of it
            assert record(found) in originals
            assert path.read_bytes() in {raw, other}
        del found
    assert refused > LOADS * 0.8
    assert state(quiet) == before


def test_forgeries(quiet: Engine, saved: tuple[Path, Path], tmp_path: Path) -> None:
    """What is taken is what the file says, to the last value; what makes no sense is refused."""
    r, path = random.Random(7), tmp_path / "file"
    found_sections = sections(saved[1])
    before, refused = state(quiet), 0
    for number in range(LOADS):
        wanted = forged(found_sections, path, r)
        found = load(quiet, path)
        if isinstance(found, Exception):
            refused += 1
        elif wanted is not None:
            got = json.loads(record(found))
            assert said(got) == said(wanted), number
        del found
    assert refused > LOADS / 3
    assert state(quiet) == before


def said(data: Any) -> Any:
    """What a record says, in one of the ways to say it; who wrote it, and what it calls its model, is left out."""
    left = {key: value for key, value in data.items() if key not in {"causerie", "model", "sampling", "messages"}}
    messages = [{key: value for key, value in message.items() if value is not None} for message in data["messages"]]
    return left, messages


def test_a_conversation_beside_it_is_not_touched(quiet: Engine, saved: tuple[Path, Path], tmp_path: Path) -> None:
    chat = quiet.conversation()
    first = chat.send("Tell me of a lighthouse.", max_tokens=9, temperature=0)
    raw = bytearray(saved[0].read_bytes())
    raw[-1] ^= 1
    (tmp_path / "file").write_bytes(raw)
    assert isinstance(load(quiet, tmp_path / "file"), StateError)
    again = chat.send("And then?", max_tokens=9, temperature=0)
    assert again.usage.cached_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(head=9), "head"),
        (lambda d: d.update(head=True), "not a int"),
        (lambda d: d["generated"].pop(), "entries of generated"),
        (lambda d: d["generated"].__setitem__(0, [5]), "generated"),
        (lambda d: d["generated"].__setitem__(2, [49152]), "no token 49152"),
        (lambda d: d["generated"].__setitem__(2, [-1]), "no token -1"),
        (lambda d: d["messages"].append({"role": "system", "content": ""}), "system"),
        (lambda d: d["messages"].append({"role": "king", "content": ""}), "king"),
        (lambda d: d["sampling"].update(warmth=1), "warmth"),
        (lambda d: d["sampling"].update(temperature=-1), "temperature"),
        (lambda d: d.update(overflow="explode"), "explode"),
        (lambda d: d.update(tool_choice="required"), "required"),
        (lambda d: d.update(template={"jinja": "{{", "bos_token": "", "eos_token": ""}), "template"),
        (lambda d: d.update(future=1), "future"),
        (lambda d: d.pop("thinking"), "thinking"),
        (lambda d: d["model"].update(fingerprint="0" * 32), "another model"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    quiet: Engine, saved: tuple[Path, Path], tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    found = sections(saved[0])
    data = json.loads(found["conversation"])
    change(data)
    write_container(tmp_path / "file", {**found, "conversation": json.dumps(data).encode()})
    with pytest.raises(StateError, match=message):
        quiet.load_conversation(tmp_path / "file")


@pytest.mark.parametrize(
    "names", [("tokens",), ("cache",), ("tokens", "cache"), ("conversation", "cache"), ("conversation", "more")]
)
def test_missing_and_unknown_sections_are_refused(
    quiet: Engine, saved: tuple[Path, Path], tmp_path: Path, names: tuple[str, ...]
) -> None:
    found = {**sections(saved[0]), "more": b""}
    write_container(tmp_path / "file", {name: found[name] for name in names})
    with pytest.raises(StateError):
        quiet.load_conversation(tmp_path / "file")


def test_what_is_evaluated_of_another_conversation_is_not_used(
    quiet: Engine, saved: tuple[Path, Path], tmp_path: Path
) -> None:
    """Ids and cache belong together; those of another conversation are no beginning of this one's prompt."""
    mine = sections(saved[0])
    stranger = quiet.conversation(system="Sing.")
    stranger.send("A song about bread.", max_tokens=9, temperature=0)
    stranger.save(tmp_path / "other")
    theirs = sections(tmp_path / "other")
    write_container(tmp_path / "file", {**theirs, "conversation": mine["conversation"]})
    with Engine(quiet.model, n_ctx=512, n_threads=1) as fresh:
        chat, expected = fresh.load_conversation(tmp_path / "file"), fresh.load_conversation(saved[0], cache="ignore")
        reply = chat.send("And?", max_tokens=9, temperature=0)
        assert reply.usage.cached_tokens < 10
        assert reply.text == expected.send("And?", max_tokens=9, temperature=0).text
    write_container(tmp_path / "file", {**mine, "cache": theirs["cache"]})
    with pytest.warns(StateWarning, match="belong"):
        quiet.load_conversation(tmp_path / "file")
