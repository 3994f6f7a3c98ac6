"""Where a piece of a reply ends inside of what may be one of its format's marks, nothing is told that is not so."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from reply_formats import FORMATS, Format
from test_parse_formats import KNOWN, begins_thinking, check_deltas, prompt_of, read

from causerie.chat import Message, Prompt, ReplyParser
from causerie.chat.half_marks import half_marks, undecided
from causerie.errors import TemplateError


def marks_of(prompt: Prompt) -> list[str]:
    nodes = json.loads(prompt.parser)["parsers"]
    return sorted({mark for node in nodes if node["type"] == "until" for mark in node["delimiters"]})


def halves(marks: list[str]) -> list[str]:
    return sorted(
        {mark[:size] for mark in marks for size in (1, 2, len(mark) // 2, len(mark) - 1) if mark[:size] != mark}
    )


def replies(form: Format, prompt: Prompt, marks: list[str], *, tools: bool) -> list[str]:
    """Thoughts, answers and calls full of marks that break off."""
    start, end = form.think
    if begins_thinking(form, prompt):
        start = ""
    said = " so".join(halves(marks)) + " so"
    thought = start + said + end if form.think[1] else ""
    found = [thought + form.text % said]
    if thought:
        found += [thought[: -len(end) - len(" so")], start + "So." + end + form.text % said]
    if tools and form.calls:
        call = form.calls([("weather", {"place": said, "days": 3})])
        found.append(thought + call)
    return found


def in_pieces(reply: str, marks: list[str]) -> list[str]:
    """Cut behind each beginning of a mark."""
    ends = tuple(half for half in halves(marks) if half)
    cuts = [0, *(i for i in range(1, len(reply)) if reply.endswith(ends, 0, i)), len(reply)]
    return [reply[a:b] for a, b in pairwise(cuts)]


class TestUndecided:
    HALVES = ("<", "<|", "\n", "\n<")

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("", 0),
            ("so", 0),
            ("so<", 1),
            ("so<|", 2),
            ("so|", 0),
            ("so<|x", 0),
            ("so\n<|", 3),
            ("so<<\n\n<", 5),
            ("<<", 2),
        ],
    )
    def test_counts_to_where_no_mark_may_have_begun(self, text: str, count: int) -> None:
        assert undecided(text, self.HALVES) == count
        in_pieces = 0
        for end in range(1, len(text) + 1):
            in_pieces = undecided(text[:end], self.HALVES, 1, in_pieces)
        assert in_pieces == count

    def test_of_a_format_without_marks_is_nothing(self) -> None:
        assert half_marks("") == ()
        assert undecided("<|", ()) == 0


def test_a_whole_mark_begins_no_longer_one() -> None:
    parser = {"parsers": [{"type": "until", "delimiters": ["<a>", "<a>b"]}, {"type": "until", "delimiters": ["<c"]}]}
    assert half_marks(json.dumps(parser)) == ("<", "<a")


def test_a_beginning_of_a_reply_is_read_to_where_it_is_decided() -> None:
    prompt = prompt_of("Kimi-K2-Instruct", False, True)
    assert prompt.parse("<think>So<|", partial=True) == Message("assistant", "", thinking="So")
    parser = ReplyParser(prompt)
    assert [(d.kind, d.text) for piece in ("<think>So", "<", "|", "x") for d in parser.feed(piece)] == [
        ("thinking", "So"),
        ("thinking", "<|x"),
    ]


@pytest.mark.parametrize(("name", "template"), KNOWN, ids=[t for _, t in KNOWN])
def test_deltas_add_up_to_the_message(name: str, template: str) -> None:
    form = FORMATS[name]
    read_ones = 0
    for tools in (False, True) if form.calls else (False,):
        prompt = prompt_of(template, tools, bool(form.think[1]))
        marks = marks_of(prompt)
        for reply in replies(form, prompt, marks, tools=tools):
            try:
                whole = prompt.parse(reply)
            except TemplateError:
                continue
            message, deltas = read(prompt, in_pieces(reply, marks))
            assert message == whole
            check_deltas(deltas, message)
            read_ones += 1
    assert read_ones
