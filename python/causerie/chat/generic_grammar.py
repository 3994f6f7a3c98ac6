"""The grammar of replies that call tools in plain text: what calls look like, and what may stand before them.

A reply is text, calls, or text and then calls; the calls are one JSON object behind which nothing follows::

    {"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}

Text never holds the beginning of such an object, so that each reply can be read in one way only.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from causerie.chat.schema.automaton import Complement, Expression, Matching, Symbol, either, repeated, sequence, text_of
from causerie.chat.schema.automaton_gbnf import automaton_node
from causerie.chat.schema.charset import ANY, chars
from causerie.chat.schema.gbnf import Alt, Chars, Grammar, Lit, Node, Rep, Seq
from causerie.chat.schema.grammar import schema_node, schema_to_grammar
from causerie.chat.schema.json_rules import JsonRules, literal_json
from causerie.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Thinking", "generic_grammar"]

_SPACE = chars(" \t\r\n")
_ANY_TEXT = repeated(Symbol(ANY), 0, None)
_MARKER = sequence(
    part
    for text in ("{", '"tool_calls"', ":")
    for part in (text_of(text), *([repeated(Symbol(_SPACE), 0, None)] if text != ":" else []))
)


class Thinking(NamedTuple):
    """How a reply may think first.

    Attributes:
        begun: whether the prompt has begun it: the start tag is not generated.
        start: the tag in front of it.
        ends: the tags that may end it.
    """

    begun: bool
    start: str
    ends: tuple[str, ...]


Choice: TypeAlias = Literal["auto", "none", "required"]


class _Reply:
    """Makes the rules of replies."""

    def __init__(self, thinking: Thinking | None) -> None:
        self.rules = JsonRules(Grammar())
        self.thinking = thinking

    def _without(self, hint: str, *unwanted: Expression) -> Node:
        """Texts that hold none of these."""
        holding = Matching(either(sequence((_ANY_TEXT, part, _ANY_TEXT)) for part in unwanted))
        return automaton_node(self.rules.grammar, Complement(holding), hint, "", in_json=False)

    def calls(self, tools: Mapping[str, Any], *, several: bool) -> Node:
        rules = self.rules
        options = []
        for name, parameters in tools.items():
            arguments = schema_node(parameters, rules, f"{name}-arguments")
            members = [("name", Lit(literal_json(name)), True), ("arguments", arguments, True)]
            options.append(rules.grammar.add(f"{name}-call", rules.object(members, [], f"{name}-call")))
        calls = rules.array([], Alt(tuple(options)), 1, None if several else 1, "calls")
        return rules.object([("tool_calls", calls, True)], [], "reply")

    def text(self) -> Node:
        """A text that begins no calls."""
        return self._without("text", _MARKER)

    def answer(self, calls: Node) -> Node:
        """A text, calls, or both."""
        said = Seq((self.text(), Rep(calls, 0, 1)))
        if self.thinking is None:
            return said
        thought, end = self._thought(self.thinking)
        rest = Seq((thought, Rep(Seq((end, said)), 0, 1)))
        return rest if self.thinking.begun else Alt((Seq((Lit(self.thinking.start), rest)), said))

    def only(self, calls: Node) -> Node:
        """Calls, behind the thinking if there is some."""
        if self.thinking is None:
            return calls
        thought, end = self._thought(self.thinking)
        rest = Seq((thought, end, Rep(Chars(_SPACE), 0, 4)))
        if self.thinking.begun:
            return Seq((rest, calls))
        return Seq((Rep(Seq((Lit(self.thinking.start), rest)), 0, 1), calls))

    def _thought(self, thinking: Thinking) -> tuple[Node, Node]:
        """What is thought, and what ends it."""
        return self._without("thinking", *map(text_of, thinking.ends)), Alt(tuple(map(Lit, thinking.ends)))


def generic_grammar(
    tools: Sequence[Mapping[str, Any]], choice: Choice, *, several: bool, thinking: Thinking | None = None
) -> str:
    """The grammar of a reply that may call tools.

    Args:
        tools: those that may be called, in the OpenAI shape, at least one unless ``choice`` is "none".
        choice: "required": calls and no text; "auto": either, or both; "none": a text that begins no calls.
        several: whether there may be more than one call.
        thinking: how the reply may think first; None: it does not.

    Raises:
        SchemaError: the parameters of a tool cannot be enforced.
    """
    offered = {tool["function"]["name"]: _parameters(tool["function"]) for tool in tools}
    return _compiled(json.dumps(offered, allow_nan=False), choice, several, thinking)


def _parameters(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = {"type": "object", **(function.get("parameters") or {})}
    try:
        schema_to_grammar(parameters)
    except SchemaError as error:
        name = function["name"]
        raise SchemaError(f"tool {name}: its parameters: {error}", path=error.path, tool=name) from error
    return parameters


@lru_cache(32)
def _compiled(tools: str, choice: Choice, several: bool, thinking: Thinking | None) -> str:
    reply = _Reply(thinking)
    if choice == "none":
        root = reply.text()
    else:
        calls = reply.rules.grammar.add("calls", reply.calls(json.loads(tools), several=several))
        root = reply.only(calls) if choice == "required" else reply.answer(calls)
    text = reply.rules.grammar.text(root)
    if text is None:
        raise AssertionError("each part of the grammar has been compiled before")
    return text
