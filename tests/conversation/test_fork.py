"""Branches: at any idle time, without a copy, and each as if it were alone. And several candidates of one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from talking import HOT, FailingAt, Oracle, fresh, spoken

from causerie import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Engine

GREEDY = {"temperature": 0, "max_tokens": 6}


class TestFork:
    def test_of_one_never_sent(self, engine: Engine) -> None:
        chat = engine.conversation("You are brief.")
        branch = chat.fork()
        assert isinstance(branch, Conversation)
        assert branch.messages == chat.messages
        assert branch.send("Hi.", **GREEDY).text == chat.send("Hi.", **GREEDY).text
        assert engine.conversation().fork().send("Hi.", **GREEDY).text

    def test_with_a_pending_user_turn(self, engine: Engine) -> None:
        chat = engine.conversation()
        chat.add_user("Name a tree.")
        branch = chat.fork()
        expected = branch.respond(**GREEDY).text
        assert spoken(chat) == [("user", "Name a tree.")]
        assert chat.respond(**GREEDY).text == expected
        assert chat.messages == branch.messages

    def test_a_greedy_sibling_equals_a_fresh_replay(self, engine: Engine, oracle: Oracle) -> None:
        chat = engine.conversation()
        chat.send("Name a tree.", **GREEDY)
        before = chat.messages
        branch = chat.fork()
        reply = branch.send("Another.", **GREEDY, logprobs=True)
        replayed = engine.conversation()
        replayed.send("Name a tree.", **GREEDY)
        again = replayed.send("Another.", **GREEDY, logprobs=True)
        assert (reply.text, reply.logprobs) == (again.text, again.logprobs)
        assert reply.text == oracle.text(chat.tokenize("Another."), 6)
        assert chat.messages == before

    def test_nothing_is_copied(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine()
        chat = engine.conversation(name="parent")
        chat.send("word " * 60, temperature=0, max_tokens=2)
        used = engine.stats().cells_used
        branches = chat.fork(5)
        assert engine.stats().cells_used == used
        assert engine.stats().cells_shared == used
        cells = {entry.cells for entry in engine.cache_map().entries if entry.owned}
        assert len(cells) == 1
        assert engine.stats().resident == 6
        del branches

    def test_branches_that_part_are_both_right(self, engine: Engine, oracle: Oracle) -> None:
        chat = engine.conversation()
        chat.send("Name a tree.", **GREEDY)
        left, right = chat.fork(2)
        streams = [c.stream(text, **GREEDY) for c, text in ((left, "Why?"), (right, "Where?"), (chat, "Go on."))]
        prompts = [fresh_ids(s) for s in streams]
        texts = [stream.text for stream in streams]
        assert texts == [oracle.text(prompt, 6) for prompt in prompts]
        assert len({c.messages for c in (left, right, chat)}) == 3
        for c in (right, left):
            prompt = c.tokenize("And?")
            assert c.send("And?", **GREEDY).text == oracle.text(prompt, 6)

    def test_what_is_done_to_one_does_not_reach_the_other(self, engine: Engine) -> None:
        chat = engine.conversation("s")
        chat.send("Hi.", **GREEDY)
        before = chat.messages
        branch = chat.fork()
        branch.rewind()
        branch.add_user("other")
        branch.close()
        assert chat.messages == before
        assert chat.regenerate(**GREEDY).message == before[-1]

    def test_has_the_settings_and_the_figures(self, engine: Engine) -> None:
        chat = engine.conversation(sampling={"temperature": 0, "stop": "."}, max_tokens=4)
        chat.send("Hi.")
        branch = chat.fork()
        assert branch.report == chat.report
        assert branch.send("x").text == chat.send("x").text

    def test_a_list_of_n(self, engine: Engine) -> None:
        chat = engine.conversation()
        assert chat.fork(0) == []
        assert len(chat.fork(3)) == 3
        with pytest.raises(ValueError):
            chat.fork(-1)

    def test_beyond_the_places_there_are(self, make_engine: Callable[..., Engine], oracle: Oracle) -> None:
        engine = make_engine(max_resident=3)
        chat = engine.conversation()
        chat.send("Name a tree.", **GREEDY)
        prompt = chat.tokenize("Why?")
        expected = oracle.text(prompt, 6)
        for branch in [*chat.fork(6), chat]:
            assert branch.send("Why?", **GREEDY).text == expected


def fresh_ids(stream: object) -> list[int]:
    generation = stream.turn.candidates[0].generation  # type: ignore[attr-defined]
    return generation.target[: generation.n_prompt]


class TestPenalties:
    def test_follow_fork_and_rewind(self, engine: Engine) -> None:
        """They depend on the tokens of the prompt, so a branch and a replay must choose alike."""
        options = {"temperature": 0, "max_tokens": 8, "repeat_penalty": 1.5, "repeat_last_n": 64, "dry_multiplier": 0.8}
        chat = engine.conversation()
        chat.send("Say it three times.", **options)
        expected = fresh(chat, engine).send("Again.", **options).text
        branch = chat.fork()
        assert branch.send("Again.", **options).text == expected
        chat.send("Something else, with other words.", **options)
        chat.rewind()
        assert chat.send("Again.", **options).text == expected
        assert chat.send("Again.", **GREEDY).text  # and are gone where they are not asked for


class TestCandidates:
    def test_are_as_many_forks_with_seeds_of_their_own(self, engine: Engine) -> None:
        chat = engine.conversation("You are brief.")
        branches = chat.fork(3)
        reply = chat.send("Tell me about owls.", **HOT, seed=20, n=3, max_tokens=6)
        expected = [
            branch.send("Tell me about owls.", **HOT, seed=20 + i, max_tokens=6).text
            for i, branch in enumerate(branches)
        ]
        assert [candidate.text for candidate in reply.candidates] == expected
        assert len(set(expected)) > 1
        assert reply.text == expected[0]
        assert chat.messages[-1] == reply.message == reply.candidates[0].message
        assert len(chat.messages) == 3

    def test_share_one_prefill(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine()
        chat = engine.conversation()
        reply = chat.send("word " * 60, temperature=0, n=4, max_tokens=3)
        assert engine.stats().tokens <= reply.usage.prompt_tokens + 3 + 4 * 3
        assert [c.usage.cached_tokens > 55 for c in reply.candidates] == [False, True, True, True]

    def test_stream_interleaved(self, engine: Engine) -> None:
        chat = engine.conversation()
        chunks = list(chat.stream("Tell me about owls.", **HOT, seed=1, n=3, max_tokens=8))
        order = [chunk.index for chunk in chunks]
        assert set(order) == {0, 1, 2}
        assert order != sorted(order)
        reply = chat.messages[-1].text
        assert "".join(chunk.text for chunk in chunks if chunk.index == 0) == reply

    def test_leave_nothing_behind(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine()
        chat = engine.conversation()
        chat.send("Hi.", temperature=0, n=4, max_tokens=2)
        assert (engine.stats().sequences, engine.stats().running) == (1, 0)
        assert chat.send("Why?", **GREEDY).text == fresh(chat.fork(), engine).regenerate(**GREEDY).text

    def test_one_that_fails_ends_all(self, engine: Engine) -> None:
        chat = engine.conversation()
        with pytest.raises(ZeroDivisionError):
            chat.send("Hi.", temperature=0, n=3, samplers=FailingAt(7))
        assert spoken(chat) == [("user", "Hi.")]
        assert engine.stats().running == 0
        assert chat.respond(**GREEDY).text == engine.conversation().send("Hi.", **GREEDY).text

    def test_cancelled_when_one_has_ended_already(self, engine: Engine) -> None:
        """The first says one word and is done; the others would go on."""
        eos = engine.model.vocab.eos
        calls = []

        def first_one_ends(row: object) -> None:
            calls.append(1)
            if len(calls) == 4:
                row[:] = -float("inf")  # type: ignore[index]
                row[eos] = 0  # type: ignore[index]

        chat = engine.conversation()
        stream = chat.stream("Tell me about owls.", temperature=0, n=3, samplers=first_one_ends)
        while len(calls) < 12:
            next(stream)
        chat.cancel()
        assert chat.send("Why?", **GREEDY).finish_reason == "length"
        reasons = [candidate.finish_reason for candidate in stream.reply.candidates]
        assert sorted(reasons) == ["cancelled", "cancelled", "stop"]
