"""What a context's `eval_callback` raises in a step of several generations costs none of them a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causerie.engine import TokenEngine, _pace
from causerie.llama import Chooser, Sampler
from causerie.llama._lib import ffi

if TYPE_CHECKING:
    from causerie.engine import Generation
    from causerie.llama import Model

TOKENS = 24


class Raising:
    """Raises once, at the n-th of the tensors of that name."""

    def __init__(self, name: bytes) -> None:
        self.name, self.left = name, 0

    def __call__(self, tensor: Any, ask: bool) -> bool:
        if ask:
            return self.left > 0 and bytes(ffi.string(tensor.name)) == self.name
        self.left -= 1
        if not self.left:
            raise ValueError("once")
        return True


def two(engine: TokenEngine) -> list[Generation]:
    """Two generations beside each other, whose samplers remember what was chosen."""
    generations = []
    for text in ("Once upon a time, there was a", "The history of France begins with"):
        prompt = engine.model.vocab.tokenize(text).tolist()
        chooser = Chooser(Sampler.chain([Sampler.penalties(engine.model.vocab, repeat=1.5), Sampler.greedy()]))
        generations.append(engine.generate(engine.sequence(), prompt, chooser=chooser, max_tokens=TOKENS))
    for generation in generations:
        generation.watched = False
    engine.wait_for(generations)
    return generations


@pytest.mark.parametrize("n_ubatch", [None, 1])
@pytest.mark.parametrize("times", [1, 8])
def test_replies_go_on_as_if_nothing_had_been_raised(
    smollm2: Model, monkeypatch: pytest.MonkeyPatch, times: int, n_ubatch: int | None
) -> None:
    monkeypatch.setattr(_pace, "_UNWATCHED", 1e9)
    monkeypatch.setattr(_pace, "_MOST_TIMES", times)
    callback = Raising(b"l_out-0")
    with TokenEngine(smollm2, n_ctx=512, n_threads=1, n_ubatch=n_ubatch, eval_callback=callback) as engine:
        expected = [g.tokens for g in two(engine)]
        assert all(len(tokens) > TOKENS // 2 for tokens in expected)
        for left in (22, 23) if n_ubatch else (8, 11):
            callback.left = left
            found = two(engine)
            assert callback.left == 0
            assert [(g.tokens, g.error) for g in found] == [(tokens, None) for tokens in expected]
