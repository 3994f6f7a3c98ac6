"""How conversations and replies show in a notebook: HTML where it can be shown, else Markdown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.chat.messages import Message
from causerie.chat.transcript_html import escaped, fragment, message_html
from causerie.chat.transcript_markdown import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.conversation.reply import Reply, Report

__all__ = ["conversation_html", "conversation_markdown", "figures", "reply_html", "reply_markdown"]


def figures(report: Reply | Report) -> str:
    """The figures of a reply in one line."""
    usage, timings = report.usage, report.timings
    rate = "" if timings.tokens_per_second is None else f" ({timings.tokens_per_second:.1f} per second)"
    said = [
        report.finish_reason,
        f"{usage.completion_tokens} tokens in {timings.total:.2f} s{rate}",
        f"prompt of {usage.prompt_tokens} tokens, {usage.cached_tokens} of them cached",
    ]
    if timings.first_token is not None:
        said.append(f"first token after {timings.first_token:.2f} s")
    return "; ".join(said)


def conversation_html(messages: Sequence[Message], report: Report | None, name: str) -> str:
    """A conversation with the figures of its last reply, as part of a page."""
    end = [] if report is None else [_report_html(report)]
    return fragment(f"<strong>{escaped(name)}</strong>", *map(message_html, messages), *end)


def conversation_markdown(messages: Sequence[Message], report: Report | None, name: str) -> str:
    """The same as Markdown."""
    return markdown(messages, name) + ("" if report is None else f"\n*{figures(report)}*\n")


def reply_html(reply: Reply) -> str:
    """A reply, or all its candidates, with its figures, as part of a page."""
    return fragment(*(block for each in _all(reply) for block in (message_html(_shown(each)), _report_html(each))))


def reply_markdown(reply: Reply) -> str:
    """The same as Markdown."""
    return "\n".join(f"{markdown([_shown(each)])}\n*{figures(each)}*\n" for each in _all(reply))


def _all(reply: Reply) -> tuple[Reply, ...]:
    return reply.candidates or (reply,)


def _shown(reply: Reply) -> Message:
    return Message("assistant", reply.text, thinking=reply.thinking, tool_calls=reply.tool_calls)


def _report_html(report: Reply | Report) -> str:
    return f'<div class="report">{escaped(figures(report))}</div>'
