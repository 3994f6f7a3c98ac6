"""Greedy text through the primitives is the text that llama.cpp's own program gives, from the same source."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from causerie.llama import Batch, Context, Model, Sampler

if TYPE_CHECKING:
    from pathlib import Path

N_PREDICT = 48


def greedy_text(model: Model, prompt: str) -> str:
    ids = model.vocab.tokenize(prompt, parse_special=True)
    out: list[int] = []
    with Context(model, n_ctx=512, n_batch=512) as ctx, Sampler.greedy() as greedy:
        batch = Batch(512)
        batch.add_sequence(ids, 0, 0)
        while len(out) < N_PREDICT:
            ctx.decode(batch)
            token = greedy.sample(ctx)
            if model.vocab.is_eog(token):
                break
            out.append(token)
            batch.clear()
            batch.add(token, len(ids) + len(out) - 1, output=True)
    return model.vocab.detokenize(out)


@pytest.mark.several_threads
@pytest.mark.parametrize(
    "prompt",
    [
        "The sea is",
        "<|im_start|>user\nName three seabirds.<|im_end|>\n<|im_start|>assistant\n",
        "def fibonacci(n):\n",
    ],
)
def test_greedy_text_equals_llama_completion(model: Model, smollm2_path: Path, tools_dir: Path, prompt: str) -> None:
    reference = subprocess.run(
        [
            tools_dir / "llama-completion", "-m", smollm2_path, "-p", prompt, "-n", str(N_PREDICT), "--temp", "0",
            "--no-display-prompt", "-no-cnv", "-c", "512", "--no-warmup", "-t", "2",
        ],
        capture_output=True, check=True, stdin=subprocess.DEVNULL, timeout=300,
    ).stdout.decode()  # fmt: skip
    ours = greedy_text(model, prompt)
    # The program ends its output with a line break, and tells of the end of the text.
    assert reference.replace("[end of text]", "").strip() == ours.strip()
    assert ours.strip()
