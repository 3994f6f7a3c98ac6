"""Conversations and chat templates: the model's own, one given, none, and one that refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from talking import Dictation

from causerie import ChatTemplate, Engine, RolePrefix, TemplateError
from causerie.llama import Model

if TYPE_CHECKING:
    from pathlib import Path

GREEDY = {"temperature": 0, "max_tokens": 3}
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
QUIET = (
    "{% for m in messages %}{% if m.content == 'LOUD' %}{{ raise_exception('no shouting') }}{% endif %}{% endfor %}"
    + PLAIN
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN


@pytest.fixture(scope="module")
def bare(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model's file without its chat template."""
    path = tmp_path_factory.mktemp("bare") / "bare.gguf"
    data = smollm2_path.read_bytes()
    path.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_tamplate", 1))
    with Model(path) as model, Engine(model, n_ctx=256, n_threads=1) as engine:
        yield engine


class TestAModelWithoutOne:
    def test_names_the_way_out(self, bare: Engine) -> None:
        for call in (bare.conversation, lambda: bare.template):
            with pytest.raises(TemplateError, match=r"has no chat template.*template="):
                call()

    def test_works_with_one_that_is_given(self, bare: Engine) -> None:
        chat = bare.conversation(template=PLAIN)
        assert chat.send("Hi.", **GREEDY).finish_reason in {"stop", "length"}
        with Engine(bare.model, n_ctx=256, n_threads=1, template=PLAIN) as engine:
            assert engine.conversation().render("Hi.") == "user: Hi.\nassistant:"
            assert engine.template.source == PLAIN


class TestOneOfOnesOwn:
    def test_for_a_conversation(self, engine: Engine) -> None:
        chat = engine.conversation("Be kind.", template=PLAIN)
        assert chat.render("Hi.") == "system: Be kind.\nuser: Hi.\nassistant:"
        assert engine.conversation("Be kind.").render("Hi.") != chat.render("Hi.")
        assert chat.fork().render("Hi.") == chat.render("Hi.")
        made = ChatTemplate(PLAIN)
        assert engine.conversation(template=made).render("x") == "user: x\nassistant:"

    def test_variables_for_a_conversation_and_for_a_call(self, engine: Engine, prompts: list[list[int]]) -> None:
        chat = engine.conversation(template="{{ mood }} {{ tone }}|" + PLAIN, template_kwargs={"mood": "glad"})
        assert chat.render("x").startswith("glad |")
        chat.send("x", **GREEDY, template_kwargs={"tone": "soft"})
        assert engine.model.vocab.detokenize(prompts[-1]).startswith("glad soft|")
        assert chat.render("x").startswith("glad |")

    def test_that_is_malformed_raises_where_it_is_given(self, engine: Engine) -> None:
        with pytest.raises(TemplateError):
            engine.conversation(template="{% if %}")
        with pytest.raises(TemplateError):
            Engine(engine.model, n_ctx=256, template="{% if %}")


class TestAFile:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "mine.jinja"
        path.write_text("{{ bos_token }}" + PLAIN, "utf-8")
        return path

    def test_for_an_engine_and_for_a_conversation(self, engine: Engine, file: Path) -> None:
        text = f"{engine.template.bos_token}user: x\nassistant:"
        assert engine.conversation(template=file).render("x") == text
        with Engine(engine.model, n_ctx=256, n_threads=1, template=file) as own:
            assert own.conversation().render("x") == text
            assert own.template.source == file.read_text("utf-8")
        with ChatTemplate.from_file(str(file), bos_token="<b>") as template:
            assert template.apply([{"role": "user", "content": "x"}]).text == "<b>user: x\nassistant:"

    def test_is_read_when_it_is_given(self, engine: Engine, file: Path) -> None:
        before = engine.conversation(template=file)
        file.write_text("\ufeffß" + PLAIN, "utf-8")
        assert engine.conversation(template=file).render("x") == "ßuser: x\nassistant:"
        assert not before.render("x").startswith("ß")

    def test_a_str_is_jinja_and_no_path(self, engine: Engine, file: Path) -> None:
        assert engine.conversation(template=str(file)).render("x") == str(file)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, r"mine.jinja' cannot be read: No such file"),
            (b"{{ 'a\xff' }}", r"mine.jinja' is not UTF-8: byte 5"),
            (b"{% if %}", r"mine.jinja': .*"),
            (b" \n", r"mine.jinja': .*empty"),
        ],
    )
    def test_that_cannot_be_used_is_named(
        self, engine: Engine, file: Path, content: bytes | None, message: str
    ) -> None:
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        for call in (
            lambda: engine.conversation(template=file),
            lambda: Engine(engine.model, n_ctx=256, template=file),
            lambda: ChatTemplate.from_file(file),
        ):
            with pytest.raises(TemplateError, match=message):
                call()

    def test_a_folder_is_none(self, engine: Engine, tmp_path: Path) -> None:
        with pytest.raises(TemplateError, match="cannot be read"):
            engine.conversation(template=tmp_path)


