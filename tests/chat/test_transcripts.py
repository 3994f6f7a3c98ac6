"""Messages as documents for people: what is said shows as it was written, and nothing of it gets out of its place."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from causerie.chat import Message, ToolCall
from causerie.chat.markdown_text import fenced, literal, quoted
from causerie.chat.transcript_html import page
from causerie.chat.transcript_markdown import markdown

CALL = ToolCall("c1", "look<up>", {"word": "`a`</pre>\n```"})
TALK = (
    Message("system", "Be *kind*."),
    Message("user", "Is <b>this</b> bold?\n\n<script>alert(1)</script> & &amp;", name="Ada <i>"),
    Message("assistant", "Look:\n```python\nif a < b:\n    print('<b>')\n```\nor `<i>`.", thinking="Hm, <u>so</u>."),
    Message("assistant", tool_calls=(CALL,)),
    Message("tool", "```\n</details>\n````", tool_call_id="c1", name="look<up>"),
)
OURS = {"section", "h1", "h2", "div", "pre", "code", "details", "summary", "img"}


class _Seen(HTMLParser):
    """The tags of a document, and the text in them."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def body(document: str) -> str:
    return document.partition('<body class="causerie">')[2].partition("</body>")[0]


def shown(text: str) -> str:
    """Markdown as a reader of GitHub's kind shows it, without taking any HTML away."""
    html: str = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
    return html


# What decides where code begins and ends, with what must never get out of it.
pieces = st.sampled_from(
    [
        *("<script>", "</p>", "<!--", "&lt;", "a<b", "`", "``", "```", "````", "~~~", "```py", "\\", "\\`", "|", "---"),
        *(
            "\n",
            "\n",
            "\n",
            "\n\n",
            " ",
            "  ",
            "    ",
            "\t",
            "- ",
            "1. ",
            "> ",
            "# ",
            "x",
            "[a]: /u",
            "[^1]: ",
            "| - |",
        ),
        *("\u00a0", "\x0b", "\r", "\u2028", "]", "(", "$", "*"),
    ]
)
nasty = st.lists(pieces, max_size=30).map("".join)
_BEGINS = ("", "", "", " ", "  ", "   ", "    ", "     ", "\t", "- ", "-   ", "1. ", "10. ", "> ", "* - ", "# ")
_LINES = (
    *("```", "```", "````", "~~~", "```py", "``` `", "`", "``", "x `", "", "", "\u00a0", "\x0b", "---", "[^1]: x"),
    *("<script>", "`<script>`", "| `<script> | b` |", "|-|-|", "\\`<script>`", "\\\\`<script>`", "` <script> `"),
    *("```<script>```", "a|`<script>|`"),
)
lines = st.lists(st.builds(str.__add__, st.sampled_from(_BEGINS), st.sampled_from(_LINES)), max_size=8).map("\n".join)


