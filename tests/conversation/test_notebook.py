"""What a notebook shows of conversations, replies and the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from talking import Dictation

from causerie import Message, Reply, Timings, ToolCall, Usage

if TYPE_CHECKING:
    from causerie import Engine

REPLY = Reply(
    text="<b>No.</b>",
    message=Message("assistant", "<b>No.</b>"),
    finish_reason="stop",
    usage=Usage(40, 32, 4),
    timings=Timings(0.0, 0.125, 0.1, 0.4, 0.5, 80.0, 10.0),
    thinking="Hm.",
    tool_calls=(ToolCall("c1", "now"),),
)
FIGURES = "stop; 4 tokens in 0.50 s (10.0 per second); prompt of 40 tokens, 32 of them cached; first token after 0.12 s"


class TestReply:
    def test_shows_what_a_reader_got_and_its_figures(self) -> None:
        html, markdown = REPLY._repr_html_(), REPLY._repr_markdown_()
        assert "&lt;b&gt;No.&lt;/b&gt;" in html
        assert "<summary>Thinking</summary>" in html
        assert "<summary>Call c1 of now</summary>" in html
        assert "> &lt;b>No.&lt;/b>" in markdown
        for shown in (html, markdown):
            assert FIGURES in shown

    def test_shows_all_candidates(self) -> None:
        both = Reply("a", None, "stop", REPLY.usage, REPLY.timings, candidates=(REPLY, REPLY))
        assert both._repr_html_().count(FIGURES) == both._repr_markdown_().count(FIGURES) == 2

    def test_leaves_out_what_there_is_not(self) -> None:
        cancelled = Reply("", None, "cancelled", Usage(4, 0, 0), Timings(0.0, None, 0.0, 0.0, 0.25, None, None))
        assert "cancelled; 0 tokens in 0.25 s; prompt of 4 tokens, 0 of them cached<" in cancelled._repr_html_()


class TestConversation:
    def test_shows_the_messages_and_the_last_replys_figures(self, engine: Engine) -> None:
        chat = engine.conversation("Be <kind>.", name="a & b")
        for shown in (chat._repr_html_(), chat._repr_markdown_()):
            assert "cached" not in shown
        chat.send("`Hi`", temperature=0, samplers=Dictation(engine, "Yes."))
        html, markdown = chat._repr_html_(), chat._repr_markdown_()
        for part in (
            "<strong>a &amp; b</strong>",
            "Be &lt;kind&gt;.",
            "<code>Hi</code>",
            ">Yes.</div>",
            "stop; 2 tokens",
        ):
            assert part in html
        assert markdown.startswith(
            "# a \\& b\n\n## System\n\n> Be &lt;kind>.\n\n## User\n\n> `Hi`\n\n## Assistant\n\n> Yes.\n"
        )
        chat.close()
        assert chat._repr_html_() == html


def test_the_cache_shows_as_a_picture_or_as_text(engine: Engine) -> None:
    chat = engine.conversation(name="<me>")
    chat.send("x", temperature=0, max_tokens=1)
    cache = engine.cache_map()
    assert cache._repr_html_() == f"<div>{cache._repr_svg_()}</div>"
    assert "<me>" not in cache._repr_html_()
    assert "&lt;me&gt;" in cache._repr_html_()
    lines = cache._repr_markdown_().splitlines()
    assert (lines[0], lines[-1]) == ("```text", "```")
    assert any(line.startswith("<me>") for line in lines)
