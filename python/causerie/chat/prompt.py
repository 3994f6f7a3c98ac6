"""A history as the token ids of a prompt.

What the model generated goes in as the very ids it generated. What people, tools and models wrote can never become a
control token: the template is rendered with a mark in place of each such text, so that what stands around the marks is
the template's own, and its control tokens alone count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from causerie.chat.layout import Layout
from causerie.chat.marks import Marked, align, defused, mark
from causerie.chat.memo import Memo
from causerie.chat.messages import Message, Role, as_messages
from causerie.chat.segments import Generated, Part, SegmentEncoder, Text
from causerie.chat.whole_replies import Written, content_of, with_whole_replies
from causerie.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from causerie.chat.chat_template import ChatTemplate, Prompt
    from causerie.llama.vocab import Vocab

__all__ = ["Encoded", "PromptEncoder"]

Ids: TypeAlias = tuple[int, ...]

_ROOM = 2**20  # characters of marked renderings that are kept

# What to try with a template that rewrites texts: whose texts to leave without marks, whether to keep generated ids.
_ATTEMPTS = tuple(
    (leave, keep) for keep in (True, False) for leave in (frozenset({"assistant"}), frozenset(get_args(Role)))
)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as a model takes it.

    Attributes:
        text: what the ids say: the template's text, people's text, what was generated. A BOS that the vocabulary and
            not the template puts in front is not in it.
        ids: the token ids.
        prompt: what the template made of the messages; its ``text`` is that of the messages alone.
        follows: what the template wrote last: the reply comes right behind it.
        begun: what of the reply is in the prompt already, where one is continued; None: it can be read as text only.
        begun_ids: the ids that say so, if the model generated all of it.
    """

    text: str
    ids: tuple[int, ...]
    prompt: Prompt
    follows: str = ""
    begun: str | None = ""
    begun_ids: tuple[int, ...] = ()


class _Beginning(NamedTuple):
    prompt: Prompt
    parts: list[Part]
    follows: str


