"""Chat templates run by llama.cpp's engine: every one it ships renders, and a bad one is a typed error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from causerie import ClosedError, TemplateError
from causerie.llama import Model, Template
from causerie.llama.template import ReplyFormat

FOLDER = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "templates"
SHIPPED = sorted(FOLDER.glob("*.jinja"))
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
PLAIN = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_template_that_llama_cpp_ships_renders(path: Path) -> None:
    with Template(path.read_text(), bos_token="<s>", eos_token="</s>") as template:
        first = template.render(user("Hello 🦙"), now=0)
        assert "Hello 🦙" in first["prompt"]
        assert template.render(user("Hello 🦙"), now=0) == first
        assert all(isinstance(value, bool) for value in template.capabilities.values())
        longer = template.render([*user("one"), {"role": "assistant", "content": "two"}, *user("three")], tools=[TOOL])
        assert "three" in longer["prompt"]


class TestRender:
    def test_gives_the_text_and_what_the_reply_looks_like(self) -> None:
        found = Template(PLAIN, bos_token="<s>").render(user("Hi"))
        assert found["prompt"] == "<s>[user]Hi"
        assert {"prompt", "stops", "grammar", "grammar_lazy", "format", "parser", "supports_thinking"} <= set(found)

    def test_of_the_models_own_template(self, model: Model) -> None:
        with Template.from_model(model) as template:
            assert template.source == model.chat_template()
            prompt = template.render(user("Hi"))["prompt"]
            assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
            without = template.render(user("Hi"), add_generation_prompt=False)["prompt"]
            assert prompt == f"{without}<|im_start|>assistant\n"

    def test_passes_variables(self) -> None:
        template = Template("{{ colour }} {{ n + 1 }}")
        assert template.render(user("x"), kwargs={"colour": "red", "n": 1})["prompt"] == "red 2"

    @pytest.mark.parametrize("text", ["", "\n", "{{ 1 }}", "{% raw %}", "\0", "\u2028", "🦙" * 1000, '"\\'])
    def test_text_of_messages_is_never_template(self, text: str) -> None:
        assert Template("{{ messages[0].content }}").render(user(text))["prompt"] == text

    @pytest.mark.parametrize("messages", [[{}], [{"role": "user"}], [{"role": 5, "content": "x"}], user({"a": 1})])  # type: ignore[arg-type]
    def test_malformed_messages_are_refused(self, messages: list) -> None:
        with pytest.raises(TemplateError):
            Template(PLAIN).render(messages)

    @pytest.mark.parametrize("messages", ["text", b"x", ["text"], [None], user(b"x"), user({1, 2})])  # type: ignore[arg-type]
    def test_what_is_no_json_is_a_type_error(self, messages: object) -> None:
        with pytest.raises(TypeError):
            Template(PLAIN).render(messages)  # type: ignore[arg-type]

    @pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
    def test_a_lone_surrogate_is_a_value_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="surrogates"):
            Template(PLAIN).render(user(text))

    def test_tells_a_given_time(self) -> None:
        source = (
            "{% set f = '%Y' %}{{ strftime_now('%d %b') }} {{ strftime_now(f) }}, {{ date_string }}, {{ datetime }}"
        )
        template = Template(source)
        noon = 12 * 3600
        for day in (1, 2):
            told = template.render(user("x"), now=(day - 1) * 86400 + noon)["prompt"]
            assert told == f"0{day} Jan 1970, 0{day} Jan 1970, Jan 0{day} 1970"
        assert "1970" not in template.render(user("x"))["prompt"]
        with pytest.raises(ValueError, match="no calendar"):
            template.render(user("x"), now=2**62)

    def test_makes_a_grammar_of_a_schema(self) -> None:
        assert "boolean" in Template(PLAIN).render(user("x"), json_schema={"type": "boolean"})["grammar"]

    def test_what_a_template_raises_is_told(self) -> None:
        with pytest.raises(TemplateError, match="roles must alternate"):
            Template("{{ raise_exception('roles must alternate') }}").render(user("x"))

    def test_an_unknown_function_is_an_error(self) -> None:
        with pytest.raises(TemplateError):
            Template("{{ no_such_function() }}").render(user("x"))

    def test_a_template_goes_on_after_an_error(self) -> None:
        template = Template("{% if messages[0].content == 'bad' %}{{ raise_exception('no') }}{% endif %}ok")
        for _ in range(2):
            with pytest.raises(TemplateError):
                template.render(user("bad"))
            assert template.render(user("good"))["prompt"] == "ok"


class TestSource:
    @pytest.mark.parametrize(
        "source", ["", " \n", "{{", "{% if %}", "{% for x in %}", "{{ 1 + }}", "a\0b", "{% endfor %}"]
    )
    def test_that_is_no_template_is_refused(self, source: str) -> None:
        with pytest.raises(TemplateError):
            Template(source)

    def test_that_is_no_template_says_why(self) -> None:
        with pytest.raises(TemplateError, match="Unknown statement: endfor"):
            Template("{% endfor %}")
        with pytest.raises(TemplateError, match="Unexpected EOF"):
            Template("{{ 1 +")
        with pytest.raises(TemplateError, match="line 2, column"):
            Template("\n{{ x | nofilter }}").render(user("x"))

    @pytest.mark.parametrize("source", [None, 5, b"{{ 1 }}"])
    def test_that_is_no_text_is_a_type_error(self, source: object) -> None:
        with pytest.raises(TypeError, match="Jinja"):
            Template(source)  # type: ignore[arg-type]

    def test_a_model_without_a_template_says_so(self, tmp_path: Path, model: Model) -> None:
        from tiny import write_llama

        with Model(write_llama(tmp_path / "t.gguf")) as bare, pytest.raises(TemplateError, match="no chat template"):
            Template.from_model(bare)
        with pytest.raises(TemplateError, match="named 'nowhere'"):
            Template.from_model(model, "nowhere")

    def test_of_a_model_may_have_a_name(self, tmp_path: Path) -> None:
        from tiny import write_llama

        extra = {"tokenizer.chat_template": PLAIN, "tokenizer.chat_template.tool_use": "{{ tools | length }}"}
        with Model(write_llama(tmp_path / "t.gguf", extra=extra)) as model:
            assert Template.from_model(model).source == PLAIN
            named = Template.from_model(model, "tool_use")
            assert named.render(user("x"), tools=[TOOL])["prompt"] == "1"
            assert Template("{{ 2 }}").render(user("x"))["prompt"] == "2"


class TestReplyFormat:
    def test_reads_what_the_template_told(self) -> None:
        found = Template((FOLDER / "Qwen-Qwen3-0.6B.jinja").read_text()).render(user("x"), tools=[TOOL])
        with ReplyFormat(found["format"], found["parser"], found["generation_prompt"]) as replies:
            call = '<tool_call>\n{"name": "weather", "arguments": {"place": "Oslo"}}\n</tool_call>'
            message = replies.parse(f"<think>\nHm.\n</think>\n\nSo.{call}")
            assert message["reasoning_content"] == "Hm.\n"
            assert message["content"] == "So."
            assert message["tool_calls"] == [{"id": "", "name": "weather", "arguments": '{"place": "Oslo"}'}]
            assert replies.parse("So. <tool_c", partial=True)["content"] == "So. "
            with pytest.raises(TemplateError, match="does not match"):
                replies.parse("<tool_call>\n{nonsense")
        with pytest.raises(ClosedError):
            replies.parse("x")

    @pytest.mark.parametrize(
        "given", [("nonsense", "", ""), ("peg-native", "{", ""), ("peg-native", "[]", ""), ("peg-native", "{}", "")]
    )
    def test_that_is_malformed_is_refused(self, given: tuple[str, str, str]) -> None:
        with pytest.raises(TemplateError):
            ReplyFormat(*given)


NESTED = """
import sys
from causerie import TemplateError
from causerie.llama import Template
n = int(sys.argv[1])
for source in ("{{ " + "(" * n + "1" + ")" * n + " }}", "{% if 1 %}" * n + "{% endif %}" * n, "{{ 1" + "|abs" * n + " }}",
               "{{ " + "not " * n + "1 }}", "{{ a" + ".b" * n + " }}", "{{ " + "[" * n + "]" * n + " }}"):
    try:
        Template(source).render([{"role": "user", "content": "x"}])
    except TemplateError:
        pass
"""


@pytest.mark.parametrize("n", [100, 5000, 200_000])
def test_deep_nesting_does_not_end_the_process(n: int) -> None:
    done = subprocess.run([sys.executable, "-c", NESTED, str(n)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_probes_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template("{% for m in messages %}{{ m.content }}{% endfor %}")
    first = template.capabilities
    monkeypatch.setattr("causerie.llama.template._take", lambda text: pytest.fail("probed again"))
    first["supports_tools"] = "changed by whoever asked"  # type: ignore[assignment]
    assert template.capabilities["supports_tools"] is False