class TestOneThatRefuses:
    def test_raises_before_anything_changes(self, engine: Engine) -> None:
        with pytest.raises(TemplateError, match="no shouting"):
            engine.conversation("LOUD", template=QUIET)
        chat = engine.conversation(template=QUIET)
        for call in (lambda: chat.send("LOUD"), lambda: list(chat.stream("LOUD")), lambda: chat.render("LOUD")):
            with pytest.raises(TemplateError, match="no shouting"):
                call()
        assert chat.messages == ()
        assert chat.send("x", **GREEDY).message == chat.messages[-1]

    def test_a_system_text_where_it_knows_none_is_not_lost(self, engine: Engine) -> None:
        chat = engine.conversation("Be kind.", template=NO_SYSTEM)
        assert "Be kind." in chat.render("x")
        assert chat.send("x", **GREEDY).message == chat.messages[-1]


class TestWrongArguments:
    @pytest.mark.parametrize(
        "options",
        [
            {"template_kwargs": [1]},
            {"template_kwargs": {"a": object()}},
            {"thinking": 1},
            {"template": 3},
            {"sampling": 3},
            {"max_tokens": "3"},
            {"input_transforms": [3]},
            {"output_transform": 3},
            {"history_transform": 3},
            {"examples": ["ab"]},
            {"messages": "hi"},
        ],
    )
    def test_raise_where_the_conversation_is_made(self, engine: Engine, options: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            engine.conversation(**options)

    def test_of_one_call_change_nothing(self, engine: Engine) -> None:
        chat = engine.conversation(template_kwargs={"a": 1})
        for options in ({"template_kwargs": 3}, {"template_kwargs": {"a": object()}}, {"thinking": "yes"}):
            with pytest.raises(TypeError):
                chat.send("x", **options)
        with pytest.raises(ValueError, match="JSON has no number"):
            chat.send("x", template_kwargs={"a": float("nan")})
        assert chat.messages == ()

    def test_a_transform_that_forgets_to_return(self, engine: Engine) -> None:
        class Forgetful:
            def feed(self, text: str) -> None:
                pass

            def flush(self) -> None:
                pass

        chat = engine.conversation(output_transform=Forgetful)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must give a str, not NoneType"):
            chat.send("x", **GREEDY)
        assert [message.role for message in chat.messages] == ["user"]


class TestPlainText:
    def test_lets_a_model_without_a_template_talk(self, bare: Engine) -> None:
        chat = bare.conversation("Be brief.", template=RolePrefix())
        assert chat.render("Hi.") == "System: Be brief.\nUser: Hi.\nAssistant:"
        options = {"temperature": 0, "samplers": Dictation(bare, " Hello.\nUser: No.")}
        reply = chat.send("Hi.", **options)
        assert (reply.text, reply.stop, reply.finish_reason) == ("Hello.", "\nUser:", "stop")
        assert chat.messages[-1].text == "Hello."
        stream = chat.stream("Hi.", temperature=0, stop="!", samplers=Dictation(bare, " Hello!\nUser: No."))
        assert ("".join(chunk.text for chunk in stream), stream.reply.stop) == ("Hello", "!")

    def test_evaluates_each_turn_once(self, bare: Engine) -> None:
        chat = bare.conversation(template=RolePrefix())
        first = chat.send("Tell me about the sea.", **GREEDY)
        second = chat.send("Go on.", **GREEDY)
        assert second.usage.cached_tokens >= first.usage.total_tokens - 1
        assert chat.fork().tokenize("x").tolist() == chat.tokenize("x").tolist()
        chat.add_user("Hi.")
        chat.add_assistant("My name is")
        chat.resume(**GREEDY)
        assert "Assistant: My name is" in chat.render("x")

    def test_for_an_engine(self, bare: Engine) -> None:
        with Engine(bare.model, n_ctx=256, n_threads=1, template=RolePrefix(assistant="Bot")) as engine:
            assert engine.conversation().render("Hi.") == "User: Hi.\nBot:"
            assert engine.template.apply([{"role": "user", "content": "x"}]).stops == ("\nUser:", "\nBot:", "\nSystem:")
            assert engine.conversation(template=engine.template).render("Hi.") == "User: Hi.\nBot:"
            assert engine.conversation(template=RolePrefix()).render("Hi.") == "User: Hi.\nAssistant:"
