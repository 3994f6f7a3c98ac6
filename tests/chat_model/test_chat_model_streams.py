"""Streams of the facade: tagged pieces of all sessions as they come, and what stops them."""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import TYPE_CHECKING

import pytest
from asking import GREEDY, WORDS, about, joined, texts

from causerie.chat_model import ChatMessage, ChatSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie import Engine
    from causerie.chat_model import ChatModel, ChatModelResponse

SESSIONS = [about(word) for word in WORDS[:4]]


def ends(items: list[ChatModelResponse]) -> dict[int, ChatModelResponse]:
    return {item.responses[0].index: item for item in items if item.metadata is not None}


def assert_idle(engine: Engine) -> None:
    stats = engine.stats()
    assert (stats.running, stats.queued, stats.sequences) == (0, 0, 0)


class TestPieces:
    def test_joined_they_are_the_blocking_answer(self, model: ChatModel) -> None:
        items = list(model.stream_chat(SESSIONS, **GREEDY))
        assert [[text] for text in joined(items, 4)] == texts(model.chat(SESSIONS, **GREEDY))

    def test_each_is_of_one_candidate_of_one_session_until_its_end(self, model: ChatModel) -> None:
        items = list(model.stream_chat(SESSIONS, **GREEDY))
        assert set(ends(items)) == {0, 1, 2, 3}
        for item in items:
            (new,) = item.responses
            (candidate,) = new.candidates
            assert candidate.message.author == "assistant"
            if item.metadata is None:
                assert candidate.message.content
                assert (candidate.finish_reason, new.metadata) == (None, None)
            else:
                assert candidate.message.content == ""
                assert candidate.finish_reason in {"stop", "length"}
                assert new.metadata == item.metadata
                assert not any(later.responses[0].index == new.index for later in items[items.index(item) + 1 :])

    def test_sessions_interleave(self, make_model: Callable[..., ChatModel]) -> None:
        items = make_model().stream_chat(SESSIONS, max_output_tokens=10, temperature=0)
        order = [item.responses[0].index for item in items if item.metadata is None]
        assert sum(a != b for a, b in itertools.pairwise(order)) > len(order) / 2
        assert set(order[:8]) == {0, 1, 2, 3}

    def test_a_short_session_ends_before_a_long_one(self, make_model: Callable[..., ChatModel]) -> None:
        model = make_model(max_resident=1)  # one after the other
        items = list(model.stream_chat(SESSIONS[:3], **GREEDY))
        assert list(ends(items)) == [0, 1, 2]
        first_end = items.index(ends(items)[0])
        assert all(item.responses[0].index == 0 for item in items[:first_end])

    def test_candidates_are_told_apart(self, model: ChatModel) -> None:
        stream = model.stream_chat(SESSIONS[:2], 5, 1.5, candidateCount=2, seed=2)
        found = {(i, j): "" for i in range(2) for j in range(2)}
        for item in stream:
            for candidate in item.responses[0].candidates:
                found[item.responses[0].index, candidate.index] += candidate.message.content
        assert [[found[i, 0], found[i, 1]] for i in range(2)] == texts(stream.response)
        assert texts(stream.response) == texts(model.chat(SESSIONS[:2], 5, 1.5, candidateCount=2, seed=2))

    def test_log_probabilities_come_with_them(self, model: ChatModel) -> None:
        items = list(model.stream_chat(SESSIONS[:1], **GREEDY, logprobs=True))
        assert all(len(item.responses[0].candidates[0].logprobs) == 1 for item in items if item.metadata is None)

    def test_the_whole_may_be_asked_for_at_any_time(self, model: ChatModel) -> None:
        stream = model.stream_chat(SESSIONS, **GREEDY)
        first = next(stream)
        whole = stream.response
        assert texts(whole) == texts(model.chat(SESSIONS, **GREEDY))
        assert [[text] for text in joined([first, *stream], 4)] == texts(whole)
        assert next(stream, None) is None

    def test_of_no_sessions(self, model: ChatModel) -> None:
        stream = model.stream_chat([])
        assert list(stream) == []
        assert stream.response == model.chat([])

    def test_of_many_more_sessions_than_places(self, make_model: Callable[..., ChatModel]) -> None:
        model = make_model(max_resident=4)
        kinds = [ChatSession(messages=[f"Define {word}"]) for word in ("tea", "ice", "sea")]
        items = list(model.stream_chat(kinds * 8, max_output_tokens=2, temperature=0))
        found = joined(items, 24)
        assert len(set(found)) == 3
        assert found == found[:3] * 8
        assert set(ends(items)) == set(range(24))

    def test_asynchronous_ones_are_the_same(self, model: ChatModel) -> None:
        async def main() -> list[ChatModelResponse]:
            return [item async for item in model.async_stream_chat(SESSIONS, **GREEDY)]

        items = asyncio.run(main())
        assert [[text] for text in joined(items, 4)] == texts(model.chat(SESSIONS, **GREEDY))
        assert set(ends(items)) == {0, 1, 2, 3}

    def test_asynchronous_ones_of_several_tasks(self, model: ChatModel) -> None:
        async def one(word: str) -> list[str]:
            return joined([item async for item in model.async_stream_chat([about(word)] * 2, **GREEDY)], 2)

        async def main() -> list[list[str]]:
            return await asyncio.gather(*(one(word) for word in WORDS[:3]))

        for word, found in zip(WORDS, asyncio.run(main()), strict=False):
            assert [[text] for text in found] == texts(model.chat([about(word)] * 2, **GREEDY))


