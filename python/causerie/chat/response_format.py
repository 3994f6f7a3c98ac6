"""What a reply has to be: JSON by a schema or a type, one of several texts, or what a pattern or grammar matches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_origin

from causerie.chat.frozen_json import checked_text, thaw
from causerie.chat.schema.annotations import unwrapped
from causerie.chat.schema.automaton import Matching, accepts, either, text_of
from causerie.chat.schema.automaton_gbnf import automaton_node
from causerie.chat.schema.gbnf import Grammar as _Rules
from causerie.chat.schema.grammar import schema_to_grammar
from causerie.chat.schema.python_types import type_schema
from causerie.chat.schema.python_values import to_python
from causerie.chat.schema.regex import parse_regex
from causerie.chat.schema.repair import close_json
from causerie.chat.schema.validation import SchemaValidator
from causerie.errors import SchemaError, UnsupportedError

__all__ = ["Choices", "Grammar", "Regex", "ResponseFormat", "as_response_format"]


@dataclass(frozen=True)
class Regex:
    r"""A reply that a regular expression matches as a whole.

    Literals, classes, groups, ``|``, ``* + ? {n,m}``, ``\d \w \s`` (ASCII) and their opposites; what is not regular
    (back references, lookaround) is refused.

    Args:
        pattern: the expression.
        dotall: whether ``.`` is also a line break.
    """

    pattern: str
    dotall: bool = False

    def __post_init__(self) -> None:
        checked_text(self.pattern, "the pattern")


@dataclass(frozen=True)
class Choices:
    """A reply that is one of several texts.

    Args:
        options: the texts, at least one, none of them empty and no two alike.
    """

    options: Iterable[str]

    def __post_init__(self) -> None:
        if isinstance(self.options, (str, bytes)):
            raise TypeError("choices are a list of texts, not one text")
        options = tuple(checked_text(option, "a choice") for option in self.options)
        if not options or not all(options) or len(set(options)) < len(options) or any("\0" in o for o in options):
            raise ValueError(f"choices must be texts, at least one, not empty, all different, not {options!r:.200}")
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class Grammar:
    """A reply that follows a grammar in GBNF, llama.cpp's format.

    Args:
        text: the grammar; it starts from the rule ``root``.
    """

    text: str

    def __post_init__(self) -> None:
        if not checked_text(self.text, "a grammar").strip():
            raise ValueError("the grammar is empty")


@dataclass(frozen=True)
class ResponseFormat:
    """A constraint on a reply, ready to be used; made by `as_response_format`.

    Attributes:
        grammar: GBNF that the reply follows.
        schema: the JSON schema, None if the reply is not JSON.
        checked: JSON paths of what the grammar cannot enforce, and `parse` validates.
    """

    grammar: str
    schema: Mapping[str, Any] | bool | None = None
    checked: tuple[str, ...] = ()
    _read: Callable[[str], Any] = field(default=str, repr=False)

    def parse(self, text: str) -> Any:
        """The reply as what was asked for.

        Args:
            text: the whole reply.

        Returns:
            For a type an instance of it, for a schema the JSON value, for a pattern, choices or a grammar the text;
            None if the text is incomplete, as it is after ``finish_reason="length"``.

        Raises:
            SchemaError: the JSON is complete, and against what only validation enforces (`checked`, or a check of the
                type's own).
        """
        if self.schema is None:
            return self._read(text)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return self._read(value)

    def repair(self, text: str) -> str:
        """A reply that was cut off, as complete JSON text with what there is; other texts as they are.

        Raises:
            SchemaError: it is not the beginning of JSON.
        """
        return text if self.schema is None else close_json(text)


_EXAMPLES = {
    Regex: 'Regex("[0-9]+")',
    Choices: 'Choices(["yes", "no"])',
    Grammar: """Grammar('root ::= "yes"')""",
    ResponseFormat: "as_response_format(...)",
}


def as_response_format(value: Any) -> ResponseFormat:
    """A constraint from what describes it.

    Args:
        value: a JSON schema (a dict, also in OpenAI's ``{"type": "json_schema", ...}`` or ``{"type": "json_object"}``);
            a dataclass, TypedDict, pydantic model or another type that JSON can express; `Regex`, `Choices` or
            `Grammar`; or a `ResponseFormat`.

    Raises:
        TypeError: it is none of them.
        SchemaError: it cannot be enforced; ``.path`` is the JSON path, ``.position`` the place in a pattern.
    """
    if isinstance(value, ResponseFormat):
        return value
    if isinstance(value, Grammar):
        return ResponseFormat(value.text)
    if isinstance(value, (Regex, Choices)):
        return _text_format(value)
    if isinstance(value, Mapping):
        return _from_schema(_inner_schema(value))
    if value in (Regex, Choices, Grammar, ResponseFormat):
        raise TypeError(f"{value.__name__} itself is no response format: give one, such as {_EXAMPLES[value]}")
    if not isinstance(value, type) and get_origin(value) is None and unwrapped(value)[0] is value:
        raise TypeError(
            f"a response format is a JSON schema (dict), a type, Regex, Choices or Grammar, not {type(value).__name__}"
        )
    return _from_schema(type_schema(value), lambda found: to_python(found, value))


def _text_format(value: Regex | Choices) -> ResponseFormat:
    if isinstance(value, Regex):
        automaton = Matching(parse_regex(value.pattern, dotall=value.dotall))
    else:
        automaton = Matching(either(map(text_of, value.options)))
    rules = _Rules()
    gbnf = rules.text(automaton_node(rules, automaton, "text", "", in_json=False))
    if gbnf is None:
        raise SchemaError("no text matches the pattern", path="", position=0)
    return ResponseFormat(gbnf, _read=lambda text: text if accepts(automaton, text) else None)


def _inner_schema(value: Mapping[str, Any]) -> Mapping[str, Any] | bool:
    """The schema inside OpenAI's shapes."""
    kind = value.get("type")
    if kind == "json_object":
        schema = value.get("schema", {"type": "object"})
    elif kind == "json_schema":
        inner = value.get("json_schema", value)
        if not isinstance(inner, Mapping) or "schema" not in inner:
            raise SchemaError('$.json_schema needs a "schema"', path="$.json_schema")
        schema = inner["schema"]
    else:
        return value
    return schema if isinstance(schema, (Mapping, bool)) else dict(schema)


def _from_schema(schema: Mapping[str, Any] | bool, read: Callable[[Any], Any] | None = None) -> ResponseFormat:
    plain = thaw(schema)
    grammar, checked = schema_to_grammar(plain)
    convert = read or (lambda value: value)
    if not checked:
        return ResponseFormat(grammar, plain, (), convert)
    try:
        validator = SchemaValidator(plain, "validating a reply")
    except UnsupportedError as error:
        raise SchemaError(f"{checked[0]}: no grammar enforces this keyword, and {error}", path=checked[0]) from error

    def check_and_convert(value: Any) -> Any:
        validator.check(value)
        return convert(value)

    return ResponseFormat(grammar, plain, checked, check_and_convert)
