"""Many conversations on one engine: batched by themselves, never mixed up, and each equal to its lone run."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from talking import HOT, spoken

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Conversation, Engine, Reply

WORDS = ["pelican", "anvil", "saffron", "glacier", "trombone", "lantern", "walnut"]


def bits(reply: Reply) -> object:
    """What two runs must have in common, to the last bit."""
    return reply.text, reply.logprobs, reply.finish_reason


class TestEachEqualsItsLoneRun:
    @pytest.mark.parametrize("options", [{"temperature": 0}, {**HOT, "seed": 3}], ids=["greedy", "hot"])
    def test_in_threads(self, make_engine: Callable[..., Engine], options: dict[str, float]) -> None:
        lone, engine = make_engine(), make_engine()
        questions = [f"Tell me about the {word}." for word in WORDS[:4]]
        options = {**options, "max_tokens": 6, "logprobs": 1}
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda text: engine.conversation().send(text, **options), questions))
        stats = engine.stats()
        assert [bits(reply) for reply in replies] == [bits(lone.conversation().send(q, **options)) for q in questions]
        assert stats.steps < sum(reply.usage.total_tokens for reply in replies) / 4

    def test_in_tasks(self, make_engine: Callable[..., Engine]) -> None:
        lone, engine = make_engine(), make_engine()
        questions = [f"Tell me about the {word}." for word in WORDS[:4]]

        async def main() -> list[Reply]:
            return await asyncio.gather(
                *(engine.conversation().asend(q, temperature=0, max_tokens=6) for q in questions)
            )

        replies = asyncio.run(main())
        expected = [lone.conversation().send(q, temperature=0, max_tokens=6).text for q in questions]
        assert [reply.text for reply in replies] == expected
        assert engine.stats().steps < sum(reply.usage.total_tokens for reply in replies) / 3


class TestSecretWords:
    def test_each_finds_only_its_own(self, make_engine: Callable[..., Engine]) -> None:
        """Told to all first, asked of all later, with more conversations than there are places or cells."""
        engine = make_engine(n_ctx=256, max_resident=4)
        lone = make_engine(n_ctx=256, max_resident=4)

        def told(engine: Engine, word: str) -> Conversation:
            chat = engine.conversation(f"The secret word is {word}.")
            chat.send("Thank you.", temperature=0, max_tokens=3)
            return chat

        def asked(chat: Conversation) -> Reply:
            return chat.send("Repeat the secret word.", temperature=0, max_tokens=8, logprobs=1)

        with ThreadPoolExecutor(5) as pool:
            chats = list(pool.map(lambda word: told(engine, word), WORDS))
            order = random.Random(1).sample(chats, len(chats))
            replies = dict(zip(order, pool.map(asked, order), strict=True))
        for word, chat in zip(WORDS, chats, strict=True):
            for other in WORDS:
                assert (other in replies[chat].text) <= (other == word)
        for word, chat in list(zip(WORDS, chats, strict=True))[:2]:
            assert bits(replies[chat]) == bits(asked(told(lone, word)))
        assert sum(word in replies[chat].text for word, chat in zip(WORDS, chats, strict=True)) >= 4


class TestMoreThanRoom:
    def test_all_proceed_and_none_loses_its_history(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine(n_ctx=256, max_resident=2)
        lone = make_engine(n_ctx=256)
        chats = [engine.conversation() for _ in WORDS]
        for turn in range(2):
            for word, chat in zip(WORDS, chats, strict=True):
                chat.send(f"{word} {turn}", temperature=0, max_tokens=3)
        for word, chat in zip(WORDS, chats, strict=True):
            assert [text for role, text in spoken(chat) if role == "user"] == [f"{word} 0", f"{word} 1"]
        alone = lone.conversation()
        for turn in range(2):
            alone.send(f"{WORDS[4]} {turn}", temperature=0, max_tokens=3)
        assert alone.messages == chats[4].messages
        stats = engine.stats()
        assert stats.sequences == len(WORDS)
        assert stats.resident <= 2
        assert stats.cells_used <= 256

    def test_streams_that_do_not_all_fit_take_turns(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine(n_ctx=256, max_resident=3)
        lone = make_engine(n_ctx=256)
        streams = [engine.conversation().stream(f"About {w}:", temperature=0, max_tokens=12) for w in WORDS[:5]]
        texts = [stream.text for stream in reversed(streams)][::-1]
        for word, text in list(zip(WORDS, texts, strict=False))[::2]:
            assert text == lone.conversation().send(f"About {word}:", temperature=0, max_tokens=12).text

    def test_streams_read_in_turn_on_one_thread(self, engine: Engine) -> None:
        streams = [engine.conversation().stream(f"About {word}:", temperature=0, max_tokens=6) for word in WORDS[:4]]
        texts = ["" for _ in streams]
        alive = set(range(4))
        while alive:
            for i in sorted(alive):
                chunk = next(streams[i], None)
                if chunk is None:
                    alive.discard(i)
                else:
                    texts[i] += chunk.text
        assert texts == [engine.conversation().send(f"About {w}:", temperature=0, max_tokens=6).text for w in WORDS[:4]]
