"""Messages as HTML: a page that needs nothing else and loads nothing, or a part of one for notebooks."""

from __future__ import annotations

import html
import json
import re
from itertools import takewhile
from typing import TYPE_CHECKING

from causerie.chat.frozen_json import thaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from causerie.chat.messages import Message

__all__ = ["escaped", "fragment", "message_html", "page"]

STYLE = """
.causerie{font-family:system-ui,sans-serif;line-height:1.5;max-width:50rem}
.causerie section{border-left:.25rem solid #8888;margin:1rem 0;padding:0 0 0 1rem}
.causerie section.user{border-color:#36c}.causerie section.assistant{border-color:#2a7}
.causerie section.tool{border-color:#c83}.causerie h2{font-size:.85rem;margin:0;opacity:.7}
.causerie .text{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext}
.causerie pre{background:#8882;overflow-x:auto;padding:.5rem;white-space:pre;margin:.5rem 0}
.causerie code{font-family:ui-monospace,monospace}.causerie details{margin:.25rem 0}
.causerie summary{cursor:pointer;opacity:.8}.causerie img{max-width:100%}
.causerie .report{font-size:.8rem;opacity:.7}
"""
_PAGE = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}body{{margin:2rem auto;max-width:52rem;padding:0 1rem}}</style>
</head>
<body class="causerie">
<h1>{title}</h1>
{body}
</body>
</html>
"""
_NO_HTML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^`]*)$")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,30}")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")


def page(messages: Iterable[Message], title: str = "Conversation") -> str:
    """A whole page, by itself: no scripts, no links, nothing that is loaded from elsewhere."""
    body = "\n".join(message_html(message) for message in messages)
    return _PAGE.format(title=escaped(title), style=STYLE, body=body)


def fragment(*blocks: str) -> str:
    """Blocks of HTML as a part of a page, with their style, which touches nothing else."""
    return "\n".join([f"<style>{STYLE}</style>", '<div class="causerie">', *blocks, "</div>"])


def message_html(message: Message) -> str:
    """A message as one block. Its text shows as it is, blocks and spans of code as code; nothing of it becomes HTML."""
    who = message.role.capitalize() + (f" ({message.name})" if message.name else "")
    parts = [f'<section class="{message.role}"><h2>{escaped(who)}</h2>', *_blocks(message), "</section>"]
    return "\n".join(parts)


def escaped(text: str) -> str:
    """A text that is text wherever it stands in HTML, in an attribute too."""
    return html.escape(_NO_HTML.sub("\ufffd", text))


def _blocks(message: Message) -> Iterator[str]:
    if message.thinking:
        yield _folded("Thinking", _text(message.thinking))
    if message.role == "tool":
        yield _folded(f"Result of call {message.tool_call_id}", f"<pre>{escaped(message.text)}</pre>")
    elif message.text:
        yield _text(message.text)
    if not isinstance(message.content, str):
        yield from (_part(part) for part in message.content if part["type"] != "text")
    for call in message.tool_calls:
        yield _folded(f"Call {call.id} of {call.name}", _json(call.arguments))


def _part(part: Mapping[str, Any]) -> str:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else None
    if part["type"] == "image_url" and isinstance(url, str) and _IMAGE.fullmatch(url):
        return f'<img alt="image" src="{url}">'
    return _folded(part["type"], _json(part))


def _folded(summary: str, block: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{block}</details>"


def _json(value: object) -> str:
    return f"<pre><code>{escaped(json.dumps(thaw(value), ensure_ascii=False, indent=2))}</code></pre>"


def _text(text: str) -> str:
    return "".join(_text_blocks(re.split(r"\r\n|\r|\n", text)))


def _text_blocks(lines: list[str]) -> Iterator[str]:
    said: list[str] = []
    position = 0
    while position < len(lines):
        opening = _FENCE.match(lines[position])
        position += 1
        if opening is None:
            said.append(lines[position - 1])
            continue
        yield _said(said)
        said = []
        indent, fence, info = opening.groups()
        closing = re.compile(rf"[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
        code = list(takewhile(lambda line, end=closing: end.match(line) is None, lines[position:]))  # type: ignore[misc]
        position += len(code) + 1
        language = _LANGUAGE.match(info)
        kind = f' class="language-{language[0]}"' if language else ""
        inside = "\n".join(line.removeprefix(indent) for line in code)
        yield f"<pre><code{kind}>{escaped(inside)}</code></pre>"
    yield _said(said)


def _said(lines: list[str]) -> str:
    text = "\n".join(lines).strip("\n")
    if not text.strip():
        return ""
    pieces: list[str] = []
    start = 0
    for span in _SPAN.finditer(text):
        pieces += escaped(text[start : span.start()]), f"<code>{escaped(span[2])}</code>"
        start = span.end()
    return f'<div class="text" dir="auto">{"".join([*pieces, escaped(text[start:])])}</div>'
