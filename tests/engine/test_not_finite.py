"""Logits that are NaN or infinite: they end their generation, and nothing of them is left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from engine_oracle import check_slots, endless, finished, some_ids
from lora_files import write_lora_for

from causerie.engine import TokenEngine
from causerie.errors import NotFiniteError
from causerie.llama import Chooser

if TYPE_CHECKING:
    from pathlib import Path

    from causerie.llama import Model


@pytest.mark.parametrize("flash_attn", ["auto", "disabled"])
def test_logits_that_are_not_finite_spoil_nothing_that_comes_later(
    smollm2: Model, smollm2_path: Path, tmp_path: Path, flash_attn: str
) -> None:
    """Without flash attention, NaN in one cell makes what is computed beside it NaN, even when the cell is free."""
    file = write_lora_for(smollm2_path, tmp_path / "lora.gguf", strength=0.2, rank=8, most=20)
    sets: list[Any] = [(), [(file, 0.5)], ()]
    with TokenEngine(smollm2, n_ctx=512, max_resident=6, n_threads=1, flash_attn=flash_attn) as engine:
        idle = engine.sequence()
        finished(engine, idle, some_ids(30))
        running = [
            engine.generate(engine.sequence(adapters=s), some_ids(30, k), chooser=endless(smollm2), max_tokens=20)
            for k, s in enumerate(sets)
        ]
        left = engine.sequence(adapters=[(file, 1e6)])
        for bad in (left, left, engine.sequence(adapters=[(file, 1e7)])):
            failing = engine.generate(bad, some_ids(20, 9), chooser=Chooser(), max_tokens=5)
            beside = [failing]
            if flash_attn != "disabled":  # it has no logits that anybody looks at, and its NaN would stay
                beside.append(engine.generate(engine.sequence(adapters=bad.adapters), some_ids(20, 8), chooser=None))
            engine.wait_for(beside)
            assert isinstance(failing.error, NotFiniteError)
            assert [g.error for g in beside[1:]] == [None] * (len(beside) - 1)
            check_slots(engine, idle=False)
            if flash_attn == "disabled":  # of those who were beside it, some may have failed; who comes now does not
                finished(engine, engine.sequence(), some_ids(40, 3))
        engine.wait_for(running)
        for generation in running:
            assert generation.error is None or flash_attn == "disabled"
            if generation.error is None:
                assert generation.n_generated == 20
                assert generation.cached + generation.evaluated == generation.n_prompt
            else:
                assert isinstance(generation.error, NotFiniteError)
        finished(engine, idle, some_ids(30))
        finished(engine, engine.fork(idle), some_ids(60))
        check_slots(engine, idle=True)


def test_a_saved_state_with_nan_is_not_used_twice(smollm2: Model) -> None:
    """Whoever it belongs to fails once, and is evaluated anew then."""
    with TokenEngine(smollm2, n_ctx=256, max_resident=2, n_threads=1, flash_attn="disabled") as engine:
        sequence = engine.sequence()
        made = finished(engine, sequence, some_ids(40))
        state = engine.take_state(sequence, made.target)
        assert state is not None
        spoilt = np.frombuffer(bytearray(state.data), np.uint16).copy()
        spoilt[-4000:] = 0x7E00  # NaN in f16
        for k in range(2):  # take its place
            finished(engine, engine.sequence(), some_ids(40, 1 + k))
        copy = engine.put_state(replace(state, data=spoilt.tobytes()))
        assert copy.parked is not None
        prompt = [*made.target, 7]
        failing = engine.generate(copy, prompt, chooser=endless(smollm2), max_tokens=10)
        engine.wait(failing)
        assert isinstance(failing.error, NotFiniteError)
        again = finished(engine, copy, prompt, 10)
        assert again.tokens == finished(engine, engine.sequence(), prompt, 10).tokens
        check_slots(engine, idle=True)
