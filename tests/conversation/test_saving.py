"""A saved conversation goes on as the original does: in another process, another place, another engine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from talking import EXACT, HOT, Dictation, FailingAt, Gate, spoken

from causerie import (
    BusyError,
    ClosedError,
    Engine,
    Message,
    RolePrefix,
    SamplingOptions,
    StateError,
    StateWarning,
    TemplateError,
    ToolCall,
    register_transform,
    tool,
)
from causerie.chat.whole_replies import Written
from causerie.conversation.history import History
from causerie.files import Container
from causerie.llama import Model

if TYPE_CHECKING:
    from collections.abc import Callable

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
QUESTION = "What did I ask before?"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.causerie"


@pytest.fixture
def chat(engine: Engine) -> Any:
    made = engine.conversation(system="Answer in one sentence.", name="tea")
    made.send("Why is the sea salty?", **{**GREEDY, **HOT, "seed": 3})
    return made


LOAD_AND_SEND = """
import json, sys
from causerie import Engine
path, model, question, options = sys.argv[1:]
with Engine(model, **json.loads(options)) as engine:
    engine.conversation().send("Hello", max_tokens=2)
    chat = engine.load_conversation(path, cache="require")
    reply = chat.send(question, temperature=0, max_tokens=12)
    print(json.dumps([reply.text, reply.usage.cached_tokens, reply.usage.prompt_tokens]))