class TestStopping:
    def test_a_dropped_one_stops_its_sessions(self, model: ChatModel) -> None:
        stream = model.stream_chat(SESSIONS, 300, 0)
        next(stream)
        del stream
        assert_idle(model.engine)
        assert model.engine.stats().generated < 300

    def test_a_dropped_one_leaves_no_cycle(self, model: ChatModel) -> None:
        gc.collect()
        gc.disable()
        try:
            for item in model.stream_chat(SESSIONS, 300, 0):
                assert item.responses
                break
            assert_idle(model.engine)
        finally:
            gc.enable()

    def test_one_that_is_never_read(self, model: ChatModel) -> None:
        model.stream_chat(SESSIONS, 300, 0)
        assert_idle(model.engine)

    def test_closing_keeps_what_there_is(self, model: ChatModel) -> None:
        with model.stream_chat(SESSIONS, 300, 0) as stream:
            for item in stream:
                if item.responses[0].index == 3:
                    break
        for each in stream.response.responses:
            assert each.candidates[0].finish_reason == "cancelled"
            assert each.candidates[0].metadata["tokens"] >= 1
        assert_idle(model.engine)
        stream.close()
        assert list(stream)  # what had come before

    def test_the_next_call_is_as_if_there_had_been_none(self, model: ChatModel) -> None:
        before = texts(model.chat(SESSIONS, **GREEDY))
        with model.stream_chat(SESSIONS, 300, 0) as stream:
            next(stream)
        assert texts(model.chat(SESSIONS, **GREEDY)) == before

    def test_a_task_that_is_cancelled(self, model: ChatModel) -> None:
        async def main() -> None:
            seen = asyncio.Event()

            async def read() -> None:
                async for _ in model.async_stream_chat(SESSIONS, 300, 0):
                    seen.set()

            task = asyncio.ensure_future(read())
            await seen.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert_idle(model.engine)

    def test_a_call_that_is_cancelled_while_it_begins(self, model: ChatModel) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(model.async_chat([about(str(i)) for i in range(200)], 300, 0))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert_idle(model.engine)

        asyncio.run(main())

    def test_a_time_limit(self, model: ChatModel) -> None:
        async def main() -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(
                    model.async_chat(SESSIONS, 500, 0, logit_bias={model.engine.model.vocab.eos: False}), 0.3
                )

        asyncio.run(main())
        assert_idle(model.engine)

    def test_an_asynchronous_one_that_is_closed(self, model: ChatModel) -> None:
        async def main() -> ChatModelResponse:
            async with model.async_stream_chat(SESSIONS, 300, 0) as stream:
                async for _ in stream:
                    break
            await stream.aclose()
            assert [item async for item in stream]  # what had come before
            return await stream.response()

        response = asyncio.run(main())
        assert {each.candidates[0].finish_reason for each in response.responses} == {"cancelled"}
        assert_idle(model.engine)

    def test_an_asynchronous_one_that_never_began(self, model: ChatModel) -> None:
        async def main() -> None:
            model.async_stream_chat(SESSIONS)
            stream = model.async_stream_chat(SESSIONS)
            await stream.aclose()
            assert [item async for item in stream] == []
            with pytest.raises(RuntimeError, match="closed before it began"):
                await stream.response()

        asyncio.run(main())
        assert_idle(model.engine)

    def test_one_of_two_streams_does_not_stop_the_other(self, model: ChatModel) -> None:
        left, right = (model.stream_chat(SESSIONS, **GREEDY) for _ in range(2))
        next(left)
        left.close()
        assert texts(right.response) == texts(model.chat(SESSIONS, **GREEDY))

    def test_a_reply_may_go_on_a_session(self, model: ChatModel) -> None:
        answer = model.chat([about("sea")], **GREEDY).responses[0].candidates[0].message
        session = about("sea")
        longer = ChatSession(session.context, messages=[*session.messages, answer, ChatMessage("Go on.")])
        assert [m.role for m in longer.to_messages()] == ["user", "assistant", "user"]
        assert model.chat([longer], **GREEDY).responses[0].metadata.inputTokenCount.unbilledTokens > 0
