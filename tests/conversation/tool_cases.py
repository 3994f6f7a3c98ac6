"""What the tests of tools and thinking share: templates that llama.cpp ships, tools, replies as models write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import causerie

TEMPLATES = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "templates"
HERMES = "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"
QWEN25 = "Qwen-Qwen2.5-7B-Instruct"
QWEN3 = "Qwen-Qwen3-0.6B"
# As Qwen3's template, but short, and with all thinking that it is given.
SHORT = """\
{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}{% if tools %}Tools:{% for tool in tools %}
{{ tool.function.name }}{% endfor %}
{% endif %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}<|im_start|>assistant
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls %}
{%- if not loop.first or message.content %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>tool
{{ message.content }}<|im_end|>
{% elif message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""

# Calls without any marks, for which llama.cpp has no grammar until one is required.
BARE = (
    SHORT.replace("{%- if not loop.first or message.content %}{{ '\\n' }}{% endif %}<tool_call>\n", "{{ '' }}")
    .replace("\n</tool_call>", "")
    .replace('"arguments"', '"parameters"')
)


def shipped(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text("utf-8")


@causerie.tool
def weather(city: Literal["Oslo", "Rome"], days: int = 1) -> str:
    """Tells the weather."""
    return f"{city}: {days}"


@causerie.tool
def clock(zone: Literal["CET", "UTC"]) -> str:
    """Tells the time."""
    return zone


def hermes(*calls: tuple[str, dict[str, Any]]) -> str:
    """Calls as Hermes and Qwen write them, and their templates too."""
    return "\n".join(
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in calls
    )


OSLO = ("weather", {"city": "Oslo"})
ROME = ("weather", {"city": "Rome", "days": 2})


def called(calls: tuple[causerie.ToolCall, ...]) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in calls]
