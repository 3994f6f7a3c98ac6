"""Messages, examples, sessions, and the keywords of a call. No model is needed for these."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie import Message, SamplingOptions
from causerie.chat_model import (
    Candidate,
    ChatError,
    ChatExample,
    ChatMessage,
    ChatModelResponse,
    ChatPromptResponse,
    ChatSession,
    Metadata,
    TokenCountMetadata,
)
from causerie.chat_model.call_options import CallOptions
from causerie.chat_model.data import as_sessions

SESSION = ChatSession(
    context="You are terse.",
    examples=[ChatExample(input=ChatMessage("1 + 1"), output=ChatMessage("2"))],
    messages=[ChatMessage("Hi.", "USER"), ChatMessage("Hello.", "bot"), ChatMessage("Go on.")],
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
AUTHORS = st.sampled_from(["", "user", "USER", "bot", "Assistant", "1", "model"])
MESSAGES = st.builds(ChatMessage, TEXT, AUTHORS)
SESSIONS = st.builds(
    ChatSession, TEXT, st.lists(st.builds(ChatExample, TEXT, TEXT), max_size=3), st.lists(MESSAGES, max_size=5)
)


def roles(*authors: str) -> list[str]:
    return [m.role for m in ChatSession(messages=[ChatMessage("x", a) for a in authors]).to_messages()]


class TestAuthors:
    @pytest.mark.parametrize("author", ["user", "USER", "User", "human", "0"])
    def test_who_speaks_for_the_user(self, author: str) -> None:
        assert ChatSession(messages=[ChatMessage("Hi.", author)]).to_messages() == [Message("user", "Hi.")]

    @pytest.mark.parametrize("author", ["assistant", "BOT", "ai", "model", "1"])
    def test_who_speaks_for_the_assistant(self, author: str) -> None:
        assert roles(author) == ["assistant"]

    def test_without_authors_they_alternate_and_the_user_is_last(self) -> None:
        assert roles("") == ["user"]
        assert roles("", "", "") == ["user", "assistant", "user"]
        assert roles("", "") == ["assistant", "user"]

    def test_a_missing_author_is_whoever_does_not_speak_next(self) -> None:
        assert roles("", "bot", "") == ["user", "assistant", "user"]
        assert roles("bot", "", "user") == ["assistant", "assistant", "user"]
        assert roles("system", "", "", "") == ["system", "user", "assistant", "user"]

    def test_an_unknown_author_is_refused(self) -> None:
        with pytest.raises(ValueError, match="unknown author 'Alice': there are user"):
            ChatMessage("Hi.", "Alice")


class TestWhatIsTaken:
    def test_texts_pairs_and_dicts_for_objects(self) -> None:
        session = ChatSession(
            "You are terse.",
            [("1 + 1", "2")],
            [{"content": "Hi.", "author": "USER"}, ChatMessage("Hello.", "bot"), "Go on."],
        )
        assert session == SESSION
        assert session.examples[0] == ChatExample("1 + 1", {"content": "2"})

    def test_any_iterable(self) -> None:
        assert ChatSession(messages=(text for text in ["a", "b"])) == ChatSession(messages=["a", "b"])
        assert as_sessions(iter([SESSION])) == [SESSION]

    def test_a_session_without_anything(self) -> None:
        assert ChatSession() == ChatSession(None, (), ()) == ChatSession(context="", examples=[], messages=[])

    def test_lists_that_were_given_are_not_kept(self) -> None:
        messages = [ChatMessage("a")]
        session = ChatSession(messages=messages)
        messages.append(ChatMessage("b"))
        assert session.messages == (ChatMessage("a"),)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: ChatMessage(None), "content must be"),
            (lambda: ChatMessage("a", None), "author must be"),
            (lambda: ChatMessage(b"a"), "content must be"),
            (lambda: ChatExample("a", None), "output must be a ChatMessage or a dict, not NoneType"),
            (lambda: ChatSession(3), "context must be"),
            (lambda: ChatSession(messages="Hi."), "messages must be a list, not str"),
            (lambda: ChatSession(messages=None), "messages must be a list, not NoneType"),
            (lambda: ChatSession(messages=ChatMessage("a")), "messages must be a list, not ChatMessage"),
            (lambda: ChatSession(messages={"content": "a"}), "messages must be a list, not dict"),
            (lambda: ChatSession(messages=["a", None]), "message 1 must be a ChatMessage or a dict"),
            (lambda: ChatSession(messages=[{"text": "a"}]), "message 0: .*text"),
            (lambda: ChatSession(messages=[{"content": None}]), "message 0: content must be"),
            (lambda: ChatSession(examples=["ab"]), "example 0 must be a ChatExample or a dict, not str"),
            (lambda: ChatSession(examples=[("a", "b", "c")]), "example 0 must be"),
            (lambda: as_sessions(SESSION), "put brackets around"),
            (lambda: as_sessions("Hi."), "prompts must be a list, not str"),
            (lambda: as_sessions(None), "prompts must be a list, not NoneType"),
            (lambda: as_sessions([SESSION, "Hi."]), "prompt 1 must be a ChatSession or a dict, not str"),
            (lambda: as_sessions([{"messages": [3]}]), "prompt 0: message 0 must be"),
        ],
    )
    def test_what_is_no_message_or_session_is_refused_by_name(self, make: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            make()

    def test_text_that_utf8_cannot_express_is_refused(self) -> None:
        with pytest.raises(ValueError):
            ChatMessage("\ud800")
        with pytest.raises(ValueError, match="prompt 0: message 0: "):
            as_sessions([{"messages": [{"content": "\ud800"}]}])


class TestData:
    def test_nothing_of_it_can_change(self) -> None:
        for thing in [SESSION, SESSION.messages[0], SESSION.examples[0], Metadata()]:
            with pytest.raises((AttributeError, TypeError)):
                thing.context = "x"

    def test_copies_pickles_and_hashes(self) -> None:
        assert copy.deepcopy(SESSION) == SESSION == pickle.loads(pickle.dumps(SESSION))
        assert len({SESSION, copy.copy(SESSION)}) == 1

    def test_dump_is_plain_and_a_copy(self) -> None:
        assert SESSION.model_dump() == {
            "context": "You are terse.",
            "examples": [{"input": {"content": "1 + 1", "author": ""}, "output": {"content": "2", "author": ""}}],
            "messages": [
                {"content": "Hi.", "author": "USER"},
                {"content": "Hello.", "author": "bot"},
                {"content": "Go on.", "author": ""},
            ],
        }
        SESSION.model_dump()["messages"].clear()
        assert len(SESSION.messages) == 3

    @given(SESSIONS)
    def test_a_session_comes_back_from_its_dump(self, session: ChatSession) -> None:
        data = json.loads(json.dumps(session.model_dump()))
        assert ChatSession(**data) == session
        assert as_sessions([data]) == [session]

    @given(SESSIONS)
    def test_every_message_has_a_role_and_those_without_author_alternate(self, session: ChatSession) -> None:
        given, found = session.messages, session.to_messages()
        assert [message.text for message in found] == [message.content for message in given]
        if given and not given[-1].author:
            assert found[-1].role == "user"
        for i, message in enumerate(given[:-1]):
            if not message.author:
                assert found[i].role != found[i + 1].role

    def test_an_error_dumps_without_its_exception(self) -> None:
        failed = ChatPromptResponse((), 3, error=ChatError.of(ValueError("no")))
        response = ChatModelResponse.of([ChatPromptResponse((Candidate(ChatMessage("a")),)), failed])
        assert failed.model_dump() == {
            "candidates": [],
            "index": 3,
            "metadata": None,
            "error": {"type": "ValueError", "message": "no"},
        }
        json.dumps(response.model_dump())
        assert pickle.loads(pickle.dumps(response)) == response
        with pytest.raises(ValueError, match="no"):
            response.raise_for_error()

    def test_counts_add_up(self) -> None:
        one = TokenCountMetadata.of(5, "a b\n", cached=2)
        assert one == TokenCountMetadata(3, 2, 2, 2)
        assert (one.tokens, one.characters) == (5, 4)
        whole = ChatModelResponse.of(ChatPromptResponse((), i, Metadata(one, one)) for i in range(3))
        assert whole.metadata == Metadata(TokenCountMetadata(9, 6, 6, 6), TokenCountMetadata(9, 6, 6, 6))
        assert ChatModelResponse.of([]) == ChatModelResponse(Metadata(), ())


class TestKeywords:
    @staticmethod
    def options(engine: SamplingOptions | None = None, **given: Any) -> dict[str, Any]:
        return dict(CallOptions.of(given, engine or SamplingOptions()).reply)

    def test_modelfarms_defaults(self) -> None:
        assert self.options() == {"max_tokens": 1024, "temperature": 0.2}

    def test_the_engines_own_options_win_over_them(self) -> None:
        assert self.options(SamplingOptions(temperature=0)) == {"max_tokens": 1024}
        assert self.options(SamplingOptions(temperature=0), temperature=1) == {"max_tokens": 1024, "temperature": 1.0}

    @pytest.mark.parametrize(
        ("keyword", "name", "value"),
        [
            ("candidateCount", "n", 3),
            ("topP", "top_p", 0.1),
            ("topK", "top_k", 20),
            ("stopSequences", "stop", ("\n",)),
            ("max_output_tokens", "max_tokens", 7),
            ("maxOutputTokens", "max_tokens", 7),
            ("presencePenalty", "presence_penalty", 0.5),
            ("frequencyPenalty", "frequency_penalty", 0.5),
            ("logitBias", "logit_bias", {3: -1.0}),
        ],
    )
    def test_both_names_of_an_option(self, keyword: str, name: str, value: Any) -> None:
        assert self.options(**{keyword: value})[name] == self.options(**{name: value})[name] == value
        with pytest.raises(TypeError, match="mean the same: give one of them"):
            self.options(**{keyword: value, name: value})

    def test_all_options_of_a_reply(self) -> None:
        given = dict.fromkeys(("seed", "mirostat", "min_p", "typical_p", "repeat_penalty", "logprobs"), 1)
        assert given.items() <= self.options(**given).items()
        assert self.options(thinking=False, template_kwargs={"a": 1})["template_kwargs"] == {"a": 1}

    def test_none_is_not_given(self) -> None:
        assert self.options(topP=None, top_p=0.3, max_output_tokens=None)["top_p"] == 0.3

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"invalid_parameter": 0.5}, "unknown option 'invalid_parameter'"),
            ({"candidate_count": 2}, "did you mean 'candidateCount'"),
            ({"top_P": 0.5}, "unknown option 'top_P'"),
            ({"topP": "a"}, "top_p must be a number"),
            ({"thinking": 3}, "thinking must be a bool"),
            ({"template_kwargs": 3}, "template_kwargs must be a dict"),
        ],
    )
    def test_unknown_ones_and_wrong_types_raise(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(TypeError, match=message):
            self.options(**given)

    @pytest.mark.parametrize("given", [{"topP": 2}, {"candidateCount": 0}, {"max_output_tokens": 0}, {"overflow": "x"}])
    def test_what_is_out_of_range_raises(self, given: dict[str, Any]) -> None:
        with pytest.raises(ValueError):
            self.options(**given)
