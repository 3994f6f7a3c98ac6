"""Constraints on replies, at a temperature at which the model would write anything: whatever ends is what was asked for.

CAUSERIE_CONSTRAINT_RUNS is the number of seeds for each constraint (`make test-constraints`: 200).
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from constraint_cases import CHECKS, CONSTRAINTS, REQUIRED, SCHEMAS, TOOLS, TYPES

from causerie import Engine
from causerie.chat.response_format import as_response_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from causerie import Reply
    from causerie.llama import Model

RUNS = int(os.environ.get("CAUSERIE_CONSTRAINT_RUNS", "2"))
AT_ONCE = 40
HOT = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 120}


@pytest.fixture(scope="module")
def crowded(model: Model) -> Iterator[Engine]:
    with Engine(model, n_ctx=16384, max_resident=AT_ONCE, n_threads=1) as made:
        yield made


def replies(
    engine: Engine, asked: Mapping[str, tuple[dict[str, Any], dict[str, Any]]], runs: int
) -> dict[str, list[Reply]]:
    """So many replies to each of the cases: options of a conversation, and of a send. They are generated together."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(about: dict[str, Any], options: dict[str, Any], seed: int) -> Reply:
        async with room:
            with engine.conversation(**about) as chat:
                return await chat.asend("Invent something.", seed=seed, **{**HOT, **options})

    async def all_of_them() -> dict[str, list[Reply]]:
        jobs = {name: [one(*case, seed) for seed in range(runs)] for name, case in asked.items()}
        found = await asyncio.gather(*(job for each in jobs.values() for job in each))
        return {name: found[k * runs : (k + 1) * runs] for k, name in enumerate(jobs)}

    return asyncio.run(all_of_them())


def constrained(engine: Engine, **options: Any) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    (null,) = engine.model.vocab.tokenize("null", add_special=False).tolist()
    found = {
        name: ({}, {"response_format": as_response_format(value), **options}) for name, value in CONSTRAINTS.items()
    }
    found["recursion"][1]["logit_bias"] = {null: 6.0}  # so that it ends
    return found


@pytest.fixture(scope="module")
def found(crowded: Engine) -> dict[str, list[Reply]]:
    calling = {
        name: (about, {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400})
        for name, about in REQUIRED.items()
    }
    return replies(crowded, {**constrained(crowded), **calling}, RUNS)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_reply_that_ends_is_what_was_asked_for(found: dict[str, list[Reply]], name: str) -> None:
    for reply in found[name]:
        if reply.finish_reason == "length":
            assert reply.parsed is None
        else:
            assert reply.finish_reason == "stop"
            assert CHECKS[name](reply.text, reply.parsed), reply.text
    ended = sum(reply.finish_reason == "stop" for reply in found[name])
    print(f"{name}: {ended} of {len(found[name])} ended, all of them right")
    assert ended > RUNS * 0.7


@pytest.mark.parametrize("name", REQUIRED)
def test_every_required_call_is_one(found: dict[str, list[Reply]], name: str) -> None:
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    for reply in found[name]:
        assert reply.finish_reason == "tool_calls", (reply.finish_reason, reply.text)
        (call,) = reply.tool_calls
        jsonschema.validate(dict(call.arguments), schemas[call.name])
    print(f"{name}: {len(found[name])} calls, all of them right")


def test_what_was_cut_off_can_be_repaired(crowded: Engine) -> None:
    cut = constrained(crowded, max_tokens=5)
    for name, several in replies(crowded, {name: cut[name] for name in (*SCHEMAS, *TYPES)}, min(RUNS, 40)).items():
        form = as_response_format(CONSTRAINTS[name])
        for reply in several:
            whole = json.loads(form.repair(reply.text))
            assert isinstance(whole, (dict, list))
            assert (reply.parsed is None) == (reply.finish_reason == "length")