class PromptEncoder:
    """Turns histories into token ids. Thread-safe; remembers what it tokenised, within bounds.

    Args:
        template: the chat template.
        vocab: the vocabulary of the model that the prompt is for.
    """

    def __init__(self, template: ChatTemplate, vocab: Vocab) -> None:
        self._template = template
        self._vocab = vocab
        self._segments = SegmentEncoder(vocab)
        self._marked: Memo[str | None] = Memo(_ROOM)

    @property
    def template(self) -> ChatTemplate:
        """The chat template."""
        return self._template

    def encode(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        generated: Sequence[Written | Ids | None] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_last: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        parallel_tool_calls: bool = False,
        response_schema: Mapping[str, Any] | None = None,
    ) -> Encoded:
        """The ids to evaluate so that the model answers; exactly one BOS where the vocabulary wants one.

        Args:
            messages: the history.
            generated: by message, the ids the model generated for its content; None where it generated none. They go in
                as they are, whatever they say; where the template rewrites what they say (drops thinking from it, for
                example), the template's text goes in instead. For a message with thinking or calls, a `Written`: its
                whole ids go in where the template writes the same text. None: nothing was generated.
            add_generation_prompt: end with the start of an assistant's turn.
            continue_last: end right behind the text of the last message, an assistant's, so that it goes on.
            template_kwargs: variables for the template.
            thinking: as for `ChatTemplate.apply`.
            tools: as for `ChatTemplate.apply`.
            tool_choice: as for `ChatTemplate.apply`.
            parallel_tool_calls: as for `ChatTemplate.apply`.
            response_schema: as for `ChatTemplate.apply`.

        Raises:
            TemplateError: the template refuses the messages; or a text holds that of a control token where it cannot be
                kept apart from the template's own: in a name, an id or a tool's definition, or in a text that the
                template rewrites.
            ValueError: ``generated`` does not fit the messages, or there is no answer to continue.
            IndexError: a generated id is out of range.
            UnsupportedError: as `ChatTemplate.apply`.
        """
        history = as_messages(messages)
        written = _generated(history, generated)
        self._refuse_controls(json.dumps(tools, ensure_ascii=False) if tools else "", "a tool's definition")
        options: dict[str, Any] = {
            "tools": tools,
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            "thinking": thinking,
            "response_schema": response_schema,
        }
        options.update(_variables(template_kwargs or {}, options))
        if continue_last:
            return self._continued(history, written, options)
        options["add_generation_prompt"] = add_generation_prompt
        prompt, layout = self._layout(history, written, options)
        return self._encoded(prompt, with_whole_replies(layout, written))

    def _encoded(self, prompt: Prompt, parts: list[Part], begun: str | None = "") -> Encoded:
        last = parts[-1]
        if prefix := self._template.reply_prefix:
            parts = self._joined_to(prefix, parts)
        encoded = self._segments.encode(parts)
        vocab = self._vocab
        if vocab.add_bos and vocab.bos is not None and encoded[:1] != [vocab.bos]:
            encoded.insert(0, vocab.bos)
        follows = last.text if isinstance(last, Text) and last.trusted else ""
        return Encoded(self._segments.text(parts), tuple(encoded), prompt, follows, begun)

    def _joined_to(self, prefix: str, parts: list[Part]) -> list[Part]:
        """Without the blank before replies that were generated right behind a prefix and have one of their own."""
        found = [*parts]
        for index, (before, own) in enumerate(pairwise(parts)):
            if isinstance(before, Generated) or not isinstance(own, Generated) or not before.trusted:
                continue
            if before.text.endswith(f"{prefix} ") and self._segments.text([own])[:1].isspace():
                found[index] = before._replace(text=before.text[:-1])
        return found

    def _continued(
        self, history: tuple[Message, ...], generated: tuple[Written | None, ...], options: dict[str, Any]
    ) -> Encoded:
        if not history or history[-1].role != "assistant" or history[-1].tool_calls:
            raise ValueError("only an assistant's message without tool calls, and the last one, can be continued")
        last = generated[-1] or Written()
        beginning = self._beginning(history[:-1], generated[:-1], options)
        if beginning is not None and last.whole and last.follows == beginning.follows:
            encoded = self._encoded(beginning.prompt, [*beginning.parts, Generated(last.whole)], last.text)
            return replace(encoded, begun_ids=last.whole)
        prompt, layout = self._layout(history, generated, {**options, "add_generation_prompt": False})
        if layout.cut_behind_last():
            parts, text = with_whole_replies(layout, generated), layout.real
            if beginning is not None and text.startswith(beginning.prompt.text):
                return self._encoded(beginning.prompt, parts, text[len(beginning.prompt.text) :])
            return self._encoded(prompt, parts, None)
        if beginning is None:
            raise TemplateError("this chat template shows no place at which the last message could be continued")
        # Begin the answer anew.
        own = Text(history[-1].text, trusted=False) if last.ids is None else Generated(last.ids)
        return self._encoded(beginning.prompt, [*beginning.parts, own], history[-1].text)

    def _beginning(
        self, history: tuple[Message, ...], generated: tuple[Written | None, ...], options: dict[str, Any]
    ) -> _Beginning | None:
        """A prompt that begins an answer; None: the template refuses."""
        try:
            prompt, layout = self._layout(history, generated, {**options, "add_generation_prompt": True})
        except TemplateError:
            return None
        parts = with_whole_replies(layout, generated)
        return _Beginning(prompt, parts, parts[-1].text if isinstance(parts[-1], Text) and parts[-1].trusted else "")

    def _layout(
        self, history: tuple[Message, ...], generated: tuple[Written | None, ...], options: dict[str, Any]
    ) -> tuple[Prompt, Layout]:
        prompt = self._template.apply(history, **options)
        ids = tuple(map(content_of, generated))
        marked = mark(history, ids)
        self._refuse_controls("\n".join(marked.unmarked), "a name or an id in a message")
        layout = self._aligned(marked, prompt.text, options)
        if layout is None:
            layout = self._layout_of_rewritten(history, ids, prompt.text, options)
        return prompt, layout

    def _layout_of_rewritten(
        self,
        history: tuple[Message, ...],
        generated: tuple[Ids | None, ...],
        real: str,
        options: dict[str, Any],
    ) -> Layout:
        """For a template that rewrites texts: those it rewrites stand among its own, and must be harmless there."""
        for leave, keep in _ATTEMPTS:
            marked = mark(history, generated if keep else (None,) * len(history), leave=leave)
            layout = self._aligned(marked, real, options)
            if layout is not None and self._is_harmless(layout, options):
                return layout
        raise TemplateError(
            "a message holds the text of a control token, and this chat template does not allow to keep it apart from "
            "the template's own: write that text differently"
        )

    def _aligned(self, marked: Marked, real: str, options: dict[str, Any]) -> Layout | None:
        key = f"{Message.list_to_json(marked.messages)}{json.dumps(options, sort_keys=True)}"
        cost = len(key) + len(real)
        fresh = False

        def render() -> str | None:
            nonlocal fresh
            fresh = True
            try:
                return self._template.apply(marked.messages, **options).text
            except TemplateError:
                return None  # it wants to see the texts

        text = self._marked.get(key, cost, render)
        aligned = None if text is None else align(text, real, marked.slots)
        if aligned is None and not fresh:  # what was kept may tell an old date
            text = render()
            self._marked.put(key, cost, text)
            aligned = None if text is None else align(text, real, marked.slots)
        return None if aligned is None else Layout(marked, *aligned)

    def _is_harmless(self, layout: Layout, options: dict[str, Any]) -> bool:
        """Whether all control tokens around the marks are the template's."""
        safe = defused(layout.marked.messages, self._segments.holds_control)
        try:
            expected = self._template.apply(safe, **options).text
        except TemplateError:
            return False
        return self._segments.controls_in(layout.text()) == self._segments.controls_in(expected)

    def _refuse_controls(self, text: str, where: str) -> None:
        if self._segments.holds_control(text):
            raise TemplateError(f"{where} holds the text of a control token: write it differently")


def _variables(given: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    taken = sorted({"messages", "add_generation_prompt", *options}.intersection(given))
    if taken:
        raise ValueError(f"template_kwargs cannot set {', '.join(taken)}: give it as an argument of its own")
    return given


def _generated(
    history: tuple[Message, ...], generated: Sequence[Written | Ids | None] | None
) -> tuple[Written | None, ...]:
    if generated is None:
        return (None,) * len(history)
    if len(generated) != len(history):
        raise ValueError(f"there are {len(history)} messages and {len(generated)} entries of generated ids")
    for index, (message, ids) in enumerate(zip(history, generated, strict=True)):
        if ids is not None and message.role != "assistant":
            raise ValueError(f"message {index}, by {message.role!r}, cannot have been generated")
    return tuple(ids if ids is None or isinstance(ids, Written) else Written(tuple(ids)) for ids in generated)
