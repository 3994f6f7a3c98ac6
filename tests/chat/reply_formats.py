"""How each template's model writes thinking, text and tool calls: replies made from the formats' own documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Call = tuple[str, Mapping[str, Any]]


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: object) -> str:
    return value if isinstance(value, str) else dumped(value)


def python(value: object) -> str:
    return repr(value)


def each(pattern: str, separator: str = "", name: str = "name", arguments: str = "arguments") -> Callable[..., str]:
    """Calls as JSON objects, each inside the pattern."""
    return lambda calls: separator.join(pattern % dumped({name: n, arguments: a}) for n, a in calls)


def array(pattern: str, name: str = "name", arguments: str = "arguments", **ids: str) -> Callable[..., str]:
    """Calls as one JSON array inside the pattern."""
    return lambda calls: pattern % dumped([{name: n, arguments: a, **ids} for n, a in calls])


def pair(pattern: str, separator: str = "", around: str = "%s") -> Callable[..., str]:
    """Calls as a name and a JSON object of arguments."""
    return lambda calls: around % separator.join(pattern % (n, dumped(a)) for n, a in calls)


def tagged(pattern: str, one: str, separator: str = "", around: str = "%s", between: str = "") -> Callable[..., str]:
    """Calls as a name and tagged arguments."""

    def write(calls: list[Call]) -> str:
        return around % separator.join(
            pattern % (n, between.join(one % (k, plain(v)) for k, v in a.items())) for n, a in calls
        )

    return write


def cohere(calls: list[Call]) -> str:
    entries = [{"tool_call_id": str(i), "tool_name": n, "parameters": a} for i, (n, a) in enumerate(calls)]
    return f"<|START_ACTION|>{dumped(entries)}<|END_ACTION|>"


def gemma4(calls: list[Call]) -> str:
    def value(v: object) -> str:
        return f'<|"|>{v}<|"|>' if isinstance(v, str) else dumped(v)

    return "".join(
        "<|tool_call>call:{}{{{}}}<tool_call|>".format(n, ",".join(f"{k}:{value(v)}" for k, v in a.items()))
        for n, a in calls
    )


def dsml(section: str) -> Callable[..., str]:
    def one(key: str, value: object) -> str:
        kind = "true" if isinstance(value, str) else "false"
        return f'<｜DSML｜parameter name="{key}" string="{kind}">{plain(value)}</｜DSML｜parameter>\n'

    def write(calls: list[Call]) -> str:
        body = "".join(
            f'<｜DSML｜invoke name="{n}">\n{"".join(one(k, v) for k, v in a.items())}</｜DSML｜invoke>\n'
            for n, a in calls
        )
        return f"\n\n<｜DSML｜{section}>\n{body}</｜DSML｜{section}>"

    return write


def kimi_k3(calls: list[Call]) -> str:
    def one(key: str, value: object) -> str:
        kind = "string" if isinstance(value, str) else "number"
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{plain(value)}<|close|>argument<|sep|>'

    body = "".join(
        f'<|open|>call tool="{n}" index="{i}"<|sep|>{"".join(one(k, v) for k, v in a.items())}<|close|>call<|sep|>'
        for i, (n, a) in enumerate(calls, 1)
    )
    return f"<|open|>tools<|sep|>{body}<|close|>tools<|sep|>"


def kimi_k2(calls: list[Call]) -> str:
    body = "".join(
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{dumped(a)}<|tool_call_end|>"
        for i, (n, a) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"


def lfm2(calls: list[Call]) -> str:
    inner = ", ".join(f"{n}({', '.join(f'{k}={python(v)}' for k, v in a.items())})" for n, a in calls)
    return f"<|tool_call_start|>[{inner}]<|tool_call_end|>"


def minimax_m3(calls: list[Call]) -> str:
    mark = "]<]minimax[>["
    body = "".join(
        f'{mark}<invoke name="{n}">'
        + "".join(f"{mark}<{k}>{plain(v)}{mark}</{k}>" for k, v in a.items())
        + f"{mark}</invoke>\n"
        for n, a in calls
    )
    return f"{mark}<tool_call>\n{body}{mark}</tool_call>"


@dataclass(frozen=True)
class Format:
    """One way to write replies.

    Attributes:
        templates: those of llama.cpp's that use it.
        calls: writes tool calls; None: it has none.
        think: what surrounds thinking; ("", "") where there is none.
        text: a pattern for text that ends the reply.
        spoken: a pattern for text in front of calls; "" where there can be none.
        many: whether a reply may hold several calls.
        begun: the beginning of the thinking, which the prompt holds.
        must_call: whether every reply is calls where tools are offered.
    """

    templates: tuple[str, ...]
    calls: Callable[..., str] | None = None
    think: tuple[str, str] = ("", "")
    text: str = "%s"
    spoken: str = "%s"
    many: bool = True
    begun: str = ""
    must_call: bool = False


THINK = ("<think>\n", "\n</think>\n\n")
TIGHT = ("<think>", "</think>")
HERMES = each("<tool_call>\n%s\n</tool_call>", "\n")
FUNCTION = tagged("<tool_call>\n<function=%s>\n%s</function>\n</tool_call>", "<parameter=%s>\n%s\n</parameter>\n", "\n")
ARG_KEYS = tagged("<tool_call>%s%s</tool_call>", "<arg_key>%s</arg_key><arg_value>%s</arg_value>")
ARG_LINES = tagged("<tool_call>%s\n%s</tool_call>", "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n", "\n")
HY3 = tagged(
    "<tool_call:opensource>%s<tool_sep:opensource>\n%s</tool_call:opensource>\n",
    "<arg_key:opensource>%s</arg_key:opensource>\n<arg_value:opensource>%s</arg_value:opensource>\n",
    around="<tool_calls:opensource>\n%s</tool_calls:opensource>",
)


def muse(calls: list[Call]) -> str:
    def one(n: str, a: Mapping[str, Any]) -> str:
        body = "".join(f'<atem:parameter name="{k}">{plain(v)}</atem:parameter>\n' for k, v in a.items())
        return (
            f' to={n}<|message|><atem:function_calls>\n<atem:invoke name="{n}">\n{body}</atem:invoke>\n'
            "</atem:function_calls>"
        )

    return "<|eom|><|start|>assistant".join(one(n, a) for n, a in calls)


FORMATS = {
    "Hermes": Format(
        (
            "MiMo-VL",
            "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
            "Qwen-Qwen2.5-7B-Instruct",
            "ibm-granite-granite-4.0",
            "ibm-granite-granite-4.1",
        ),
        HERMES,
    ),
    "Hermes with thinking": Format(
        ("Bielik-11B-v3.0-Instruct", "Qwen-QwQ-32B", "Qwen-Qwen3-0.6B", "Reka-Edge"), HERMES, THINK
    ),
    "Qwen3-Coder": Format(("Qwen3-Coder",), FUNCTION),
    "Qwen3.5": Format(("Qwen3.5-4B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "StepFun3.5-Flash"), FUNCTION, THINK),
    "Seed-OSS": Format(
        ("ByteDance-Seed-OSS",),
        tagged(
            "<seed:tool_call>\n<function=%s>\n%s</function>\n</seed:tool_call>", "<parameter=%s>%s</parameter>\n", "\n"
        ),
        ("<seed:think>", "</seed:think>"),
    ),
    "GLM": Format(("GLM-4.6", "inclusionai-ling-3.0-flash"), ARG_LINES, TIGHT),
    "Laguna XS": Format(("poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2"), ARG_LINES, THINK),
    "GLM 4.7": Format(("GLM-4.7-Flash", "Spark2.5", "poolside-Laguna-S-2.1"), ARG_KEYS, TIGHT),
    "Hunyuan 3": Format(("tencent-Hy3",), HY3),
    "MiniMax M1": Format(
        ("MiniMax-M1",), lambda calls: "<tool_calls>\n" + each("%s\n")(calls) + "</tool_calls>", many=False
    ),
    "MiniMax M2": Format(
        ("MiniMax-M2",),
        tagged(
            '<invoke name="%s">\n%s</invoke>\n',
            '<parameter name="%s">%s</parameter>\n',
            around="<minimax:tool_call>\n%s</minimax:tool_call>",
        ),
        THINK,
        many=False,
    ),
    "MiniMax M3": Format(("MiniMax-M3",), minimax_m3, ("<mm:think>", "</mm:think>")),
    "Apriel 1.5": Format(("unsloth-Apriel-1.5",), array("<tool_calls>%s</tool_calls>")),
    "Apriel 1.6": Format(
        ("Apriel-1.6-15b-Thinker-fixed",),
        array("<tool_calls>%s</tool_calls>"),
        ("", "\n[BEGIN FINAL RESPONSE]\n"),
        begun="Here are my reasoning steps:\n",
    ),
    "Nemotron Nano v2": Format(("NVIDIA-Nemotron-Nano-v2",), array("<TOOLCALL>%s</TOOLCALL>"), THINK),
    "Command R7B": Format(
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use",),
        cohere,
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        "<|START_RESPONSE|>%s<|END_RESPONSE|>",
        "",
    ),
    "Command A": Format(
        ("Cohere2MoE",), cohere, ("<|START_THINKING|>", "<|END_THINKING|>"), "<|START_TEXT|>%s<|END_TEXT|>", ""
    ),
    "Command R+": Format(
        ("CohereForAI-c4ai-command-r-plus-tool_use",),
        array("Action:\n```json\n%s\n```", "tool_name", "parameters"),
        spoken="",
        must_call=True,
    ),
    "Kimi K2": Format(("Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"), kimi_k2, TIGHT),
    "Kimi K3": Format(
        ("Kimi-K3",),
        kimi_k3,
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        "<|open|>response<|sep|>%s<|close|>response<|sep|>",
        "<|open|>response<|sep|>%s<|close|>response<|sep|>",
    ),
    "LFM2": Format(("LFM2-8B-A1B", "LFM2.5-Instruct"), lfm2),
    "LFM2 with thinking": Format(("LFM2.5-8B-A1B",), lfm2, TIGHT),
    "Mistral Nemo": Format(
        ("mistralai-Mistral-Nemo-Instruct-2407",),
        lambda calls: (
            "[TOOL_CALLS]"
            + dumped([{"name": n, "arguments": a, "id": f"abcdefgh{i}"} for i, (n, a) in enumerate(calls)])
        ),
    ),
    "Mistral Small 3.2": Format(
        ("Mistral-Small-3.2-24B-Instruct-2506",),
        lambda calls: "".join(
            f"[TOOL_CALLS]{n}[CALL_ID]abcdefgh{i}[ARGS]{dumped(a)}" for i, (n, a) in enumerate(calls)
        ),
    ),
    "Ministral 3": Format(
        ("mistralai-Ministral-3-14B-Reasoning-2512", "unsloth-mistral-Devstral-Small-2507"),
        pair("[TOOL_CALLS]%s[ARGS]%s"),
        ("[THINK]", "[/THINK]"),
    ),
    "Llama 3": Format(
        ("meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"),
        each("%s", name="name", arguments="parameters"),
        spoken="",
        many=False,
    ),
    "DeepSeek R1": Format(
        ("llama-cpp-deepseek-r1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
        pair(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n%s\n```<｜tool▁call▁end｜>",
            "\n",
            "<｜tool▁calls▁begin｜>%s<｜tool▁calls▁end｜>",
        ),
        THINK,
    ),
    "DeepSeek V3.1": Format(
        ("deepseek-ai-DeepSeek-V3.1",),
        pair(
            "<｜tool▁call▁begin｜>%s<｜tool▁sep｜>%s<｜tool▁call▁end｜>",
            around="<｜tool▁calls▁begin｜>%s<｜tool▁calls▁end｜>",
        ),
        TIGHT,
    ),
    "DeepSeek V3.2": Format(("deepseek-ai-DeepSeek-V3.2",), dsml("function_calls"), TIGHT),
    "DeepSeek V4": Format(("deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731"), dsml("tool_calls"), TIGHT),
    "FireFunction": Format(("fireworks-ai-llama-3-firefunction-v2",), array(" functools%s")),
    "Functionary 3.1": Format(("meetkai-functionary-medium-v3.1",), pair("<function=%s>%s</function>")),
    "Functionary 3.2": Format(
        ("meetkai-functionary-medium-v3.2",), pair("%s\n%s"), text="all\n%s", spoken="", many=False
    ),
    "gpt-oss": Format(
        ("openai-gpt-oss-120b",),
        pair("<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        "<|channel|>final<|message|>%s",
        "<|channel|>commentary<|message|>%s<|end|><|start|>assistant",
        many=False,
    ),
    "Gemma 4": Format(
        ("google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"),
        gemma4,
        ("<|channel>thought\n", "<channel|>"),
    ),
    "Muse Glimmer": Format(
        ("muse-glimmer",),
        muse,
        (" to=self<|message|>", "<|eom|><|start|>assistant"),
        "<|message|>%s",
        " to=user<|message|>%s<|eom|><|start|>assistant",
    ),
    "GigaChat 3": Format(
        ("GigaChat3-10B-A1.8B",), each("<|message_sep|>\n\nfunction call<|role_sep|>\n%s"), many=False
    ),
    "GigaChat 3.1": Format(("GigaChat3.1-10B-A1.8B",), each("<|function_call|>%s"), many=False),
    "MiniCPM 5": Format(
        ("openbmb-MiniCPM5-1B",),
        tagged('<function name="%s">%s</function>', '<param name="%s">%s</param>', "\n"),
        THINK,
    ),
    "Apertus": Format(
        ("Apertus-8B-Instruct",),
        lambda calls: "<|tools_prefix|>" + dumped([{n: a} for n, a in calls]) + "<|tools_suffix|>",
    ),
    "Solar": Format(
        ("upstage-Solar-Open-100B",),
        lambda calls: (
            "<|tool_calls|>"
            + "".join(
                f"<|tool_call:begin|>call0000{i}<|tool_call:name|>{n}<|tool_call:args|>{dumped(a)}<|tool_call:end|>"
                for i, (n, a) in enumerate(calls, 1)
            )
            + "<|calls|>"
        ),
        many=False,
    ),
    "thinking only": Format(
        (
            "HuggingFaceTB-SmolLM3-3B",
            "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
            "ibm-granite-granite-3.3-2B-Instruct",
            "llama-cpp-rwkv-world",
        ),
        None,
        THINK,
    ),
    "text only": Format(("google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct")),
}
