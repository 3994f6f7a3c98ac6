"""The grammar of a reply: llama.cpp's for the template's format, made to hold what was asked for.

llama.cpp writes a grammar for each prompt that offers tools, and parses by the same rules. What is changed here makes
it allow less, so that every reply it allows can still be read: arguments follow the whole schema, not what llama.cpp's
converter of schemas keeps of it, and a reply that must call tools begins with calls, behind its thinking.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.chat.gbnf_text import put_together, renamed, take_apart, tokens, without_unused
from causerie.chat.schema.grammar import schema_to_grammar
from causerie.chat.text_ids import text_ids, token_ids
from causerie.errors import GrammarError, SchemaError, TemplateError, UnsupportedError
from causerie.llama.sampler import Sampler, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from causerie.chat.chat_template import Prompt
    from causerie.llama.vocab import Vocab

__all__ = ["ReplyGrammar", "answer_grammar", "thinking_section", "tools_grammar"]

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9-]+")  # llama.cpp's own rule for names of rules
_FREE_TEXT = re.compile(r"until-[0-9]+")
_WORD, _PATTERN, _WHOLE = 1, 2, 3  # llama.cpp's common_grammar_trigger_type
_UNUSABLE = {">>>(?!all)"}  # of Functionary 3.2: what it matches is not a part of the grammar
# llama.cpp's patterns repeat without a bound only blanks and names.
_BOUNDS = {r"\s+": r"\s{1,8}", "[^<]*?": "[^<]{0,80}"}


@dataclass(frozen=True)
class ReplyGrammar:
    """What a reply has to follow.

    Attributes:
        text: GBNF.
        begun: text that the grammar has seen before the reply: the end of the prompt.
        words, patterns: what it begins with, where it does not hold for the whole reply.
        thinking: the parts of the reply in which it does not begin.
        shown: texts of the control tokens that may be used; no others are, as nobody would see their text.
    """

    text: str
    begun: str = ""
    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    thinking: Section | None = None
    shown: tuple[str, ...] = ()

    def sampler(self, vocab: Vocab, reply: Iterable[int] = ()) -> Sampler:
        """A sampler that excludes what it does not allow. The caller owns it.

        Args:
            vocab: the vocabulary.
            reply: the ids of a reply that goes on.

        Raises:
            GrammarError: it is malformed, or cannot be worked with.
            TemplateError: it does not allow what the prompt, or the reply's beginning, ends with.
        """
        shown = token_ids(self.shown, vocab)
        if self.words or self.patterns:
            sampler = Sampler.grammar_after(
                vocab, self.text, words=self.words, patterns=self.patterns, outside=self.thinking, shown=shown
            )
        else:
            sampler = Sampler.grammar(vocab, self.text, shown=shown)
            reply = (*text_ids(vocab, self.begun, inside=True), *reply)
        try:
            for token in reply:
                sampler.accept(token)
        except GrammarError as error:
            sampler.close()
            raise TemplateError(f"the grammar of this reply does not allow what it begins with: {error}") from error
        except BaseException:
            sampler.close()
            raise
        return sampler


def tools_grammar(prompt: Prompt, tools: Sequence[Mapping[str, Any]], *, required: bool) -> ReplyGrammar | None:
    """The grammar of a reply that may call tools; None: llama.cpp has none for this format.

    Args:
        prompt: offers the tools.
        tools: those that may be called, in the OpenAI shape.
        required: whether it has to call one.

    Raises:
        UnsupportedError: llama.cpp cannot tell the names of two tools apart.
    """
    if not prompt.grammar:
        return None
    rules = _with_schemas(take_apart(prompt.grammar), tools)
    if prompt.grammar_lazy:
        found = ReplyGrammar(
            put_together(without_unused(rules)),
            words=tuple(str(t["value"]) for t in prompt.grammar_triggers if t["type"] == _WORD),
            patterns=tuple(_patterns(prompt)),
            thinking=thinking_section(prompt),
            shown=prompt.preserved_tokens,
        )
        return found if found.words or found.patterns else None
    if required:
        rules["root"] = _without_text(rules["root"], prompt.thinking_end_tags)
        rules["reply-space"] = "[ \\n]{0,4}"
    return ReplyGrammar(put_together(without_unused(rules)), begun=prompt.grammar_begins, shown=prompt.preserved_tokens)


def answer_grammar(prompt: Prompt, constraint: str, of_schema: str) -> ReplyGrammar | None:
    """The grammar of a reply whose text follows a constraint, behind its thinking and inside of its format's marks.

    Args:
        prompt: what it replies to.
        constraint: GBNF for the text.
        of_schema: llama.cpp's grammar for a reply to the same prompt whose text follows a JSON schema.

    Returns:
        None: that grammar has no place for it, or one at which it would not be read as the text.
    """
    rules = {name: _plain(body, prompt.thinking_end_tags) for name, body in take_apart(of_schema).items()}
    place = next((name for name in ("response-format-schema", "response-format") if name in rules), None)
    if place is None:
        return None
    last = tokens(rules["root"])[-1][1]
    if place in {last, rules.get(last)} and not _reads_text_behind_thinking(prompt):
        return None
    rules.update(renamed(take_apart(constraint), lambda name: f"answer-{name}"))
    rules[place] = "answer-root"
    rules = without_unused(rules)
    if place not in rules:
        return None
    return ReplyGrammar(put_together(rules), begun=prompt.grammar_begins, shown=prompt.preserved_tokens)


def _reads_text_behind_thinking(prompt: Prompt) -> bool:
    """Whether what comes right behind the thinking is read as the text, without marks around it."""
    if not (prompt.thinking_start_tag and prompt.thinking_end_tags):
        return True
    begun = prompt.generation_prompt.rstrip().endswith(prompt.thinking_start_tag.rstrip())
    thought = f"{'' if begun else prompt.thinking_start_tag}Hm.{prompt.thinking_end_tags[0]}"
    try:
        return prompt.parse(f"{thought}A text.").text.strip() == "A text."
    except TemplateError:
        return False


def _plain(body: str, thinking_ends: Iterable[str]) -> str:
    """A rule that asks for a text as it is, not as JSON in a fence, behind thinking that has its end."""
    text = " ".join(token for _, token in tokens(body))
    text = re.sub(r'"```json" space (response-format(?:-schema)?) space "```"', r"\1", text)
    text = re.sub(r"\( (?:space )?(response-format(?:-schema)?) \| (?:space )?\1(?: space)? \)", r"\1", text)
    for end in thinking_ends:
        literal = re.escape('"' + end.replace("\n", "\\n") + '"')
        text = re.sub(rf"\( ({literal}) \| \)|({literal}) \?", r"\1\2", text)
    return text


def _patterns(prompt: Prompt) -> Iterator[str]:
    for trigger in prompt.grammar_triggers:
        value = str(trigger["value"])
        if trigger["type"] in {_PATTERN, _WHOLE} and value not in _UNUSABLE:
            for unbounded, bounded in _BOUNDS.items():
                value = value.replace(unbounded, bounded)
            yield value if trigger["type"] == _PATTERN else f"^{value.removeprefix('^').removesuffix('$')}$"


def thinking_section(prompt: Prompt) -> Section | None:
    """The thinking of the reply, in which a model may write of calls; None: its format has no marks around it."""
    opening, closings = prompt.thinking_start_tag.strip(), tuple(map(str.strip, prompt.thinking_end_tags))
    if not opening or not closings:
        return None
    begun = prompt.generation_prompt.rfind(opening)
    ended = max(map(prompt.generation_prompt.rfind, closings))
    return Section(opening, closings, begun >= 0 and begun > ended)


def _without_text(root: str, thinking_ends: Iterable[str]) -> str:
    """The root without free text, except that of thinking."""
    parts = tokens(root)
    ends = set(map(str.strip, thinking_ends))
    kept: list[str] = []
    index = 0
    while index < len(parts):
        kind, text = parts[index]
        index += 1
        if kind == "name" and _FREE_TEXT.fullmatch(text) and not _ends_with(parts[index:], ends):
            if index < len(parts) and parts[index][1] == "?":
                index += 1
            text = "reply-space"
        kept.append(text)
    return " ".join(kept)


def _ends_with(parts: Iterable[tuple[str, str]], ends: set[str]) -> bool:
    """Whether the next text that is more than space is one of these."""
    for kind, text in parts:
        if kind == "literal":
            said = text[1:-1].replace("\\n", "\n").replace('\\"', '"').strip()
            if said:
                return said in ends
        elif kind == "name" and text != "space":
            return False
    return False


def _with_schemas(rules: dict[str, str], tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """With the rules of all arguments that are JSON made of their whole schemas."""
    names: dict[str, str] = {}
    found = dict(rules)
    for number, tool in enumerate(tools):
        name = _NOT_IN_NAMES.sub("-", tool["function"]["name"])
        other = names.setdefault(name, tool["function"]["name"])
        if other != tool["function"]["name"]:
            raise UnsupportedError(
                f"llama.cpp's grammars do not tell the tools {other!r} and {tool['function']['name']!r} apart: let "
                "their names differ in more than _ and ."
            )
        for rule, schema in _schemas(name, tool["function"].get("parameters") or {}):
            if rule in rules:
                own = _schema_rules(schema, f"s{number}-{len(found)}-")
                if own is not None:
                    root, more = own
                    found.update(more)
                    found[rule] = root
    return found


def _schemas(name: str, parameters: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The names that llama.cpp gives to rules of schemas, and the schemas."""
    closed = {} if parameters.get("properties") or "$ref" in parameters else {"additionalProperties": False}
    yield f"tool-{name}-schema", {"type": "object", "properties": {}, **closed, **parameters}
    shared = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    for parameter, schema in (parameters.get("properties") or {}).items():
        if isinstance(schema, dict):
            rule = _NOT_IN_NAMES.sub("-", f"tool-{name}-arg-{parameter}-schema")
            yield rule, {**shared, **schema}


def _schema_rules(schema: Mapping[str, Any], prefix: str) -> tuple[str, dict[str, str]] | None:
    """The root of a schema's grammar, and its rules; None if no grammar can hold it."""
    try:
        gbnf = schema_to_grammar(schema).text
    except SchemaError:
        return None
    own = renamed(take_apart(gbnf), lambda name: f"{prefix}{name}")
    return f"{prefix}root", own