"""


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"n_ctx": 700, "max_resident": 3, "n_threads": 2}, marks=pytest.mark.several_threads),
    ],
)
def test_goes_on_in_another_process_and_evaluates_the_new_turn_only(
    chat: Any, path: Path, smollm2_path: Path, options: dict[str, Any]
) -> None:
    chat.save(path)
    known = len(chat.snapshot().state)
    expected = chat.send(QUESTION, **GREEDY)
    command = [sys.executable, "-W", "error", "-c", LOAD_AND_SEND, path, smollm2_path, QUESTION]
    done = subprocess.run(
        [*command, json.dumps({**EXACT, "n_ctx": 2048, **options})], capture_output=True, text=True, check=True
    )
    text, cached, prompt = json.loads(done.stdout)
    assert text == expected.text
    assert (cached, prompt) == (known, expected.usage.prompt_tokens)
    assert known > prompt - 20


def test_everything_of_it_comes_back(make_engine: Callable[..., Engine], path: Path) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    engine, other = make_engine(), make_engine()
    chat = engine.conversation(
        system="Be brief.",
        examples=[("one", "two")],
        sampling=SamplingOptions(
            temperature=0.5, stop=("a", "b"), logit_bias={5: 1.5, 6: False}, seed=7, dry_sequence_breakers=["x"]
        ),
        template_kwargs={"variable": [1, {"x": None}]},
        thinking=False,
        replay_thinking=True,
        tools=[add],
        tool_format="generic",
        max_tokens=9,
        overflow="trim",
        name="über/../etc",
    )
    chat.add_user("What is 1 + 2?")
    chat.add({"role": "assistant", "content": "Let me see.", "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}]})  # fmt: skip
    chat.add_tool_result("c1", "3", name="add")
    chat.add_user([{"type": "text", "text": "👩‍🚀 漢字"}])
    chat.save(path)
    loaded = other.load_conversation(path, tools=[add])
    assert loaded.messages == chat.messages
    assert loaded.name == chat.name
    assert loaded._history == chat._history
    assert loaded._history.head == 3
    mine, theirs = loaded._settings, chat._settings
    assert mine.offer.tools["add"] is theirs.offer.tools["add"]
    for name in ("encoder", "offer"):
        mine, theirs = replace(mine, **{name: None}), replace(theirs, **{name: None})
    assert mine == theirs
    assert loaded._settings.encoder is other.encoder(None)
    assert loaded.render() == chat.render()


def test_tools_without_functions_wait_for_their_results(make_engine: Callable[..., Engine], path: Path) -> None:
    engine = make_engine()
    schema = {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}
    engine.conversation(tools=[schema], tool_format="generic").save(path)
    loaded = engine.load_conversation(path)
    (found,) = loaded._settings.offer.tools
    assert found.function is None
    assert found.to_dict()["function"]["parameters"]["properties"] == schema["parameters"]["properties"]


@pytest.mark.parametrize(
    "generated",
    [(1, 2, 3), (), Written((5,), (4, 5, 6), "text", "before"), Written(None, (), "", ""), None],
    ids=str,
)
def test_generated_ids_come_back(engine: Engine, path: Path, generated: Any) -> None:
    chat = engine.conversation()
    history = History.of([Message("user", "?"), Message("assistant", "!")])
    chat._history = replace(history, generated=(None, generated))
    chat.save(path, cache=False)
    assert engine.load_conversation(path)._history == chat._history


@pytest.mark.parametrize(
    "template",
    ["{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ eos_token }}", RolePrefix(user="Me")],
    ids=["jinja", "prefix"],
)
def test_a_template_of_its_own_comes_back(engine: Engine, path: Path, template: Any) -> None:
    chat = engine.conversation(template=template, messages=[Message("user", "Hi"), Message("assistant", "Ho")])
    chat.save(path)
    loaded = engine.load_conversation(path)
    assert loaded.render("So?") == chat.render("So?")
    assert loaded._settings.encoder is not engine.encoder(None)
    assert engine.restore(chat.snapshot()).render("So?") == chat.render("So?")


def test_the_engines_template_is_that_of_the_engine_it_comes_to(make_engine: Callable[..., Engine], path: Path) -> None:
    chat = make_engine().conversation(messages=[Message("user", "Hi"), Message("assistant", "Ho")])
    chat.save(path)
    other = make_engine(template=RolePrefix())
    assert other.load_conversation(path).render("So?") == "User: Hi\nAssistant: Ho\nUser: So?\nAssistant:"


def test_functions_are_saved_by_their_names_or_refused_or_left_out(engine: Engine, path: Path) -> None:
    def shout(text: str) -> str:
        return text.upper()

    def policy(chat: Any) -> Any:
        return chat.messages[-1:]

    def boost(row: Any) -> None:
        row[5] += 1

    given = {
        "input_transforms": {"input_transforms": [shout]},
        "output_transforms": {"output_transform": Shown},
        "history_transform": {"history_transform": policy},
        "overflow": {"overflow": policy},
        "sampling": {"sampling": {"samplers": [boost]}},
    }
    for field, arguments in given.items():
        chat = engine.conversation(**arguments)
        path.write_text("old")
        for cache in (True, False):
            with pytest.raises(ValueError, match="register_transform"):
                chat.save(path, cache=cache)
        assert path.read_text() == "old"
        chat.save(path, drop_functions=True)
        assert (
            getattr(engine.load_conversation(path)._settings, field) == getattr(engine.conversation()._settings, field)
            or field == "sampling"
        )
    for function in (shout, Shown, policy, boost):
        register_transform(f"saving:{function.__name__}", function, replace=True)
    for field, arguments in given.items():
        chat = engine.conversation(**arguments)
        chat.save(path)
        assert getattr(engine.load_conversation(path)._settings, field) == getattr(chat._settings, field)


class Shown:
    """An output transform that changes nothing."""

    def feed(self, text: str) -> str:
        return text

    def flush(self) -> str:
        return ""


def test_a_name_that_is_not_registered_here_is_told(
    engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_transform("saving:gone", lambda text: text.upper(), replace=True)  # nobody else's: the first name is saved
    engine.conversation(input_transforms="saving:gone").save(path)
    monkeypatch.setattr("causerie.conversation.transform_names._registered", {})
    with pytest.raises(StateError, match="saving:gone"):
        engine.load_conversation(path)


def test_a_text_template_needs_a_name(engine: Engine, path: Path) -> None:
    class Mine(RolePrefix):
        pass

    template = Mine()
    chat = engine.conversation(template=template)
    with pytest.raises(ValueError, match="register_transform"):
        chat.save(path, drop_functions=True)
    register_transform("saving:mine", template, replace=True)
    chat.save(path)
    assert engine.load_conversation(path).render("Hi") == chat.render("Hi")


class TestWithoutTheCache:
    @pytest.mark.parametrize("way", ["save", "load"])
    def test_it_is_evaluated_again_and_says_the_same(
        self, make_engine: Callable[..., Engine], way: str, path: Path
    ) -> None:
        engine, other = make_engine(), make_engine()
        chat = engine.conversation()
        chat.send("Why is the sea salty?", **GREEDY)
        chat.save(path, cache=way != "save")
        loaded = other.load_conversation(path, cache="auto" if way == "save" else "ignore")
        reply, expected = loaded.send(QUESTION, **GREEDY), chat.send(QUESTION, **GREEDY)
        assert reply.text == expected.text
        assert reply.usage.cached_tokens == 0

    def test_the_file_is_small(self, chat: Any, path: Path) -> None:
        chat.save(path, cache=False)
        assert path.stat().st_size < 4000
        with Container(path) as container:
            assert container.names == ("conversation",)

    def test_requiring_it_is_refused(self, engine: Engine, chat: Any, path: Path) -> None:
        chat.save(path, cache=False)
        with pytest.raises(StateError, match="without"):
            engine.load_conversation(path, cache="require")
        with pytest.raises(ValueError, match="cache must be"):
            engine.load_conversation(path, cache="perhaps")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "options", [{"type_k": "q8_0"}, {"n_ctx": 256, "kv_unified": False}, {"rope_freq_scale": 0.5}], ids=str
    )
    def test_another_kind_of_cache_warns_and_goes_on(
        self, make_engine: Callable[..., Engine], chat: Any, path: Path, options: dict[str, Any]
    ) -> None:
        chat.save(path)
        other = make_engine(**options)
        with pytest.raises(StateError) as caught:
            other.load_conversation(path, cache="require")
        assert caught.value.expected != caught.value.found
        with pytest.warns(StateWarning, match="evaluated again"):
            loaded = other.load_conversation(path)
        with pytest.warns(StateWarning, match="evaluated again"):
            other.restore(chat.snapshot())
        assert loaded.messages == chat.messages
        assert loaded.send(QUESTION, **GREEDY).usage.cached_tokens == 0
        assert loaded.report.usage.cached_tokens == 0

    def test_another_llama_cpp_warns_and_goes_on(
        self, engine: Engine, chat: Any, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("causerie.llama._state_format._llama_commit", lambda: "another")
            chat.save(path)
        with pytest.warns(StateWarning, match="llama_cpp='another'"):
            loaded = engine.load_conversation(path)
        assert loaded.messages == chat.messages

    def test_a_context_that_is_too_small_warns(self, make_engine: Callable[..., Engine], path: Path) -> None:
        chat = make_engine().conversation()
        chat.send("word " * 300, max_tokens=2)
        chat.save(path)
        other = make_engine(n_ctx=256)
        with pytest.warns(StateWarning, match="n_ctx"):
            loaded = other.load_conversation(path)
        assert loaded.messages == chat.messages


class TestWhereverItIs:
    def test_a_parked_one(self, make_engine: Callable[..., Engine], path: Path) -> None:
        engine, other = make_engine(max_resident=1), make_engine()
        chat = engine.conversation()
        chat.send("Why is the sea salty?", **GREEDY)
        engine.conversation().send("Tell me of a lighthouse.", **GREEDY)
        assert chat._sequence.slot is None
        chat.save(path)
        loaded = other.load_conversation(path, cache="require")
        reply, expected = loaded.send(QUESTION, **GREEDY), chat.send(QUESTION, **GREEDY)
        assert (reply.text, reply.usage) == (expected.text, expected.usage)
        assert reply.usage.cached_tokens > 20

    def test_one_that_is_parked_on_disk(self, make_engine: Callable[..., Engine], path: Path, tmp_path: Path) -> None:
        engine, other = make_engine(max_resident=1, parking_bytes=0, parking_folder=tmp_path / "parked"), make_engine()
        chat = engine.conversation()
        chat.send("Why is the sea salty?", **GREEDY)
        engine.conversation().send("Tell me of a lighthouse.", **GREEDY)
        assert engine.stats().parked_disk_bytes > 0
        chat.save(path)
        snapshot = chat.snapshot()
        expected = chat.send(QUESTION, **GREEDY)
        for found in (other.load_conversation(path, cache="require"), other.restore(snapshot)):
            reply = found.send(QUESTION, **GREEDY)
            assert reply.text == expected.text
            assert reply.usage.cached_tokens >= expected.usage.cached_tokens

    def test_a_fork_that_shares_cells(self, make_engine: Callable[..., Engine], path: Path) -> None:
        engine, other = make_engine(max_resident=2), make_engine()
        parent = engine.conversation()
        parent.send("Why is the sea salty?", **GREEDY)
        forks = parent.fork(3)
        forks[0].send("And rivers?", **GREEDY)
        for index, chat in enumerate([parent, *forks]):
            chat.save(path)
            loaded = other.load_conversation(path, cache="require")
            assert loaded.messages == chat.messages
            reply, expected = loaded.send(QUESTION, **GREEDY), chat.send(QUESTION, **GREEDY)
            assert reply.text == expected.text, index
            assert reply.usage.cached_tokens > 20

    @pytest.mark.parametrize("change", ["rewind", "edit", "reset"])
    def test_what_was_taken_back_is_not_in_the_file(
        self, make_engine: Callable[..., Engine], path: Path, change: str
    ) -> None:
        engine = make_engine()
        chat = engine.conversation(system="You know many things about the sea, about lighthouses and about bread.")
        chat.send("What is a lighthouse?", **GREEDY)
        chat.send("The password is swordfish.", **GREEDY)
        {"rewind": chat.rewind, "edit": lambda: chat.edit(1, "What is bread?"), "reset": chat.reset}[change]()
        chat.save(path)
        with Container(path) as container:
            ids = memoryview(container.read("tokens", most=0)).cast("i").tolist()
        said = engine.model.vocab.detokenize(ids, special=True)
        assert "sword" not in said
        assert b"swordfish" not in path.read_bytes()
        if change != "reset":
            assert len(ids) > 16

    def test_with_a_turn_that_waits_for_its_reply(self, make_engine: Callable[..., Engine], path: Path) -> None:
        engine, other = make_engine(), make_engine()
        chat = engine.conversation()
        with pytest.raises(ZeroDivisionError):
            chat.send("Why is the sea salty?", samplers=[FailingAt(0)])
        chat.save(path)
        loaded = other.load_conversation(path, cache="require")
        reply, expected = loaded.respond(**GREEDY), chat.respond(**GREEDY)
        assert (reply.text, reply.usage.prompt_tokens) == (expected.text, expected.usage.prompt_tokens)
        assert reply.usage.cached_tokens == reply.usage.prompt_tokens - 1

    def test_a_new_one_and_an_empty_one(self, make_engine: Callable[..., Engine], path: Path) -> None:
        engine = make_engine()
        for chat in (engine.conversation(), engine.conversation(system="Be brief.")):
            chat.save(path)
            assert engine.load_conversation(path).messages == chat.messages
            assert engine.restore(chat.snapshot()).messages == chat.messages

    def test_compressed(self, make_engine: Callable[..., Engine], chat: Any, path: Path) -> None:
        chat.save(path)
        size = path.stat().st_size
        chat.save(path, compress=True)
        assert path.stat().st_size < size
        known = len(chat.snapshot().state)
        reply = make_engine().load_conversation(path, cache="require").send(QUESTION, **GREEDY)
        assert reply.text == chat.send(QUESTION, **GREEDY).text
        assert reply.usage.cached_tokens == known


class TestSnapshots:
    def test_stays_what_it_is(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine()
        chat = engine.conversation(name="tea")
        chat.send("Why is the sea salty?", **GREEDY)
        snapshot = chat.snapshot()
        messages, report = chat.messages, chat.report
        expected = chat.send(QUESTION, **GREEDY)
        chat.reset()
        chat.close()
        for _ in range(2):
            restored = engine.restore(snapshot)
            assert (restored.messages, restored.report, restored.name) == (messages, report, "tea")
            reply = restored.send(QUESTION, **GREEDY)
            assert reply.text == expected.text
            assert reply.usage.cached_tokens >= expected.usage.cached_tokens
        engine.close()
        assert snapshot.messages == messages
        assert snapshot.nbytes > 10_000
        assert "tea" in repr(snapshot)
        with pytest.raises(TypeError):
            __import__("pickle").dumps(snapshot)
        other = make_engine()
        assert other.restore(snapshot).send(QUESTION, **GREEDY).text == expected.text

    def test_without_the_cache_it_is_small_and_may_be_taken_at_any_time(
        self, engine: Engine, chat: Any, path: Path
    ) -> None:
        gate = Gate(2)
        stream = chat.stream("Go on.", samplers=[gate])
        with pytest.raises(BusyError):
            chat.snapshot()
        with pytest.raises(BusyError):
            chat.save(path)
        snapshot = chat.snapshot(cache=False)
        chat.save(path, cache=False)
        gate.open.set()
        stream.close()
        assert (snapshot.nbytes, snapshot.state) == (0, None)
        for found in (engine.restore(snapshot), engine.load_conversation(path)):
            assert spoken(found) == [*spoken(chat)[:3], ("user", "Go on.")]

    @pytest.mark.parametrize("wrong", ["chat.causerie", None, b"", {}])
    def test_what_is_none_is_refused(self, engine: Engine, wrong: Any) -> None:
        with pytest.raises(TypeError, match="load_conversation"):
            engine.restore(wrong)

    def test_closed_ones_are_refused(self, make_engine: Callable[..., Engine], path: Path) -> None:
        engine = make_engine()
        chat = engine.conversation()
        snapshot = chat.snapshot()
        chat.close()
        for call in (chat.snapshot, lambda: chat.snapshot(cache=False), lambda: chat.save(path)):
            with pytest.raises(ClosedError):
                call()
        other = engine.conversation()
        other.save(path)
        engine.close()
        for call in (lambda: engine.restore(snapshot), lambda: engine.load_conversation(path)):
            with pytest.raises(ClosedError):
                call()


class TestAnotherModel:
    def test_is_refused_with_what_was_expected_and_found(
        self, chat: Any, path: Path, tiny_models: dict[str, Path]
    ) -> None:
        chat.save(path)
        snapshot = chat.snapshot()
        with Model(tiny_models["llama-dense"]) as tiny, Engine(tiny, n_ctx=256, template=RolePrefix()) as other:
            for call in (lambda: other.load_conversation(path), lambda: other.restore(snapshot)):
                with pytest.raises(StateError, match="another model") as caught:
                    call()
                assert caught.value.expected == tiny.fingerprint
                assert caught.value.found == chat._engine.model.fingerprint
            assert other.stats().sequences == 0

    def test_without_a_template_says_so(self, tiny_models: dict[str, Path], path: Path) -> None:
        with Model(tiny_models["llama-dense"]) as tiny:
            with Engine(tiny, n_ctx=256, template=RolePrefix()) as engine:
                engine.conversation().save(path)
            with Engine(tiny, n_ctx=256) as other, pytest.raises(TemplateError, match="no chat template"):
                other.load_conversation(path)


def test_calls_and_thinking_of_a_reply_come_back(engine: Engine, path: Path) -> None:
    chat = engine.conversation()
    call = ToolCall("c1", "add", {"a": 1})
    chat._history = History(
        (Message("user", "?"), Message("assistant", "", thinking="hm", tool_calls=(call,))), (None, None), 0
    )
    chat.save(path, cache=False)
    assert engine.load_conversation(path).messages[1].tool_calls == (call,)


def test_hot_replies_come_back_as_the_ids_that_were_generated(make_engine: Callable[..., Engine], path: Path) -> None:
    engine, other = make_engine(), make_engine()
    chat = engine.conversation()
    ids = engine.model.vocab.tokenize(" l", add_special=False).tolist() + engine.model.vocab.tokenize("ight").tolist()
    speaker = Dictation(engine, "")
    speaker.ids = [*ids, engine.model.vocab.eos]
    chat.send("Say it.", samplers=[speaker])
    chat.save(path)
    loaded = other.load_conversation(path, cache="require")
    assert list(loaded.tokenize("And?")) == list(chat.tokenize("And?"))
    reply = loaded.send("And?", **GREEDY)
    assert reply.usage.cached_tokens == chat.send("And?", **GREEDY).usage.cached_tokens


SAVED = Path(__file__).parent / "saved"


@pytest.mark.parametrize("path", sorted(SAVED.glob("*.causerie")), ids=lambda path: path.stem)
def test_files_of_every_released_version_are_read(engine: Engine, path: Path) -> None:
    loaded = engine.load_conversation(path)
    assert spoken(loaded) == [
        ("system", "Answer in one sentence."),
        ("user", "Why is the sea salty?"),
        ("assistant", "Because rivers carry salt 🌊 into it."),
        ("user", "And lakes?"),
    ]
    assert loaded.name == "a conversation of long ago"
    assert loaded._settings.sampling == SamplingOptions(temperature=0, max_tokens=12, logit_bias={5: False})
    assert loaded._history.generated[2] is not None
    assert loaded.respond().usage.completion_tokens > 0


def test_there_is_a_file_of_this_version() -> None:
    from importlib.metadata import version

    assert (SAVED / f"{version('causerie')}.causerie").exists()
