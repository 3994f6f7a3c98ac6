"""Changing what a user says, what the model is shown, and what a reader sees."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talking import Dictation, spoken

from causerie import KeywordRemover, Message

if TYPE_CHECKING:
    from causerie import Engine

GREEDY = {"temperature": 0, "max_tokens": 3}


class TestInput:
    def test_a_chain_in_order_and_the_history_has_the_result(self, engine: Engine) -> None:
        chat = engine.conversation("s", input_transforms=[str.strip, str.upper, lambda text: f"<{text}>"])
        chat.send("  hello ", **GREEDY)
        chat.add_user(" x ")
        assert [text for role, text in spoken(chat) if role == "user"] == ["<HELLO>", "<X>"]
        assert "<WHAT>" in chat.render("what")

    def test_messages_given_as_they_are_stay_so(self, engine: Engine) -> None:
        chat = engine.conversation(messages=[{"role": "user", "content": "a"}], input_transforms=[str.upper])
        chat.add({"role": "user", "content": "b"})
        chat.edit(1, "c")
        assert spoken(chat) == [("user", "a"), ("user", "c")]

    def test_text_parts_too(self, engine: Engine) -> None:
        chat = engine.conversation(input_transforms=[str.upper])
        chat.add_user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])  # type: ignore[arg-type]
        assert chat.messages[0].text == "A\nB"


class TestHistory:
    def test_changes_what_the_model_is_shown_and_nothing_else(self, engine: Engine) -> None:
        chat = engine.conversation("s", history_transform=lambda messages: [messages[0], messages[-1]])
        for word in ("one", "two", "three"):
            chat.send(word, **GREEDY)
        assert [text for role, text in spoken(chat) if role == "user"] == ["one", "two", "three"]
        shown = chat.render("four")
        assert "four" in shown
        assert "two" not in shown
        other = engine.conversation("s")
        assert chat.send("five", **GREEDY).text == other.send("five", **GREEDY).text

    def test_that_changes_nothing_keeps_the_generated_ids(self, engine: Engine) -> None:
        def dictated(text: str) -> dict[str, object]:
            return {"temperature": 0, "samplers": Dictation(engine, text)}

        chat = engine.conversation(history_transform=lambda messages: messages)
        plain = engine.conversation()
        for each in (chat, plain):
            each.add_user("q")
            each.add_assistant("Yes, of course.")  # the same words twice, written once and generated once
            each.send("q", **dictated("Yes, of course."))
        assert chat.tokenize("x").tolist() == plain.tokenize("x").tolist()
        reply = chat.send("x", **GREEDY)
        assert reply.usage.cached_tokens > reply.usage.prompt_tokens - 16

    def test_may_say_it_otherwise(self, engine: Engine) -> None:
        def polite(messages: tuple[Message, ...]) -> list[Message]:
            return [Message(m.role, m.text.replace("damn", "dear")) for m in messages]

        chat = engine.conversation(history_transform=polite)
        assert "dear" in chat.render("damn")
        chat.send("damn", **GREEDY)
        assert chat.messages[0].text == "damn"


class TestOutput:
    def test_keywords_go_on_their_way_out_and_stay_in_the_history(self, engine: Engine) -> None:
        text = "User: I am here. Assistant: Me too."
        chat = engine.conversation(output_transform=lambda: KeywordRemover(["User: ", "Assistant: "]))
        stream = chat.stream("x", temperature=0, samplers=Dictation(engine, text))
        chunks = [chunk.text for chunk in stream]
        assert "".join(chunks) == stream.reply.text == "I am here. Me too."
        assert chat.messages[-1].text == text

    def test_the_users_own(self, engine: Engine) -> None:
        class Shout:
            def __init__(self) -> None:
                self.count = 0

            def feed(self, text: str) -> str:
                self.count += len(text)
                return text.upper()

            def flush(self) -> str:
                return f" [{self.count}]"

        chat = engine.conversation(output_transform=Shout)
        for _ in range(2):  # each reply has one of its own
            assert chat.send("x", temperature=0, samplers=Dictation(engine, "Yes, sir.")).text == "YES, SIR. [9]"
        assert chat.messages[-1].text == "Yes, sir."

    def test_saved_only_if_the_user_asks(self, engine: Engine) -> None:
        chat = engine.conversation(output_transform=lambda: KeywordRemover("sir"))
        reply = chat.send("x", temperature=0, samplers=Dictation(engine, "Yes, sir."))
        chat.edit(-1, reply.text)
        assert chat.messages[-1].text == "Yes, ."


def removed(text: str, keywords: list[str], cuts: list[int]) -> str:
    remover = KeywordRemover(keywords)
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return "".join(remover.feed(text[a:b]) for a, b in pairwise(bounds)) + remover.flush()


class TestKeywordRemover:
    @settings(max_examples=200, deadline=None)
    @given(
        st.text("abc", max_size=14), st.text("abc", min_size=1, max_size=4), st.lists(st.integers(0, 20), max_size=5)
    )
    def test_cut_anywhere_is_str_replace(self, text: str, keyword: str, cuts: list[int]) -> None:
        assert removed(text, [keyword], cuts) == text.replace(keyword, "")

    @settings(max_examples=200, deadline=None)
    @given(
        st.text("ab", max_size=14),
        st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
        st.lists(st.integers(0, 20), max_size=5),
    )
    def test_of_several_the_first_and_longest_goes(self, text: str, keywords: list[str], cuts: list[int]) -> None:
        import re

        longest = sorted(set(keywords), key=len, reverse=True)
        assert removed(text, keywords, cuts) == re.sub("|".join(map(re.escape, longest)), "", text)

    def test_at_every_offset(self) -> None:
        text = "Hello User: you, Assistant: me, Use and User"
        for cut in range(len(text) + 1):
            assert removed(text, ["User:", "Assistant:"], [cut]) == "Hello  you,  me, Use and User"

    def test_holds_back_only_what_may_become_a_keyword(self) -> None:
        remover = KeywordRemover("User:")
        assert [remover.feed(text) for text in ("see U", "ni", "on Us", "er")] == ["see ", "Uni", "on ", ""]
        assert remover.flush() == "User"

    @pytest.mark.parametrize("keywords", ["", [""], [3], 3])
    def test_wrong_keywords(self, keywords: object) -> None:
        with pytest.raises((TypeError, ValueError)):
            KeywordRemover(keywords)  # type: ignore[arg-type]
