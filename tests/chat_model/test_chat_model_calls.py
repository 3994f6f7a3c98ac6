"""Calls of the facade, blocking and asynchronous: one ordered response per session, all evaluated together."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from asking import GREEDY, WORDS, about, alone, texts

from causerie import Engine, GrammarError, ModelLoadError
from causerie.chat_model import ChatMessage, ChatModel, ChatSession
from causerie.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from causerie.chat_model import ChatModelResponse
    from causerie.llama import Model


class TestEachSession:
    def test_equals_its_lone_run_in_order(self, make_model: Callable[..., ChatModel]) -> None:
        model, lone = make_model(), make_model()
        sessions = [about(word) for word in WORDS[:5]]
        response = model.chat(sessions, **GREEDY)
        assert [each.index for each in response.responses] == list(range(5))
        assert texts(response) == [[alone(lone.engine, session)] for session in sessions]
        assert len({text for [text] in texts(response)}) > 1

    def test_finds_its_own_secret_and_no_other(self, make_model: Callable[..., ChatModel]) -> None:
        model = make_model(n_ctx=256, max_resident=3)  # more sessions than places
        sessions = [ChatSession(f"The secret word is {w}.", messages=["Repeat the secret word."]) for w in WORDS]
        said = [text for [text] in texts(model.chat(sessions, max_output_tokens=10, temperature=0))]
        for word, text in zip(WORDS, said, strict=True):
            assert {other for other in WORDS if other in text} <= {word}
        assert sum(word in text for word, text in zip(WORDS, said, strict=True)) >= 4

    def test_is_the_conversation_of_its_parts(self, model: ChatModel) -> None:
        session = ChatSession(
            "Answer with a number.",
            [("1 + 1", "2"), ("2 + 2", "4")],
            [ChatMessage("Hello.", "bot"), ChatMessage("3 + 3", "USER"), ChatMessage("6", "bot"), "4 + 4"],
        )
        with model.engine.conversation(
            "Answer with a number.",
            examples=[("1 + 1", "2"), ("2 + 2", "4")],
            messages=[
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "3 + 3"},
                {"role": "assistant", "content": "6"},
                {"role": "user", "content": "4 + 4"},
            ],
        ) as chat:
            reply = chat.respond(temperature=0, max_tokens=4)
        response = model.chat([session], 4, 0)
        (each,) = response.responses
        assert texts(response) == [[reply.text]]
        assert each.metadata.inputTokenCount.tokens == reply.usage.prompt_tokens
        assert each.metadata.inputTokenCount.characters == len(session.text)
        assert each.metadata.outputTokenCount.tokens == reply.usage.completion_tokens
        assert each.metadata.outputTokenCount.characters == len(reply.text)

    def test_without_context_gets_no_system_text_of_ours(self, model: ChatModel) -> None:
        session = ChatSession(messages=["Hi."])
        assert texts(model.chat([session], **GREEDY)) == [[alone(model.engine, session)]]

    def test_with_empty_messages_is_answered(self, model: ChatModel) -> None:
        (each,) = model.chat([ChatSession(messages=["", ChatMessage("", "bot"), ""])], 2, 0).responses
        assert each.error is None
        assert each.metadata.inputTokenCount.characters == 0


class TestLists:
    def test_an_empty_one(self, model: ChatModel) -> None:
        response = model.chat([])
        assert response.responses == ()
        assert response.metadata.inputTokenCount.tokens == response.metadata.outputTokenCount.tokens == 0
        assert asyncio.run(model.async_chat(prompts=[])) == response

    def test_of_one(self, model: ChatModel) -> None:
        (each,) = model.chat([about("sea")], **GREEDY).responses
        assert each.candidates[0].message == ChatMessage(alone(model.engine, about("sea")), "assistant")

    def test_of_dicts(self, model: ChatModel) -> None:
        response = model.chat([about("sea").model_dump()], **GREEDY)
        assert texts(response) == texts(model.chat([about("sea")], **GREEDY))

    def test_of_five_hundred(self, make_model: Callable[..., ChatModel]) -> None:
        """Ten different ones, again and again: the answer tells whose it is."""
        model = make_model()
        words = ["cat", "tea", "sun", "red", "ice", "box", "sea", "map", "egg", "dog"]
        kinds = [ChatSession("You are terse.", messages=[f"Define {word}"]) for word in words]
        response = model.chat(kinds * 50, max_output_tokens=1, temperature=0)
        answers = texts(response)
        assert len({text for [text] in answers[:10]}) > 2
        assert answers == answers[:10] * 50
        stats = model.engine.stats()
        assert stats.sequences == 0
        assert stats.cells_used <= stats.cells
        assert response.metadata.outputTokenCount.tokens == stats.generated
        assert stats.steps < response.metadata.inputTokenCount.tokens / 50

    def test_the_whole_counts_what_its_sessions_count(self, model: ChatModel) -> None:
        response = model.chat([about(word) for word in WORDS[:3]], **GREEDY)
        for count in ("inputTokenCount", "outputTokenCount"):
            parts = [getattr(each.metadata, count) for each in response.responses]
            whole = getattr(response.metadata, count)
            assert whole.tokens == sum(part.tokens for part in parts) > 0
            assert whole.characters == sum(part.characters for part in parts) > 0


class TestBatching:
    def test_sessions_of_one_call_share_the_steps(self, make_model: Callable[..., ChatModel]) -> None:
        model = make_model()
        sessions = [ChatSession("You are terse. " * 10, messages=[word]) for word in WORDS]
        response = model.chat(sessions, max_output_tokens=8, temperature=0)
        stats, counts = model.engine.stats(), response.metadata
        assert counts.outputTokenCount.tokens == stats.generated
        assert counts.inputTokenCount.billableTokens + counts.inputTokenCount.unbilledTokens == stats.prompt_tokens
        assert counts.inputTokenCount.unbilledTokens == stats.cached_tokens > 0  # the context they share
        assert stats.steps < stats.generated / 3
        assert stats.steps < stats.tokens / 10

    def test_calls_of_several_threads_too(self, make_model: Callable[..., ChatModel]) -> None:
        model, lone = make_model(), make_model()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda word: model.chat([about(word), about("sea")], **GREEDY), WORDS[:4]))
        for word, response in zip(WORDS, found, strict=False):
            assert texts(response) == [[alone(lone.engine, s)] for s in (about(word), about("sea"))]
        assert model.engine.stats().steps < model.engine.stats().generated

    def test_calls_of_several_tasks_too(self, make_model: Callable[..., ChatModel]) -> None:
        model = make_model()

        async def main() -> list[ChatModelResponse]:
            return await asyncio.gather(*(model.async_chat([about(word)], **GREEDY) for word in WORDS[:4]))

        assert [texts(r) for r in asyncio.run(main())] == [[[alone(model.engine, about(w))]] for w in WORDS[:4]]

    def test_a_blocking_call_inside_a_running_event_loop(self, model: ChatModel) -> None:
        async def main() -> tuple[Any, ...]:
            waiting = asyncio.ensure_future(model.async_chat([about("sea")], **GREEDY))
            await asyncio.sleep(0)
            blocking = model.chat([about("sea")], **GREEDY)
            streamed = model.stream_chat([about("sea")], **GREEDY).response
            return await waiting, blocking, streamed

        first, *others = (texts(response) for response in asyncio.run(main()))
        assert others == [first, first]


class TestOptions:
    def test_several_candidates(self, model: ChatModel) -> None:
        response = model.chat([about("sea"), about("lake")], 4, 1.5, candidateCount=3, seed=1)
        for each in response.responses:
            assert [candidate.index for candidate in each.candidates] == [0, 1, 2]
            tokens = sum(candidate.metadata["tokens"] for candidate in each.candidates)
            assert each.metadata.outputTokenCount.tokens == tokens
        assert texts(response) == texts(model.chat([about("sea"), about("lake")], 4, 1.5, n=3, seed=1))

    def test_both_names_do_the_same(self, model: ChatModel) -> None:
        theirs = {"topP": 0.9, "topK": 5, "stopSequences": ["e"]}
        ours = {"top_p": 0.9, "top_k": 5, "stop": ["e"]}
        for options in (theirs, ours):
            response = model.chat([about("sea")], 12, 1.0, seed=4, **options)
            (candidate,) = response.responses[0].candidates
            assert "e" not in candidate.message.content
            assert candidate.metadata["stop"] == "e"
            assert candidate.finish_reason == "stop"
        assert texts(response) == texts(model.chat([about("sea")], 12, 1.0, seed=4, **theirs))

    def test_a_length_that_is_reached(self, model: ChatModel) -> None:
        (candidate,) = model.chat([about("sea")], max_output_tokens=3, temperature=0).responses[0].candidates
        assert (candidate.finish_reason, candidate.metadata["tokens"]) == ("length", 3)

    def test_logprobs_and_grammar(self, model: ChatModel) -> None:
        response = model.chat([about("sea")], 5, 0, logprobs=2, grammar='root ::= "yes" | "no"')
        (candidate,) = response.responses[0].candidates
        assert candidate.message.content in {"yes", "no"}
        assert len(candidate.logprobs[0].top) == 2
        assert json.loads(json.dumps(response.model_dump()))["responses"][0]["candidates"][0]["logprobs"][0]["id"] >= 0

    def test_trimming_lets_a_long_session_fit(self, make_model: Callable[..., ChatModel]) -> None:
        long = ChatSession(messages=["sea " * 150, "Yes.", "lake " * 150, "Yes.", "Hi."])
        model = make_model(n_ctx=256)
        failed, fits = (model.chat([long], 2, 0, overflow=policy).responses[0] for policy in ("error", "trim"))
        assert failed.error.type == "ContextOverflowError"
        assert fits.error is None

    @pytest.mark.parametrize("how", ["chat", "stream_chat", "async_chat", "async_stream_chat"])
    def test_an_unknown_keyword_raises_at_once(self, model: ChatModel, how: str) -> None:
        async def main() -> None:
            await getattr(model, how)([about("sea")], invalid_parameter=0.5)

        with pytest.raises(TypeError, match="unknown option 'invalid_parameter'"):
            asyncio.run(main())

    def test_what_is_wrong_in_all_sessions_raises(self, model: ChatModel) -> None:
        with pytest.raises(GrammarError):
            model.chat([about("sea")], grammar="root ::= (")
        with pytest.raises(TypeError, match="prompt 1: message 0"):
            model.chat([about("sea"), {"messages": [None]}])


class TestWhoOwnsWhat:
    def test_a_name_is_loaded_and_closed(self, smollm2_path: Path) -> None:
        with ChatModel(smollm2_path, n_ctx=256, n_threads=1, sampling={"temperature": 0}) as model:
            assert model.chat([about("sea")], 1).responses[0].error is None
            loaded = model.engine.model
        assert model.closed
        assert model.engine.closed
        assert loaded.closed
        model.close()
        with pytest.raises(ClosedError):
            model.chat([])
        with pytest.raises(ClosedError):
            model.__enter__()

    def test_a_model_stays_the_callers(self, llama_model: Model) -> None:
        with ChatModel(llama_model, n_ctx=256) as model:
            pass
        assert model.engine.closed
        assert not llama_model.closed

    def test_an_engine_stays_the_callers(self, engine: Engine) -> None:
        with ChatModel(engine) as model:
            assert model.engine is engine
        assert model.closed
        assert not engine.closed
        for call in (model.chat, model.stream_chat, model.async_stream_chat):
            with pytest.raises(ClosedError, match="this chat model is closed"):
                call([])
        with pytest.raises(TypeError, match="cannot take n_ctx"):
            ChatModel(engine, n_ctx=256)

    def test_an_engine_that_was_closed(self, llama_model: Model) -> None:
        engine = Engine(llama_model, n_ctx=256)
        model = ChatModel(engine)
        engine.close()
        assert model.closed
        with pytest.raises(ClosedError):
            model.chat([])

    def test_what_cannot_be_loaded(self, tmp_path: Path, llama_model: Model) -> None:
        with pytest.raises(ModelLoadError):
            ChatModel(tmp_path / "none.gguf")
        with pytest.raises(TypeError, match="server_url"):
            ChatModel(llama_model, server_url="https://localhost")
