"""LoRA adapters of conversations: each has its own, and they last as long as it does."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from lora_files import write_lora_for
from talking import EXACT, kill

from causerie import Adapter, BusyError, Engine, ModelLoadError, StateError
from causerie.files import Container, write_container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
QUESTION = "Why is the sea salty?"


@pytest.fixture(scope="session")
def files(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters that change what the model says."""
    folder = tmp_path_factory.mktemp("lora")
    return [
        write_lora_for(smollm2_path, folder / f"style{k}.gguf", seed=k, strength=0.15, rank=32, most=20, quantised=True)
        for k in range(2)
    ]


@pytest.fixture(scope="module")
def isolated(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, isolate=True, n_ctx=1024, **EXACT) as made:
        yield made


def answers(engine: Engine, sets: list[Any]) -> list[str]:
    """What each set answers, alone."""
    return [engine.conversation(adapters=adapters).send(QUESTION, **GREEDY).text for adapters in sets]


def test_each_conversation_has_its_own_with_a_scale(make_engine: Callable[..., Engine], files: list[Path]) -> None:
    sets: list[Any] = [(), files[0], [(files[0], 0.5)], [(files[0], 1.0), (files[1], 0.5)]]
    alone = [answers(make_engine(), [adapters])[0] for adapters in sets]
    assert len(set(alone)) == len(sets)
    engine = make_engine(n_ctx=1024)
    streams = [engine.conversation(adapters=adapters).stream(QUESTION, **GREEDY) for adapters in sets]
    assert [stream.reply.text for stream in streams] == alone  # together


def test_what_they_are_is_told(engine: Engine, files: list[Path]) -> None:
    chat = engine.conversation(adapters={files[0]: 0.5})
    (adapter,) = chat.adapters
    assert isinstance(adapter, Adapter)
    assert (adapter.path, adapter.scale, len(adapter.fingerprint)) == (str(files[0]), 0.5, 32)
    assert engine.conversation(adapters=chat.adapters).adapters == chat.adapters
    assert engine.conversation().adapters == ()


def test_a_bad_file_fails_at_creation_and_leaves_nothing(make_engine: Callable[..., Engine], tmp_path: Path) -> None:
    engine = make_engine()
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    for bad in (tmp_path / "bad.gguf", tmp_path / "missing.gguf"):
        with pytest.raises(ModelLoadError, match=bad.name):
            engine.conversation(adapters=bad)
    assert engine.stats().sequences == 0
    assert engine.conversations == ()
    with pytest.raises(ModelLoadError, match=r"missing\.gguf"):
        Engine(engine.model, adapters=tmp_path / "missing.gguf")


def test_detaching_gives_the_base_again_and_attaching_the_other(engine: Engine, files: list[Path]) -> None:
    base, changed = answers(engine, [(), files[0]])
    chat = engine.conversation(adapters=files[0])
    assert chat.send(QUESTION, **GREEDY).text == changed
    for adapters, expected in (((), base), (files[0], changed), (None, base)):
        chat.set_adapters(adapters)
        assert chat.regenerate(**GREEDY).text == expected


def test_the_history_is_evaluated_with_the_new_ones(engine: Engine, files: list[Path]) -> None:
    chat = engine.conversation()
    chat.send(QUESTION, **GREEDY)
    chat.set_adapters(files[1])
    reply = chat.send("And lakes?", **GREEDY)
    other = engine.conversation(messages=chat.messages[:-1], adapters=files[1])
    other._history = chat._history.first(3)
    assert other.respond(**GREEDY).text == reply.text


def test_branches_keep_theirs(engine: Engine, files: list[Path]) -> None:
    chat = engine.conversation(adapters=files[0])
    chat.send(QUESTION, **GREEDY)
    branch = chat.fork()
    chat.set_adapters(())
    assert len(branch.adapters) == 1
    reply = branch.send("And lakes?", **GREEDY)
    assert reply.usage.cached_tokens > 20
    assert reply.text != chat.send("And lakes?", **GREEDY).text


def test_all_candidates_have_them(engine: Engine, files: list[Path]) -> None:
    base, changed = answers(engine, [(), files[0]])
    assert changed != base
    reply = engine.conversation(adapters=files[0]).send(QUESTION, n=3, **GREEDY)
    assert [choice.text for choice in reply.candidates] == [changed] * 3


def test_those_of_the_engine(make_engine: Callable[..., Engine], files: list[Path]) -> None:
    engine = make_engine(adapters=files[0])
    base, changed = answers(make_engine(), [(), files[0]])
    assert answers(engine, [None, (), files[0]]) == [changed, base, changed]


def test_not_while_a_reply_comes(engine: Engine, files: list[Path]) -> None:
    chat = engine.conversation()
    stream = chat.stream(QUESTION, **GREEDY)
    next(stream)
    with pytest.raises(BusyError):
        chat.set_adapters(files[0])
    stream.close()
    chat.set_adapters(files[0])


# ---- kept ----


def test_a_snapshot_goes_on_with_them(make_engine: Callable[..., Engine], files: list[Path]) -> None:
    chat = make_engine().conversation(adapters=[(files[0], 0.5)])
    chat.send(QUESTION, **GREEDY)
    snapshot = chat.snapshot()
    expected = chat.send("And lakes?", **GREEDY)
    again = make_engine().restore(snapshot)
    assert again.adapters == chat.adapters
    reply = again.send("And lakes?", **GREEDY)
    assert reply.text == expected.text
    assert reply.usage.cached_tokens == len(snapshot.state or ())


