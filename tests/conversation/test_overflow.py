"""A prompt that does not fit: refused before any work, or made to fit by dropping turns or by the caller's own rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from talking import Dictation, Oracle, fresh, spoken

from causerie import BusyError, ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie import Conversation, Engine, Message
    from causerie.llama import Model

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 3, "logit_bias": {2: False}}  # it never ends its turn
LONG = "word " * 900


@pytest.fixture(scope="module")
def small(model: Model) -> Iterator[Engine]:
    from talking import EXACT

    from causerie import Engine

    with Engine(model, n_ctx=256, **EXACT) as made:
        yield made


def filled(engine: Engine, **options: Any) -> Conversation:
    """A conversation of three turns that leaves little room."""
    chat = engine.conversation("Be brief.", examples=[("One?", "Two.")], **options)
    for word in ("red", "green", "blue"):
        chat.add_user(f"The colour {word}, please.")
        chat.add_assistant(f"Here is {word}.")
    return chat


class TestError:
    def test_of_a_message_that_does_not_fit_even_alone(self, small: Engine) -> None:
        chat = filled(small)
        before, steps = chat.messages, small.stats().steps
        with pytest.raises(ContextOverflowError, match="shorten it") as caught:
            chat.send(LONG)
        error = caught.value
        assert (error.kind, error.available) == ("too_long", 256)
        assert error.needed == chat.count_tokens(LONG) + 1
        assert chat.messages == before
        assert small.stats().steps == steps
        assert chat.send("And?", **GREEDY).text  # shorter, it works

    def test_of_one_for_which_no_room_is_left(self, small: Engine) -> None:
        chat = filled(small)
        chat.add_user("word " * 90)
        chat.add_assistant("yes")
        before = chat.messages
        with pytest.raises(ContextOverflowError, match='overflow="trim"') as caught:
            chat.send("word " * 90)
        assert caught.value.kind == "full"
        assert caught.value.needed > caught.value.available
        assert chat.messages == before
        assert chat.is_context_full is False
        chat.rewind()
        assert chat.send("And?", **GREEDY).text

    def test_from_every_call(self, small: Engine) -> None:
        chat = small.conversation(messages=[{"role": "user", "content": LONG}])
        for call in (chat.respond, chat.stream_respond, chat.prefill, lambda: chat.send("x", n=2)):
            with pytest.raises(ContextOverflowError):
                call()
        chat.add_assistant("x")
        with pytest.raises(ContextOverflowError):
            chat.resume()
        assert chat.is_context_full

    def test_of_exactly_one_token(self, small: Engine) -> None:
        chat = small.conversation()
        room = 256 - chat.count_tokens("word")
        fits, too_long = "word" + " word" * (room - 1), "word" + " word" * room
        assert (chat.count_tokens(fits), chat.count_tokens(too_long)) == (255, 256)
        with pytest.raises(ContextOverflowError):
            chat.send(too_long)
        reply = chat.send(fits, **{**GREEDY, "max_tokens": -1})
        assert (reply.usage.completion_tokens, reply.finish_reason) == (1, "length")

    def test_what_is_no_policy_is_refused(self, small: Engine) -> None:
        with pytest.raises(ValueError, match="overflow must be"):
            small.conversation(overflow="shift")  # type: ignore[arg-type]


class TestEndless:
    def test_generation_ends_with_length_and_says_so_in_the_same_turn(self, small: Engine) -> None:
        chat = small.conversation()
        dictation = Dictation(small, " and on", end=False)
        dictation.ids *= 300
        reply = chat.send("word " * 200, temperature=0, samplers=dictation)
        assert reply.finish_reason == "length"
        assert reply.usage.total_tokens == 256
        assert chat.is_context_full
        assert chat.report is not None
        with pytest.raises(ContextOverflowError) as caught:
            chat.send("x")
        assert caught.value.kind == "full"
        chat.rewind()
        assert not chat.is_context_full
        assert chat.send("x", **GREEDY).text

    def test_max_tokens_ends_it_without_a_full_context(self, small: Engine) -> None:
        chat = small.conversation()
        assert chat.send("Go.", **GREEDY).finish_reason == "length"
        assert not chat.is_context_full


class TestTrim:
    def test_drops_the_oldest_turns_and_keeps_system_and_examples(self, small: Engine, oracle: Oracle) -> None:
        chat = filled(small, overflow="trim")
        reply = chat.send("word " * 180, **GREEDY)
        kept = spoken(chat)
        assert kept[:3] == [("system", "Be brief."), ("user", "One?"), ("assistant", "Two.")]
        assert ("user", "The colour red, please.") not in kept
        assert kept[-3:-1] == [("assistant", "Here is blue."), ("user", "word " * 180)]
        assert [role for role, _ in kept[3:]] == ["user", "assistant"] * ((len(kept) - 3) // 2)
        prompt = fresh(chat, small).tokenize().tolist()[: reply.usage.prompt_tokens]
        assert reply.text == oracle.text(prompt, 3)

    def test_leaves_room_for_the_answer(self, small: Engine) -> None:
        chat = filled(small, overflow="trim")
        chat.send("word " * 180, temperature=0, max_tokens=1)
        usage = chat.report.usage if chat.report else None
        assert usage is not None
        assert usage.prompt_tokens < 256
        reply = filled(small, overflow="trim").send("word " * 180, temperature=0, max_tokens=40)
        assert reply.usage.prompt_tokens <= 256 - 40

    def test_a_message_that_does_not_fit_even_alone_is_too_long(self, small: Engine) -> None:
        chat = filled(small, overflow="trim")
        before = chat.messages
        with pytest.raises(ContextOverflowError) as caught:
            chat.send(LONG)
        assert caught.value.kind == "too_long"
        assert chat.messages == before

    def test_goes_on_for_ever(self, small: Engine) -> None:
        chat = small.conversation("Be brief.", overflow="trim")
        for turn in range(6):
            chat.send(f"Question {turn}: " + "word " * 45, **GREEDY)
            assert chat.messages[0].role == "system"
            assert chat.messages[-2].text.startswith(f"Question {turn}:")
        assert len(chat.messages) < 11

    def test_changes_nothing_where_there_is_room(self, small: Engine) -> None:
        chat = filled(small, overflow="trim")
        before = chat.messages
        chat.send("And?", **GREEDY)
        assert chat.messages[: len(before)] == before


class TestCallable:
    def test_decides_what_to_go_on_with(self, small: Engine) -> None:
        seen: list[tuple[tuple[Message, ...], str]] = []

        def summarised(chat: Conversation) -> list[Any]:
            branch = chat.fork()
            branch.rewind(2)
            summary = branch.send("Which colours?", **GREEDY).text
            seen.append((chat.messages, chat.render()))
            return [{"role": "system", "content": f"So far: {summary}"}, chat.messages[-1]]

        chat = filled(small, overflow=summarised)
        before = chat.messages
        reply = chat.send("word " * 180, **GREEDY)
        assert [len(messages) for messages, _ in seen] == [len(before) + 1]
        assert seen[0][0][-1].text == "word " * 180
        assert "word word" in seen[0][1]
        assert [role for role, _ in spoken(chat)] == ["system", "user", "assistant"]
        assert reply.finish_reason == "length"

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            ([], ValueError),
            ([{"role": "user", "content": LONG}], ContextOverflowError),
            ([{"role": "assistant", "content": "x"}], ValueError),
            ([3], TypeError),
            (None, TypeError),
        ],
    )
    def test_whose_answer_is_wrong_changes_nothing(self, small: Engine, answer: Any, error: type) -> None:
        chat = filled(small, overflow=lambda _: answer)
        before = chat.messages
        with pytest.raises(error):
            chat.send("word " * 180)
        assert chat.messages == before
        assert chat.send("And?", **GREEDY).text

    def test_that_raises_changes_nothing(self, small: Engine) -> None:
        def broken(chat: Conversation) -> list[Any]:
            raise LookupError

        chat = filled(small, overflow=broken)
        before = chat.messages
        with pytest.raises(LookupError):
            chat.send("word " * 180)
        assert chat.messages == before

    def test_may_not_change_the_conversation_itself(self, small: Engine) -> None:
        calls = [lambda c: c.rewind(), lambda c: c.add_user("x"), lambda c: c.reset(), lambda c: c.send("x")]

        def policy(chat: Conversation) -> list[Any]:
            for call in calls:
                with pytest.raises(BusyError, match="overflow policy"):
                    call(chat)
            return [{"role": "user", "content": "Never mind."}]

        chat = filled(small, overflow=policy)
        chat.send("word " * 180, **GREEDY)
        assert [role for role, _ in spoken(chat)] == ["user", "assistant"]
