"""What was evaluated once is not evaluated again: within a conversation, between two, and whatever was sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from talking import HOT, Dictation, Oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Engine

GREEDY = {"temperature": 0, "max_tokens": 5}


class TestWithinAConversation:
    @pytest.mark.parametrize("options", [{"temperature": 0}, {**HOT, "seed": 11}], ids=["greedy", "hot"])
    def test_a_turn_evaluates_only_its_new_tokens(self, engine: Engine, options: dict[str, float]) -> None:
        chat = engine.conversation(system="You are brief.")
        held = 0
        for turn in range(4):
            before = engine.stats().tokens
            reply = chat.send(f"Question {turn}?", **options, max_tokens=6)
            usage = reply.usage
            if turn:
                # All is there but the last generated token, which no step has needed yet.
                assert held - 1 <= usage.cached_tokens <= held
            evaluated = usage.prompt_tokens - usage.cached_tokens
            assert engine.stats().tokens - before <= evaluated + usage.completion_tokens
            held = usage.prompt_tokens + usage.completion_tokens

    def test_generated_ids_are_not_tokenised_anew(self, engine: Engine, oracle: Oracle) -> None:
        """ "hello" spelled in single letters: no tokenizer would cut it so."""
        chat = engine.conversation()
        letters = [engine.model.vocab.tokenize(letter, add_special=False).tolist() for letter in "hello"]
        assert all(len(ids) == 1 for ids in letters)
        dictation = Dictation(engine, "")
        dictation.ids = [ids[0] for ids in letters] + dictation.ids
        assert chat.send("Hi.", temperature=0, samplers=dictation).text == "hello"
        spelled = [ids[0] for ids in letters]
        prompt = chat.tokenize("Go on.").tolist()
        at = next(i for i in range(len(prompt)) if prompt[i : i + 5] == spelled)
        assert at
        reply = chat.send("Go on.", **GREEDY)
        assert reply.usage.cached_tokens >= at + 4
        assert reply.text == oracle.text(prompt, 5)

    def test_a_time_to_first_token_is_that_of_the_new_tokens(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.send("word " * 200, temperature=0, max_tokens=1)
        first = chat.report
        chat.send("Hi.", temperature=0, max_tokens=1)
        second = chat.report
        assert first is not None
        assert second is not None
        assert second.timings.first_token is not None
        assert first.timings.first_token is not None
        assert second.timings.first_token < first.timings.first_token / 2

    def test_prefill_leaves_one_token_for_the_reply(self, engine: Engine) -> None:
        chat = engine.conversation(system="You are a poet.")
        chat.add_user("Name a flower, any flower.")
        chat.prefill()
        before = engine.stats().tokens
        reply = chat.respond(**GREEDY)
        assert reply.usage.prompt_tokens - reply.usage.cached_tokens == 1
        assert engine.stats().tokens - before == 5
        assert reply.text == engine.conversation(messages=chat.messages[:2]).respond(**GREEDY).text

    def test_prefill_of_what_is_no_question_yet(self, engine: Engine) -> None:
        chat = engine.conversation(system="You are a gardener. " * 8)
        chat.prefill()
        chat.prefill()
        assert chat.send("Hi.", **GREEDY).usage.cached_tokens >= chat.fork().count_tokens() // 2
        engine.conversation().prefill()  # of nothing


class TestBetweenConversations:
    def test_a_system_prompt_is_evaluated_once(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine()
        system = "You know all about birds, and answer with one short sentence. " * 3
        first, second = engine.conversation(system), engine.conversation(system)
        shared = first.token_count
        one = first.send("Do owls sleep?", **GREEDY)
        two = second.send("Do geese swim?", **GREEDY)
        assert one.usage.cached_tokens == 0
        assert shared - 2 <= two.usage.cached_tokens <= shared + 4
        assert engine.stats().cells_shared >= shared - 2

    def test_also_when_many_start_at_once(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine(n_ctx=1024)
        system = "You know all about fish. " * 12
        chats = [engine.conversation(system) for _ in range(6)]
        streams = [chat.stream(f"Number {i}?", **GREEDY) for i, chat in enumerate(chats)]
        replies = [stream.reply for stream in streams]
        evaluated = sum(reply.usage.prompt_tokens - reply.usage.cached_tokens for reply in replies)
        assert evaluated < chats[0].fork().count_tokens() + 6 * 24
        assert engine.stats().tokens <= evaluated + sum(reply.usage.completion_tokens for reply in replies)

    def test_a_conversation_made_again_finds_its_messages(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine()
        chat = engine.conversation("You are brief.")
        chat.send("Name a bird.", **GREEDY)
        chat.send("Another.", **GREEDY)
        messages = chat.messages
        chat.close()
        again = engine.conversation(messages=messages)
        reply = again.send("One more.", **GREEDY)
        assert reply.usage.cached_tokens > reply.usage.prompt_tokens / 2