class TestMarkdown:
    @settings(max_examples=300, deadline=None)
    @given(nasty | lines)
    @example("- a\n  ```\n<script>\n  ```")
    @example("- ```\n  x\n```\n<script>")
    @example("  ```\nx\n```\n<script>")
    @example("1. a\n   ```\n    ```\n   <script>\n   ```")
    @example("- a\n  ```\n   ```\n  <script>\n\n  ```\n```\n<script>")
    @example("[^1]: x\n     |-|-|\n10. | `<script> | b` |\n     |-|-|")
    @example("x `\n  ` <script> `\\`<script>`")
    @example("x `\n\x0b\n` <script> `")
    @example("\\`<script>`")
    def test_no_text_becomes_html_or_leaves_its_quote(self, text: str) -> None:
        html = shown(f"{quoted(text)}\n\nthe end <i>")
        assert "<script" not in html
        assert "<!--" not in html
        assert html.endswith("</blockquote>\n<p>the end <i></p>\n")

    def test_the_whole(self) -> None:
        said = markdown(TALK, "A *talk*")
        assert said.startswith("# A \\*talk\\*\n\n## System\n\n> Be *kind*.\n\n## User (Ada \\<i\\>)\n\n")
        seen = _Seen(shown(said))
        assert {"script", "b", "i", "u"}.isdisjoint(seen.tags)
        assert seen.tags.count("details") == seen.tags.count("summary") == 3
        text = "".join(seen.text)
        assert "<script>alert(1)</script> & &amp;" in text
        assert "if a < b:\n    print('<b>')" in text
        assert "or <i>." in text
        assert "```\n</details>\n````" in text
        assert json.loads(re.findall(r"```json\n(.*?)\n`{3,}", said.replace("````", "```"), re.DOTALL)[0]) == {
            "word": CALL.arguments["word"]
        }

    @pytest.mark.parametrize(
        "code",
        [
            "```\n<b>\n```",
            "~~~html\n<b> `\n~~~",
            "text\n```\n<b>\n\n<i>\n```\n`<u>`",
            "- a\n  ```\n  <b>\n\n  ```\n- b",
            "1. a\n   ~~~\n   <b>\n   ~~~",
            "```\n<b>",
            "``<b>` `` and `<b>`",
        ],
    )
    def test_code_stays_as_it_is(self, code: str) -> None:
        assert quoted(code).replace("> ", "").replace(">", "") == code.replace("> ", "").replace(">", "")

    def test_markdown_and_comparisons_stay(self) -> None:
        text = "**a** < b <= c, `x`, AT&T\n\n- item"
        assert quoted(text) == "> **a** < b <= c, `x`, AT&T\n>\n> - item"

    @settings(max_examples=60, deadline=None)
    @given(nasty)
    def test_a_block_of_code_shows_just_its_text(self, text: str) -> None:
        html = shown(fenced(text))
        assert html.startswith("<pre><code>")
        assert html.count("<pre>") == 1
        assert "".join(_Seen(html).text) == re.sub("\r\n|\r", "\n", text) + "\n\n"

    @settings(max_examples=60, deadline=None)
    @given(nasty)
    def test_a_name_is_one_line_of_text(self, text: str) -> None:
        html = shown(f"## x {literal(text)}x\n")
        seen = _Seen(html)
        assert seen.tags == ["h2"]


class TestHtml:
    @settings(max_examples=100, deadline=None)
    @given(nasty, nasty)
    def test_no_text_becomes_a_tag(self, text: str, name: str) -> None:
        messages = [
            Message("user", text, name=name or None),
            Message("assistant", text, thinking=text, tool_calls=(ToolCall(name or "c", name or "f", {text: text}),)),
            Message("tool", text, tool_call_id=name or "c"),
        ]
        seen = _Seen(body(page(messages, name)))
        assert set(seen.tags) <= OURS
        assert {key for key, _ in seen.attributes} <= {"class", "dir"}
        assert seen.tags.count("section") == 3

    def test_the_whole(self) -> None:
        document = page(TALK, "A <talk>")
        seen = _Seen(body(document))
        text = "".join(seen.text)
        assert "<script>alert(1)</script> & &amp;" in text
        assert ("class", "language-python") in seen.attributes
        assert "if a < b:\n    print('<b>')" in text
        assert seen.tags.count("details") == 3
        assert "<code>&lt;i&gt;</code>" in document
        assert "<title>A &lt;talk&gt;</title>" in document

    def test_needs_and_loads_nothing(self) -> None:
        document = page([Message("user", "![x](https://example.org/x.png) <img src=https://example.org>")])
        assert "default-src 'none'" in document
        assert re.findall(r"(?:src|href)=", body(document)) == ["src="]  # in the text
        assert "img" not in _Seen(body(document)).tags

    def test_shows_pictures_that_are_in_the_message_and_others_as_data(self) -> None:
        def picture(url: Any) -> dict[str, Any]:
            return {"type": "image_url", "image_url": {"url": url}}

        inside = "data:image/png;base64,iVBORw0KGgo="
        urls = [inside, "https://example.org/x.png", f'{inside}" onerror="x', "data:image/svg+xml;base64,AAAA", 3]
        seen = _Seen(body(page([Message("user", [picture(url) for url in urls])])))
        assert seen.tags.count("img") == 1
        assert ("src", inside) in seen.attributes
        assert "onerror" not in {key for key, _ in seen.attributes}
        assert seen.tags.count("details") == 4

    def test_characters_that_html_cannot_have_are_replaced(self) -> None:
        assert "a\ufffdb\tc" in page([Message("user", "a\0b\tc")])