@pytest.mark.parametrize("compress", [False, True])
def test_a_saved_conversation_finds_them_by_their_content(
    make_engine: Callable[..., Engine], files: list[Path], tmp_path: Path, compress: bool
) -> None:
    lora = shutil.copy(files[0], tmp_path / "style.gguf")
    chat = make_engine().conversation(adapters=[(lora, 0.5), files[1]])
    chat.send(QUESTION, **GREEDY)
    path = tmp_path / "chat.causerie"
    chat.save(path, compress=compress)
    expected = chat.send("And lakes?", **GREEDY).text

    def loaded(**options: Any) -> str:
        again = make_engine().load_conversation(path, cache="require", **options)
        assert again.adapters == chat.adapters
        reply = again.send("And lakes?", **GREEDY)
        assert reply.usage.cached_tokens > 20
        text: str = reply.text
        return text

    assert loaded() == expected
    moved = lora.rename(tmp_path / "moved.gguf")
    with pytest.raises(ModelLoadError, match=r"style\.gguf"):
        make_engine().load_conversation(path)
    assert loaded(adapters=moved) == expected
    again = make_engine().load_conversation(path, adapters=moved)
    assert str(moved) in {adapter.path for adapter in again.adapters}
    shutil.copy(files[1], lora)  # something else, where it was
    with pytest.raises(StateError, match=r"style\.gguf") as caught:
        make_engine().load_conversation(path)
    assert caught.value.expected != caught.value.found


@pytest.mark.parametrize(
    "bad",
    [
        5,
        [5],
        [{}],
        [{"path": "a", "scale": 1.0}],
        [{"path": "a", "scale": "1", "fingerprint": "0" * 32}],
        [{"path": "a", "scale": True, "fingerprint": "0" * 32}],
        [{"path": "a", "scale": 1e39, "fingerprint": "0" * 32}],
        [{"path": 5, "scale": 1.0, "fingerprint": "0" * 32}],
        [{"path": "a", "scale": 1.0, "fingerprint": ""}],
        [{"path": "a", "scale": 1.0, "fingerprint": "x" * 32}],
    ],
)
def test_a_forged_file_is_refused(engine: Engine, tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "chat.causerie"
    engine.conversation(messages=[{"role": "user", "content": "Hello"}]).save(path, cache=False)
    with Container(path) as container:
        record = json.loads(container.read("conversation", most=1 << 20))
    write_container(path, {"conversation": json.dumps({**record, "adapters": bad}).encode()}, compress=())
    with pytest.raises(StateError):
        engine.load_conversation(path)


@pytest.mark.parametrize("name", ["hf:owner/repo:file.gguf", "smollm2", "none.gguf"])
def test_a_forged_file_makes_nobody_fetch_another(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "chat.causerie"
    engine.conversation(messages=[{"role": "user", "content": "Hello"}]).save(path, cache=False)
    with Container(path) as container:
        record = json.loads(container.read("conversation", most=1 << 20))
    write_container(path, {"conversation": json.dumps(record).encode()}, compress=())
    engine.load_conversation(path)
    record["adapters"] = [{"path": name, "scale": 1.0, "fingerprint": "0" * 32}]
    write_container(path, {"conversation": json.dumps(record).encode()}, compress=())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match=name):
        engine.load_conversation(path)


def test_what_is_given_for_files_to_load_may_be_any_files(engine: Engine, files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "chat.causerie"
    engine.conversation(messages=[{"role": "user", "content": "Hello"}]).save(path)
    copy = shutil.copy(files[0], tmp_path / "copy.gguf")
    assert engine.load_conversation(path, adapters=[files[0], copy]).adapters == ()
    assert [chat.adapters for chat in engine.load_all(tmp_path, adapters=[files[0], copy])] == [()]
    with pytest.raises(ModelLoadError):
        engine.load_all(tmp_path, adapters=tmp_path / "none.gguf")


# ---- in a helper process ----


def test_the_same_in_a_helper(
    isolated: Engine, engine: Engine, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets: list[Any] = [(), files[0], [(files[0], 0.5)]]
    expected = answers(engine, sets)
    streams = [isolated.conversation(adapters=adapters).stream(QUESTION, **GREEDY) for adapters in sets]
    assert [stream.reply.text for stream in streams] == expected
    with pytest.raises(ModelLoadError, match=r"missing\.gguf"):
        isolated.conversation(adapters=tmp_path / "missing.gguf")
    monkeypatch.chdir(files[0].parent)  # this process's folder counts, not the helper's
    assert isolated.conversation(adapters=files[0].name).adapters[0].path == str(files[0])
    chat = isolated.conversation(adapters=files[0])
    assert chat.send(QUESTION, **GREEDY).text == expected[1]
    branch = isolated.restore(chat.snapshot())
    assert branch.adapters == chat.adapters
    assert branch.snapshot().state.adapters == chat.adapters  # type: ignore[union-attr]
    chat.set_adapters(())
    assert chat.regenerate(**GREEDY).text == expected[0]


def test_another_helper_loads_them_again(isolated: Any, files: list[Path]) -> None:
    chat = isolated.conversation(adapters=files[0])
    before = chat.send(QUESTION, **GREEDY).text
    kill(isolated)
    assert chat.regenerate(**GREEDY).text == before
