"""Marks in place of texts: put in, and found again in what a template made of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.marks import Fill, Slot, align, defused, mark
from causerie.chat.messages import Message, ToolCall


def m(i: int) -> str:
    return f"\ue000{i}\ue001"


def slots(*texts: str) -> list[Slot]:
    return [Slot(text, None) for text in texts]


class TestMark:
    def test_stands_for_every_text(self) -> None:
        call = ToolCall("id", "tool", {"key": "value", "n": 3, "deep": [{"k": "v"}, None]})
        messages = [
            Message("user", [{"type": "text", "text": "part"}, {"type": "image_url", "image_url": "x"}]),
            Message("assistant", "answer", thinking="thought", tool_calls=(call,)),
            Message("tool", "result", tool_call_id="id", name="tool"),
        ]
        marked = mark(messages, (None, (1, 2), None))
        assert marked.messages == (
            Message("user", [{"type": "text", "text": m(0)}, {"type": "image_url", "image_url": "x"}]),
            Message(
                "assistant",
                m(1),
                thinking=m(2),
                tool_calls=(ToolCall("id", "tool", {"key": m(3), "n": 3, "deep": [{"k": m(4)}, None]}),),
            ),
            Message("tool", m(5), tool_call_id="id", name="tool"),
        )
        assert marked.slots == (Slot("part", None), Slot("answer", (1, 2)), *slots("thought", "value", "v", "result"))
        assert marked.contents == (None, 1, 5)
        assert set(marked.unmarked) == {"id", "tool", "key", "n", "deep", "k"}

    def test_is_the_same_for_the_same_text_but_not_for_generated_ids(self) -> None:
        messages = [Message("user", "a"), Message("assistant", "a"), Message("user", "a")]
        assert [x.content for x in mark(messages, (None, (7,), None)).messages] == [m(0), m(1), m(0)]

    def test_is_not_put_where_there_is_no_text(self) -> None:
        messages = [Message("user", ""), Message("user", " \n"), Message("assistant", "")]
        assert mark(messages, (None, None, ())).messages == tuple(messages)
        assert mark(messages, (None, None, (5,))).messages[2].content == m(0)

    def test_may_leave_the_texts_of_some(self) -> None:
        messages = [Message("user", "a"), Message("assistant", "b"), Message("assistant", "c")]
        marked = mark(messages, (None, (1,), None), leave={"assistant"})
        assert [x.content for x in marked.messages] == [m(0), m(1), "c"]
        assert marked.contents == (0, 1, None)
        assert mark(messages, (None, None, None), leave={"user", "assistant"}).messages == tuple(messages)


class TestAlign:
    def test_finds_texts_as_they_are(self) -> None:
        assert align(f"<{m(0)}|{m(1)}>", "<a|b>", slots("a", "b")) == ("<", [Fill(0, "a", "|"), Fill(1, "b", ">")])

    def test_finds_trimmed_texts_and_json(self) -> None:
        found = align(f'{m(0)}|"{m(1)}"|', 'a|"é\\n\\""|', slots(" a\n", 'é\n"'))
        assert found is not None
        assert [fill.text for fill in found[1]] == ["a", 'é\\n\\"']

    def test_finds_marks_that_were_escaped(self) -> None:
        assert align('{"\\ue0000\\ue001"}', '{"\\u00e9"}', slots("é")) == ('{"', [Fill(0, "\\u00e9", '"}')])

    def test_takes_texts_that_were_dropped_or_repeated(self) -> None:
        assert align(f"{m(1)}{m(1)}", "bb", slots("a", "b")) == ("", [Fill(1, "b", ""), Fill(1, "b", "")])

    def test_goes_back_where_a_first_guess_was_wrong(self) -> None:
        found = align(f"{m(0)}\n{m(1)}.", "a\nb.", slots("a\n", "b"))
        assert found == ("", [Fill(0, "a", "\n"), Fill(1, "b", ".")])

    def test_notices_other_changes(self) -> None:
        for real in ("<A>", "<a>!", "!<a>", "<aa>", "<>", ""):
            assert align(f"<{m(0)}>", real, slots("a")) is None
        assert align(m(5), "a", slots("a")) is None

    @given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.lists(st.text(max_size=5), min_size=7, max_size=7))
    def test_gives_parts_that_are_the_text(self, texts: list[str], around: list[str]) -> None:
        fills = [(text.strip() if i % 2 else text) for i, text in enumerate(texts)]
        marked = around[0] + "".join(m(i) + around[i + 1] for i in range(len(texts)))
        real = around[0] + "".join(text + around[i + 1] for i, text in enumerate(fills))
        found = align(marked, real, slots(*texts))
        assert found is not None
        assert found[0] + "".join(fill.text + fill.after for fill in found[1]) == real


def test_defused_texts_hold_no_control_token() -> None:
    message = Message("user", "a<x>")
    (safe,) = defused([message], lambda text: "<x>" in text)
    assert safe.content == "\u2060a\u2060<\u2060x\u2060>\u2060"
    (safe,) = defused([message], lambda _: False)
    assert safe.content == "\u2060a<x>\u2060"
