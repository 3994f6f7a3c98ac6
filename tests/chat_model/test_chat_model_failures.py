"""A session that fails is an item of the response and no lost call; an engine that ends is the call's error."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from asking import GREEDY, about, texts

from causerie import ContextOverflowError, Engine, GrammarError, TemplateError
from causerie.chat_model import ChatMessage, ChatModel, ChatSession
from causerie.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from causerie.llama import Model

GOOD = about("sea")
TOO_LONG = ChatSession(messages=["sea " * 3000])
FAILING = {
    "too long": (TOO_LONG, "ContextOverflowError", "tokens of context"),
    "no messages": (ChatSession("You are terse.", [("a", "b")]), "ValueError", "has no messages"),
    "the assistant is last": (ChatSession(messages=[ChatMessage("a", "bot")]), "ValueError", "the last message is by"),
    "system text in the middle": (
        ChatSession(messages=[ChatMessage("a", "user"), ChatMessage("b", "system"), "c"]),
        "ValueError",
        "must be the first",
    ),
    "two system texts": (
        ChatSession("a", messages=[ChatMessage("b", "system"), "c"]),
        "ValueError",
        "must be the first",
    ),
}


class FailingOnce:
    """A sampler that raises at its k-th call, whichever session that is for."""

    def __init__(self, k: int, error: type[BaseException] = ZeroDivisionError) -> None:
        self.left = k
        self.error = error

    def __call__(self, row: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error("the sampler's own")


class TestOneSession:
    @pytest.mark.parametrize("name", FAILING)
    def test_fails_and_the_others_do_not(self, model: ChatModel, name: str) -> None:
        session, kind, message = FAILING[name]
        response = model.chat([GOOD, session, GOOD], **GREEDY)
        good, failed, same = response.responses
        assert failed.candidates == ()
        assert (failed.index, failed.metadata, failed.error.type) == (1, None, kind)
        assert message in failed.error.message
        assert isinstance(failed.error.exception, ValueError)
        assert (good.error, same.error) == (None, None)
        assert texts(response)[0] == texts(response)[2] == texts(model.chat([GOOD], **GREEDY))[0]
        tokens = good.metadata.inputTokenCount.tokens + same.metadata.inputTokenCount.tokens
        assert response.metadata.inputTokenCount.tokens == tokens

    def test_says_what_it_needed(self, model: ChatModel) -> None:
        response = model.chat([TOO_LONG], **GREEDY)
        (failed,) = response.responses
        error = failed.error.exception
        assert isinstance(error, ContextOverflowError)
        assert (error.kind, error.available) == ("too_long", model.engine.n_ctx)
        for thing in (failed, response):
            with pytest.raises(ContextOverflowError):
                thing.raise_for_error()
        assert response.model_dump()["responses"][0]["error"] == {
            "type": "ContextOverflowError",
            "message": str(error),
        }

    def test_fails_while_it_is_generated(self, model: ChatModel) -> None:
        response = model.chat([GOOD] * 3, **GREEDY, samplers=FailingOnce(5))
        failed = [each for each in response.responses if each.error]
        assert [each.error.type for each in failed] == ["ZeroDivisionError"]
        assert failed[0].candidates == ()
        others = [texts(response)[each.index] for each in response.responses if not each.error]
        assert others == [texts(model.chat([GOOD], **GREEDY))[0]] * 2

    def test_fails_with_all_its_candidates(self, model: ChatModel) -> None:
        response = model.chat([GOOD] * 2, 6, 1.5, candidateCount=3, samplers=FailingOnce(9))
        assert sum(each.error is not None for each in response.responses) == 1
        assert sorted(len(each.candidates) for each in response.responses) == [0, 3]
        assert model.engine.stats().running == 0

    def test_fails_in_a_stream(self, model: ChatModel) -> None:
        stream = model.stream_chat([TOO_LONG, GOOD, GOOD], **GREEDY, samplers=FailingOnce(5))
        errors = {item.responses[0].index: item for item in stream if item.responses[0].error}
        assert len(errors) == 2
        assert 0 in errors
        for item in errors.values():
            assert (item.metadata, item.responses[0].candidates) == (None, ())
        assert [bool(each.error) for each in stream.response.responses] == [i in errors for i in range(3)]

    def test_fails_in_asynchronous_calls(self, model: ChatModel) -> None:
        async def main() -> None:
            response = await model.async_chat([GOOD, TOO_LONG], **GREEDY)
            assert [bool(each.error) for each in response.responses] == [False, True]
            items = [item async for item in model.async_stream_chat([GOOD, TOO_LONG], **GREEDY)]
            assert [item.responses[0].index for item in items if item.responses[0].error] == [1]

        asyncio.run(main())

    def test_that_all_of_them_fail_is_no_error_of_the_call(self, model: ChatModel) -> None:
        response = model.chat([TOO_LONG] * 3)
        assert [each.error.type for each in response.responses] == ["ContextOverflowError"] * 3
        assert response.metadata.inputTokenCount.tokens == 0


class TestTheWholeCall:
    def test_an_engine_that_is_closed_meanwhile(self, llama_model: Model) -> None:
        model = ChatModel(llama_model, n_ctx=512, n_threads=1)
        stream = model.stream_chat([GOOD] * 3, 400, 0)
        next(stream)
        model.close()
        with pytest.raises(ClosedError):
            list(stream)
        with pytest.raises(ClosedError):
            stream.response  # noqa: B018
        stream.close()
        assert next(stream, None) is None

    def test_an_engine_that_is_closed_under_a_task(self, llama_model: Model) -> None:
        model = ChatModel(llama_model, n_ctx=512, n_threads=1)

        async def main() -> None:
            stream = model.async_stream_chat([GOOD] * 3, 400, 0)
            await anext(stream.__aiter__())
            await asyncio.to_thread(model.close)
            with pytest.raises(ClosedError):
                await stream.response()
            await stream.aclose()

        asyncio.run(main())

    def test_a_model_without_a_template(self, llama_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        with Engine(llama_model, n_ctx=256) as engine:
            monkeypatch.setattr(engine, "_made", _no_template)
            with pytest.raises(TemplateError):
                ChatModel(engine).chat([GOOD])

    def test_an_exception_that_is_no_error_ends_all(self, model: ChatModel) -> None:
        with pytest.raises(SystemExit):
            model.chat([GOOD] * 3, **GREEDY, samplers=FailingOnce(5, SystemExit))
        stats = model.engine.stats()
        assert (stats.running, stats.queued, stats.sequences) == (0, 0, 0)

    def test_ctrl_c(self, model: ChatModel) -> None:
        def press(row: Any) -> None:
            if not pressed.is_set():
                pressed.set()
                signal.raise_signal(signal.SIGINT)

        pressed = threading.Event()
        with pytest.raises(KeyboardInterrupt):
            model.chat([GOOD] * 3, 300, 0, samplers=press)
        assert model.engine.stats().running == 0
        assert texts(model.chat([GOOD], **GREEDY)) == texts(model.chat([GOOD], **GREEDY))

    def test_sessions_that_were_begun_before_a_wrong_option_are_given_up(
        self, make_model: Callable[..., ChatModel]
    ) -> None:
        model = make_model()
        with pytest.raises(GrammarError):
            model.stream_chat([GOOD] * 3, grammar="root ::= (")
        stats = model.engine.stats()
        assert (stats.queued, stats.sequences, stats.tokens) == (0, 0, 0)

    def test_a_wrong_option_in_asynchronous_calls(self, model: ChatModel) -> None:
        async def main() -> None:
            unheard: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
            for call in (model.async_chat, lambda *a, **k: model.async_stream_chat(*a, **k).response()):
                with pytest.raises(GrammarError):
                    await call([GOOD] * 2, grammar="root ::= (")
            await asyncio.sleep(0.01)
            assert unheard == []

        asyncio.run(main())

    def test_a_sampler_that_returns_nonsense_fails_each_session(self, model: ChatModel) -> None:
        response = model.chat([GOOD] * 2, **GREEDY, samplers=lambda row: np.zeros(3, np.float32))
        assert all(each.error is not None for each in response.responses)


def _no_template(*_: Any) -> Any:
    raise TemplateError("the model's file has no chat template")
