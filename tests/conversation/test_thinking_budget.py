"""A limit on the thinking: its end is put in, and the answer goes on behind it, whatever else a reply does."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from talking import CHARACTERS, EXACT, HOT, Dictation, Oracle
from tool_cases import OSLO, QWEN3, SHORT, called, hermes, shipped, weather

import causerie
from causerie import Choices, Message
from causerie.chat.text_ids import text_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from causerie import Conversation, Engine, Reply

# As DeepSeek's: the prompt begins the thinking, so that a model which was never trained to think does.
BEGUN = SHORT.replace("<|im_start|>assistant\n{% if enable", "<|im_start|>assistant\n<think>\n{% if enable").replace(
    "<think>\n\n</think>", "\n</think>"
)
THOUGHT = "Cold, or not? Let me see: it is winter there."
ANSWER = "\n\nIt is cold."


def talk(engine: Engine, **options: Any) -> Conversation:
    return engine.conversation(**{"template": SHORT, "max_tokens": 100, **options})


def ids_of(engine: Engine, text: str) -> list[int]:
    return text_ids(engine.model.vocab, text, inside=True)


def dictated(engine: Engine, *texts: str) -> Dictation:
    """The model says these texts; tokens that are put in between are not its own."""
    made = Dictation(engine, "")
    made.ids = [*(token for text in texts for token in ids_of(engine, text)), engine.model.vocab.eos]
    return made


def cut(engine: Engine, thought: str, budget: int, answer: str = ANSWER, *, opening: str = "<think>\n") -> Dictation:
    """The model thinks for as long as it may, and then answers."""
    ids = ids_of(engine, thought)[:budget]
    made = dictated(engine, opening, answer)
    at = len(ids_of(engine, opening))
    made.ids[at:at] = ids
    return made


def said(chat: Conversation, sampler: Dictation, **options: Any) -> Reply:
    return chat.send("How is it?", temperature=0, samplers=sampler, **options)


class TestTheLimit:
    @pytest.mark.parametrize("thinks", [THOUGHT, CHARACTERS])
    @pytest.mark.parametrize("template", [SHORT, BEGUN])
    def test_ends_the_thinking(self, engine: Engine, template: str, thinks: str) -> None:
        vocab = engine.model.vocab
        opening = "" if template is BEGUN else "<think>\n"
        ids = ids_of(engine, thinks)
        for budget in (0, *range(1, min(len(ids), 24), 3)):
            chat = talk(engine, template=template)
            # The break behind the mark is a token of its own, and the first that counts.
            own = budget - (template is SHORT and budget > 0)
            whole = next(n for n in range(own, own + 4) if not _unfinished(b"".join(map(vocab.piece, ids[:n]))))
            sampler = cut(engine, thinks, whole, opening=opening if budget else "<think>")
            if template is BEGUN and not budget:
                sampler = dictated(engine, ANSWER)
            with chat.stream("x", temperature=0, samplers=sampler, thinking_budget=budget, max_tokens=-1) as stream:
                chunks = list(stream)
                reply = stream.reply
            expected = b"".join(map(vocab.piece, ids[:whole])).decode().strip()
            assert (reply.thinking, reply.text, reply.finish_reason) == (expected, ANSWER.strip(), "stop")
            assert chat.messages[-1] == reply.message == Message("assistant", ANSWER.strip(), thinking=expected)
            for kind, text in (("thinking", reply.thinking), ("text", reply.text)):
                assert "".join(chunk.text for chunk in chunks if chunk.kind == kind) == text
            assert reply.usage.completion_tokens == len(sampler.ids) - 1 + len(ids_of(engine, "</think>"))

    def test_is_not_noticed_by_what_is_shorter(self, engine: Engine) -> None:
        text = f"<think>\n{THOUGHT}\n</think>{ANSWER}"
        free = said(talk(engine), Dictation(engine, text))
        for more in (0, 20):
            budget = len(Dictation(engine, text).ids) - len(ids_of(engine, ANSWER)) + more
            limited = said(talk(engine), Dictation(engine, text), thinking_budget=budget, logprobs=True)
            assert (limited.thinking, limited.text) == (free.thinking, free.text) == (THOUGHT, ANSWER.strip())
            assert limited.usage.completion_tokens == free.usage.completion_tokens
            assert not any(entry.forced for entry in limited.logprobs or ())

    def test_that_falls_into_the_mark_completes_it(self, engine: Engine) -> None:
        mark = ids_of(engine, "</think>")
        assert len(mark) > 1
        for begun in range(1, len(mark)):
            sampler = cut(engine, THOUGHT, 5)
            at = len(sampler.ids) - 1 - len(ids_of(engine, ANSWER))
            sampler.ids[at:at] = mark[:begun]
            budget = at + begun - len(ids_of(engine, "<think>"))
            reply = said(talk(engine), sampler, thinking_budget=budget, logprobs=True)
            assert reply.text == ANSWER.strip()
            assert "<" not in reply.thinking
            assert [entry.id for entry in reply.logprobs or () if entry.forced] == mark[begun:]

    def test_counts_nothing_else(self, engine: Engine) -> None:
        for text in (
            "No thought here, or there" * 6,
            "Models write <think> before they think, some of them at length.",
        ):
            reply = said(talk(engine), Dictation(engine, text), thinking_budget=2)
            assert (reply.thinking, reply.text) == ("", text.strip())

    def test_does_nothing_where_there_is_no_thinking(self, engine: Engine) -> None:
        reply = said(engine.conversation(), Dictation(engine, "<think>It is cold."), thinking_budget=1)
        assert (reply.thinking, reply.text) == ("", "<think>It is cold.")

    def test_beside_thinking_turned_off(self, engine: Engine) -> None:
        reply = said(talk(engine, thinking=False), Dictation(engine, "It is cold."), thinking_budget=1)
        assert (reply.thinking, reply.text) == ("", "It is cold.")

    def test_the_end_may_not_fit(self, engine: Engine) -> None:
        mark = ids_of(engine, "</think>")
        before = len(ids_of(engine, "<think>")) + 4
        for room in range(1, len(mark)):
            chat = talk(engine)
            reply = said(chat, Dictation(engine, "<think>" + THOUGHT), thinking_budget=4, max_tokens=before + room)
            assert (reply.finish_reason, reply.text) == ("length", "")
            assert reply.usage.completion_tokens == before + room
            more = chat.resume(temperature=0, samplers=dictated(engine, ANSWER), thinking_budget=4)
            assert (more.text, chat.messages[-1].text) == (ANSWER.strip(), ANSWER.strip())
            assert "<" not in chat.messages[-1].thinking


def _unfinished(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


class TestAskedFor:
    def test_wrongly(self, engine: Engine) -> None:
        chat = talk(engine)
        for wrong in (True, 1.5, "3", -2, 2**40):
            with pytest.raises((TypeError, ValueError), match="thinking_budget"):
                chat.send("x", thinking_budget=wrong)
        assert chat.messages == ()

    def test_in_a_format_without_marks(self, engine: Engine) -> None:
        chat = engine.conversation(template=shipped("muse-glimmer"))
        with pytest.raises(causerie.UnsupportedError, match="thinking_budget"):
            chat.send("x", thinking_budget=3)
        assert chat.messages == ()

    def test_by_the_conversation_and_overridden(self, engine: Engine, tmp_path: Path) -> None:
        chat = talk(engine, sampling={"thinking_budget": 3})
        limited = said(chat, cut(engine, THOUGHT, 2)).thinking
        assert limited == "Cold,"
        branch = chat.fork()
        chat.save(tmp_path / "chat.causerie")
        for again in (branch, engine.load_conversation(tmp_path / "chat.causerie")):
            assert said(again, cut(engine, THOUGHT, 2)).thinking == limited
            whole = Dictation(engine, f"<think>\n{THOUGHT}\n</think>Yes.")
            assert said(again, whole, thinking_budget=-1).thinking == THOUGHT
            assert said(again, cut(engine, THOUGHT, 4), thinking_budget=5).thinking == "Cold, or not"

    def test_by_the_engine(self, make_engine: Callable[..., Engine]) -> None:
        engine = make_engine(sampling={"thinking_budget": 3}, template=SHORT)
        assert said(engine.conversation(max_tokens=50), cut(engine, THOUGHT, 2)).thinking == "Cold,"


# Whatever the processor makes of the seed, the model goes on: it can choose no token that ends its turn.
ENDLESS = {"logit_bias": {0: -math.inf, 2: -math.inf}}
OPTIONS: dict[str, Any] = {"thinking_budget": 6, "max_tokens": 24, "seed": 7, **HOT, **ENDLESS}


class TestLikeAnyOtherReply:
    """The model thinks and answers by itself; it is hot, so that any difference would show."""

    def whole(self, engine: Engine, **options: Any) -> Reply:
        return talk(engine, template=BEGUN).send("Is 7 prime?", **{**OPTIONS, **options})

    def test_all_four_calls_agree(self, engine: Engine) -> None:
        async def main() -> list[tuple[str, str]]:
            reply = await talk(engine, template=BEGUN).asend("Is 7 prime?", **OPTIONS)
            stream = talk(engine, template=BEGUN).astream("Is 7 prime?", **OPTIONS)
            chunks = [chunk async for chunk in stream]
            thinking, text = ("".join(c.text for c in chunks if c.kind == kind) for kind in ("thinking", "text"))
            return [(reply.thinking, reply.text), (thinking, text)]

        reply = self.whole(engine)
        assert reply.thinking
        assert reply.text
        assert asyncio.run(main()) == [(reply.thinking, reply.text)] * 2

    def test_greedy_is_what_the_model_says_behind_these_tokens(self, engine: Engine, oracle: Oracle) -> None:
        chat = talk(engine, template=BEGUN)
        prompt = chat.tokenize("Is 7 prime?").tolist()
        reply = chat.send("Is 7 prime?", thinking_budget=6, temperature=0, max_tokens=24, logprobs=True)
        thought, _ = oracle.continuation(prompt, 6)
        forced = ids_of(engine, "</think>")
        rest, _ = oracle.continuation([*prompt, *thought, *forced], 24 - 6 - len(forced))
        assert [entry.id for entry in reply.logprobs or ()] == [*thought, *forced, *rest]

    def test_in_company(self, engine: Engine) -> None:
        cases = [{"thinking_budget": budget, "seed": budget + 1} for budget in (0, 1, 3, 6, -1, 9)]
        alone = [self.whole(engine, **case) for case in cases]
        with ThreadPoolExecutor(len(cases)) as pool:
            together = list(pool.map(lambda case: self.whole(engine, **case), cases))
        assert [(r.thinking, r.text) for r in together] == [(r.thinking, r.text) for r in alone]
        assert not alone[0].thinking

    def test_candidates_have_a_limit_each(self, engine: Engine) -> None:
        reply = self.whole(engine, n=3)
        alone = [self.whole(engine, seed=7 + k) for k in range(3)]
        assert [(r.thinking, r.text) for r in reply.candidates] == [(r.thinking, r.text) for r in alone]

    def test_with_too_little_room_for_all(self, make_engine: Callable[..., Engine], engine: Engine) -> None:
        small = make_engine(n_ctx=160, max_resident=2)
        cases = [{"thinking_budget": budget, "seed": budget, "max_tokens": 40} for budget in (0, 2, 5, 9)]
        alone = [self.whole(engine, **case) for case in cases]
        with ThreadPoolExecutor(len(cases)) as pool:
            crowded = list(pool.map(lambda case: self.whole(small, **case), cases))
        assert [(r.thinking, r.text) for r in crowded] == [(r.thinking, r.text) for r in alone]

    def test_log_probabilities(self, engine: Engine) -> None:
        reply = self.whole(engine, logprobs=2)
        entries = reply.logprobs or ()
        assert len(entries) == reply.usage.completion_tokens
        forced = [entry for entry in entries if entry.forced]
        assert "".join(entry.text for entry in forced) == "</think>"
        assert all(math.isnan(entry.logprob) and entry.top == () for entry in forced)
        assert all(np.isfinite(entry.logprob) and len(entry.top) == 2 for entry in entries if not entry.forced)

    def test_penalties_know_what_was_put_in(self, engine: Engine) -> None:
        banned = set(ids_of(engine, "</think>"))
        options = {"frequency_penalty": 1e6, "temperature": 0, "thinking_budget": 2}
        entries = self.whole(engine, logprobs=True, **options).logprobs or ()
        last = max(place for place, entry in enumerate(entries) if entry.forced)
        assert not banned & {entry.id for entry in entries[last + 1 :]}

    @pytest.mark.parametrize("at", range(1, 14))
    def test_cancelled_at_any_token(self, engine: Engine, at: int) -> None:
        chat = talk(engine, template=BEGUN)
        count = 0

        def cancelling(_: Any) -> None:
            nonlocal count
            count += 1
            if count == at:
                chat.cancel()

        reply = chat.send("Is 7 prime?", samplers=cancelling, **OPTIONS)
        assert reply.finish_reason == "cancelled"
        whole = self.whole(engine)
        assert whole.thinking.startswith(reply.thinking)
        assert whole.text.startswith(reply.text)
        again = chat.send("And 8?", **OPTIONS, logprobs=True)
        assert again.finish_reason in {"stop", "length"}
        forced = sum(entry.forced for entry in again.logprobs or ())
        assert forced in {0, len(ids_of(engine, "</think>"))}  # the model may end its turn while it thinks


class TestGoneOnWith:
    def test_anywhere_it_is_what_it_would_have_been(self, engine: Engine) -> None:
        options = {"thinking_budget": 6, "temperature": 0}
        whole = talk(engine, template=BEGUN).send("Is 7 prime?", max_tokens=16, **options)
        for first in range(1, 16):
            chat = talk(engine, template=BEGUN)
            chat.send("Is 7 prime?", max_tokens=first, **options)
            chat.resume(max_tokens=16 - first, **options)
            assert chat.messages[-1] == whole.message, first

    def test_to_end_a_thought_that_was_cut(self, engine: Engine) -> None:
        chat = talk(engine)
        begun = said(chat, Dictation(engine, "<think>\n" + THOUGHT), max_tokens=9)
        assert begun.text == ""
        reply = chat.resume(thinking_budget=0, temperature=0, samplers=dictated(engine, ANSWER))
        assert reply.text == ANSWER.strip()
        assert chat.messages[-1] == Message("assistant", ANSWER.strip(), thinking=begun.thinking)

    def test_what_was_written_by_hand(self, engine: Engine) -> None:
        message = Message("assistant", "", thinking="Cold, or not? Let me")
        chat = talk(engine, messages=[Message("user", "How is it?"), message])
        reply = chat.resume(thinking_budget=3, temperature=0, samplers=dictated(engine, ANSWER))
        assert reply.text == ANSWER.strip()

    def test_the_next_turn_does_not_show_it(self, engine: Engine) -> None:
        chat = talk(engine)
        said(chat, cut(engine, THOUGHT, 3), thinking_budget=4)
        assert "think" not in chat.render("And in Rome?")


class TestWithTools:
    def test_calls_come_behind(self, engine: Engine) -> None:
        for choice in ("auto", "required"):
            chat = talk(engine, tools=[weather], template=shipped(QWEN3))
            sampler = cut(engine, THOUGHT, 3, "\n\n" + hermes(OSLO))
            reply = said(chat, sampler, thinking_budget=4, tool_choice=choice)
            assert (called(reply.tool_calls), reply.finish_reason) == ([OSLO], "tool_calls"), choice
            chat.add_tool_result(reply.tool_calls[0].id, "-3")
            again = chat.respond(temperature=0, samplers=cut(engine, THOUGHT, 3), thinking_budget=4)
            assert (again.thinking, again.text) == ("Cold, or", ANSWER.strip())

    @pytest.mark.parametrize("tool_format", ["template", "generic"])
    def test_a_hot_model_has_to_call(self, engine: Engine, tool_format: str) -> None:
        for seed in range(3):
            reply = talk(engine, template=BEGUN, tools=[weather], tool_format=tool_format).send(
                "Oslo?", tool_choice="required", parallel_tool_calls=False, thinking_budget=seed, seed=seed, **HOT
            )
            assert [call.name for call in reply.tool_calls] == ["weather"]

    def test_each_round_of_a_run_has_its_own(self, engine: Engine) -> None:
        chat = talk(engine, tools=[weather])
        sampler = cut(engine, THOUGHT, 3, "\n\n" + hermes(OSLO))
        sampler.ids += cut(engine, THOUGHT, 3).ids
        reply = chat.run("How is it?", thinking_budget=4, temperature=0, samplers=sampler)
        assert reply.text == ANSWER.strip()
        assert [m.thinking for m in chat.messages if m.role == "assistant"] == ["Cold, or"] * 2


class TestWithConstraints:
    @pytest.mark.parametrize("template", [BEGUN, shipped(QWEN3)])
    def test_they_hold_behind_it(self, engine: Engine, template: str) -> None:
        for seed in range(4):
            reply = talk(engine, template=template).send(
                "Is it cold?",
                response_format=Choices(["yes", "no"]),
                thinking=True,
                thinking_budget=seed,
                seed=seed,
                **HOT,
            )
            assert reply.finish_reason == "stop"
            assert reply.parsed in {"yes", "no"}


def test_in_a_process_of_its_own(engine: Engine, smollm2_path: Path) -> None:
    cases = [{"thinking_budget": budget, "seed": budget} for budget in (0, 3, 9)]
    with causerie.Engine(smollm2_path, isolate=True, n_ctx=1024, **EXACT) as isolated:
        for case in cases:
            here, there = (
                talk(e, template=BEGUN).send("Is 7 prime?", **{**OPTIONS, **case}, logprobs=True)
                for e in (engine, isolated)
            )
            assert (there.thinking, there.text) == (here.thinking, here.text)
            assert [entry.forced for entry in there.logprobs or ()] == [entry.forced for entry in here.logprobs or ()]
            assert any(entry.forced for entry in there.logprobs or ())
        chat = talk(isolated, template=BEGUN)
        cut_off = chat.send("Is 7 prime?", **{**OPTIONS, "max_tokens": 4})
        assert not cut_off.text
        whole = chat.resume(**{**OPTIONS, "thinking_budget": 0})
        assert chat.messages[-1].thinking == cut_off.thinking
        assert whole.text


class TestAMessage:
    MESSAGE = "\nThat is enough 🦙.\n"

    @pytest.mark.parametrize("budget", [0, 1, 4])
    def test_is_the_last_thought(self, engine: Engine, budget: int) -> None:
        chat = talk(engine, template=BEGUN)
        sampler = cut(engine, THOUGHT, budget, opening="")
        reply = said(chat, sampler, thinking_budget=budget, thinking_budget_message=self.MESSAGE, logprobs=True)
        thought = engine.model.vocab.detokenize(ids_of(engine, THOUGHT)[:budget])
        assert reply.thinking == (thought + self.MESSAGE).strip()
        assert reply.text == ANSWER.strip()
        forced = [entry.id for entry in reply.logprobs or () if entry.forced]
        assert forced == ids_of(engine, self.MESSAGE) + ids_of(engine, "</think>")
        assert chat.messages[-1].thinking == reply.thinking

    def test_is_not_said_by_who_ends_in_time(self, engine: Engine) -> None:
        whole = dictated(engine, "Cold.</think>", ANSWER)
        reply = said(talk(engine, template=BEGUN), whole, thinking_budget=50, thinking_budget_message="Enough.")
        assert (reply.thinking, reply.text) == ("Cold.", ANSWER.strip())

    def test_that_was_cut_off_is_completed(self, engine: Engine) -> None:
        message = ids_of(engine, self.MESSAGE)
        options: dict[str, Any] = {"thinking_budget": 2, "thinking_budget_message": self.MESSAGE}
        chat = talk(engine, template=BEGUN)
        said(chat, cut(engine, THOUGHT, 2, opening=""), max_tokens=2 + len(message) - 1, **options)
        assert chat.messages[-1].thinking
        reply = chat.resume(temperature=0, samplers=dictated(engine, ANSWER), max_tokens=100, **options)
        thought = engine.model.vocab.detokenize(ids_of(engine, THOUGHT)[:2])
        assert chat.messages[-1].thinking == (thought + self.MESSAGE).strip()
        assert reply.text == ANSWER.strip()

    def test_cannot_hold_a_mark(self, engine: Engine) -> None:
        chat = talk(engine)
        for wrong in ("So. </think> Yes.", "<think>"):
            with pytest.raises(ValueError, match="mark"):
                chat.send("x", thinking_budget=3, thinking_budget_message=wrong)
        with pytest.raises(TypeError):
            chat.send("x", thinking_budget_message=3)
        assert chat.messages == ()
