"""An error in the middle of a reply: the user's turn stays, nothing is added, and the next try is undisturbed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from talking import Dictation, FailingAt, spoken

from causerie import GrammarError

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Conversation, Engine

QUESTION = "Name a river in France."
GREEDY = {"temperature": 0, "max_tokens": 8}


async def read(chat: Conversation, **options: Any) -> None:
    async for _ in chat.astream(QUESTION, **options):
        pass


SENDING: dict[str, Callable[..., object]] = {
    "send": lambda chat, **options: chat.send(QUESTION, **options),
    "stream": lambda chat, **options: list(chat.stream(QUESTION, **options)),
    "asend": lambda chat, **options: asyncio.run(chat.asend(QUESTION, **options)),
    "astream": lambda chat, **options: asyncio.run(read(chat, **options)),
}


class TestASamplerThatRaises:
    @pytest.mark.parametrize("way", SENDING)
    def test_reaches_the_caller_and_leaves_the_users_turn(self, engine: Engine, way: str) -> None:
        chat = engine.conversation()
        with pytest.raises(ZeroDivisionError, match="the sampler's own"):
            SENDING[way](chat, **GREEDY, samplers=FailingAt(3))
        assert spoken(chat) == [("user", QUESTION)]
        assert chat.report is None

    @pytest.mark.parametrize("k", [0, 1, 5])
    def test_the_next_try_equals_an_undisturbed_run(self, engine: Engine, k: int) -> None:
        undisturbed = engine.conversation().send(QUESTION, **GREEDY, logprobs=True)
        chat = engine.conversation()
        with pytest.raises(ZeroDivisionError):
            chat.send(QUESTION, **GREEDY, samplers=FailingAt(k))
        again = chat.respond(**GREEDY, logprobs=True)
        assert (again.text, again.logprobs) == (undisturbed.text, undisturbed.logprobs)
        assert again.usage.cached_tokens == again.usage.prompt_tokens - 1  # the prompt had been evaluated

    def test_what_came_before_has_been_streamed(self, engine: Engine) -> None:
        seen: list[str] = []

        def read() -> None:
            for chunk in engine.conversation().stream(QUESTION, temperature=0, samplers=FailingAt(4)):
                seen.append(chunk.text)  # noqa: PERF401 - what came before the exception counts

        with pytest.raises(ZeroDivisionError):
            read()
        expected = engine.conversation().send(QUESTION, temperature=0, max_tokens=4).text
        assert "".join(seen) in {expected, expected[:-1]}

    def test_even_an_interrupt(self, engine: Engine) -> None:
        chat = engine.conversation()
        with pytest.raises(KeyboardInterrupt):
            chat.send(QUESTION, temperature=0, samplers=FailingAt(1, KeyboardInterrupt))
        assert spoken(chat) == [("user", QUESTION)]
        assert chat.respond(**GREEDY).text

    def test_in_the_middle_of_a_conversation(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.send("Hi.", temperature=0, max_tokens=3)
        other = chat.fork()
        with pytest.raises(ZeroDivisionError):
            chat.send(QUESTION, temperature=0, samplers=FailingAt(2))
        assert chat.respond(**GREEDY).text == other.send(QUESTION, **GREEDY).text
        assert spoken(chat) == spoken(other)

    def test_one_that_never_leaves_a_token(self, engine: Engine) -> None:
        def nothing(row: Any) -> None:
            row[:] = float("-inf")

        chat = engine.conversation()
        with pytest.raises(ValueError, match="no token to choose from"):
            chat.send(QUESTION, samplers=nothing)
        assert spoken(chat) == [("user", QUESTION)]

    def test_one_that_uses_the_conversation_itself(self, engine: Engine) -> None:
        chat = engine.conversation()

        def inner(row: Any) -> None:
            chat.send("me?")

        with pytest.raises(RuntimeError, match=r"is being generated|in the middle of a step"):
            chat.send(QUESTION, samplers=inner)
        assert spoken(chat) == [("user", QUESTION)]


class TestNothingChanges:
    """Where it can be known before any work."""

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"grammar": "root ::= ("}, GrammarError),
            ({"grammar": "no root"}, GrammarError),
            ({"temperature": -1}, ValueError),
            ({"logit_bias": {10**6: 1}}, ValueError),
            ({"stop": [""]}, ValueError),
            ({"samplers": [3]}, TypeError),
            ({"thinking": 1}, TypeError),
            ({"template_kwargs": {"messages": []}}, ValueError),
            ({"max_token": 3}, TypeError),
        ],
    )
    def test_with_an_option_that_is_wrong(self, engine: Engine, options: dict[str, Any], error: type) -> None:
        chat = engine.conversation(system="s")
        for call in SENDING.values():
            with pytest.raises(error):
                call(chat, **options)
        assert spoken(chat) == [("system", "s")]

    def test_the_conversation_goes_on(self, engine: Engine) -> None:
        chat = engine.conversation()
        with pytest.raises(GrammarError) as caught:
            chat.send(QUESTION, grammar="root ::= (")
        assert caught.value.line is not None
        assert chat.send(QUESTION, **GREEDY).text == engine.conversation().send(QUESTION, **GREEDY).text


class TestTransformsThatRaise:
    def test_on_the_way_in(self, engine: Engine) -> None:
        chat = engine.conversation(input_transforms=[lambda text: text[1000]])
        with pytest.raises(IndexError):
            chat.send(QUESTION)
        assert chat.messages == ()

    @pytest.mark.parametrize("where", ["feed", "flush"])
    def test_on_the_way_out(self, engine: Engine, where: str) -> None:
        class Bad:
            def feed(self, text: str) -> str:
                return text if where == "flush" else str(1 / 0)

            def flush(self) -> str:
                return str(1 / 0)

        chat = engine.conversation(output_transform=Bad)
        for call in SENDING.values():
            with pytest.raises(ZeroDivisionError):
                call(chat, **GREEDY)
            assert spoken(chat) == [("user", QUESTION)]
            chat.rewind()

    def test_on_the_history(self, engine: Engine) -> None:
        chat = engine.conversation(history_transform=lambda messages: 1 // 0)  # type: ignore[arg-type, return-value]
        with pytest.raises(ZeroDivisionError):
            chat.send(QUESTION)
        assert chat.messages == ()


class TestIsolation:
    def test_one_that_fails_does_not_touch_the_others(self, engine: Engine) -> None:
        async def main() -> list[Any]:
            chats = [engine.conversation() for _ in range(4)]
            sending = [
                chat.asend(QUESTION, **GREEDY, samplers=FailingAt(3) if i == 2 else (), logprobs=True)
                for i, chat in enumerate(chats)
            ]
            return await asyncio.gather(*sending, return_exceptions=True)

        alone = engine.conversation().send(QUESTION, **GREEDY, logprobs=True)
        results = asyncio.run(main())
        assert isinstance(results.pop(2), ZeroDivisionError)
        assert [(r.text, r.logprobs) for r in results] == [(alone.text, alone.logprobs)] * 3

    def test_nor_does_one_that_is_too_long(self, engine: Engine) -> None:
        async def main() -> list[Any]:
            sending = [engine.conversation().asend(text, **GREEDY) for text in (QUESTION, "word " * 3000, QUESTION)]
            return await asyncio.gather(*sending, return_exceptions=True)

        first, failed, second = asyncio.run(main())
        assert getattr(failed, "kind", None) == "too_long"
        assert first.text == second.text == engine.conversation().send(QUESTION, **GREEDY).text

    def test_a_grammar_that_ends_nowhere_fails_alone(self, engine: Engine) -> None:
        """The model is made to leave its grammar, which cannot go on then."""
        chat = engine.conversation()
        with pytest.raises((GrammarError, ValueError)):
            chat.send(QUESTION, temperature=0, grammar='root ::= "yes"', samplers=Dictation(engine, "no"))
        assert spoken(chat) == [("user", QUESTION)]
        assert chat.respond(**GREEDY).text
