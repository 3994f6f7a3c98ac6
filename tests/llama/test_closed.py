"""After close every public method raises ClosedError, and nothing else happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tiny import write_llama

from causerie import ClosedError
from causerie.llama import Batch, Context, Model
from causerie.llama.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXTRA = {"tokenizer.chat_template": "{{ messages[0].content }}"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", extra=EXTRA)


def batch() -> Batch:
    filled = Batch(2)
    filled.add(4, 0)
    return filled


CALLS: dict[str, dict[str, Callable[[Any], object]]] = {
    "Model": {
        "metadata": lambda m: m.metadata,
        "sampling_defaults": lambda m: m.sampling_defaults,
        "chat_template": lambda m: m.chat_template(),
        "save": lambda m: m.save("/nonexistent/x.gguf"),
        "fingerprint": lambda m: m.fingerprint,
        "vocab": lambda m: m.vocab,
        "__enter__": lambda m: m.__enter__(),
    },
    "Vocab": {
        "tokenize": lambda v: v.tokenize("a"),
        "detokenize": lambda v: v.detokenize([4]),
        "detokenize_bytes": lambda v: v.detokenize_bytes([4]),
        "piece": lambda v: v.piece(4),
        "text": lambda v: v.text(4),
        "score": lambda v: v.score(4),
        "attributes": lambda v: v.attributes(4),
        "is_eog": lambda v: v.is_eog(4),
        "is_control": lambda v: v.is_control(4),
    },
    "Context": {
        "decode": lambda c: c.decode(batch()),
        "encode": lambda c: c.encode(batch()),
        "synchronize": lambda c: c.synchronize(),
        "logits": lambda c: c.logits(),
        "embeddings": lambda c: c.embeddings(),
        "embeddings_seq": lambda c: c.embeddings_seq(0),
        "n_threads": lambda c: c.n_threads,
        "n_threads_batch": lambda c: c.n_threads_batch,
        "set_n_threads": lambda c: c.set_n_threads(1),
        "set_embeddings": lambda c: c.set_embeddings(True),
        "set_causal_attn": lambda c: c.set_causal_attn(True),
        "set_adapters": lambda c: c.set_adapters([]),
        "set_control_vector": lambda c: c.set_control_vector(None),
        "perf": lambda c: c.perf(),
        "perf_reset": lambda c: c.perf_reset(),
        "__enter__": lambda c: c.__enter__(),
    },
    "Memory": {
        "clear": lambda m: m.clear(),
        "seq_rm": lambda m: m.seq_rm(0),
        "seq_cp": lambda m: m.seq_cp(0, 0),
        "seq_keep": lambda m: m.seq_keep(0),
        "seq_add": lambda m: m.seq_add(0, 0, -1, 1),
        "seq_div": lambda m: m.seq_div(0, 0, -1, 2),
        "seq_pos_min": lambda m: m.seq_pos_min(0),
        "seq_pos_max": lambda m: m.seq_pos_max(0),
        "can_shift": lambda m: m.can_shift,
    },
    "Template": {
        "render": lambda t: t.render([{"role": "user", "content": "x"}]),
        "capabilities": lambda t: t.capabilities,
        "__enter__": lambda t: t.__enter__(),
    },
}
# What needs no native object: facts that were read once, the objects themselves, and ending.
PLAIN = {
    "Model": {"close", "closed"},
    "Vocab": set(),
    "Context": {"close", "closed", "cancel", "memory", "state", "adapters"},
    "Memory": {"can_cut", "can_share"},  # known from the options alone
    "Template": {"bos_token", "close", "closed", "eos_token", "from_model"},
}
CASES = [(kind, name) for kind, calls in CALLS.items() for name in calls]


def make(kind: str, model: Model) -> Any:
    if kind in {"Model", "Vocab"}:
        return model if kind == "Model" else model.vocab
    if kind == "Template":
        return Template.from_model(model)
    context = Context(model, n_ctx=64, n_threads=1)
    return context if kind == "Context" else context.memory


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_use_after_the_model_was_closed(path: Path, kind: str, name: str) -> None:
    model = Model(path)
    target = make(kind, model)
    model.close()
    with pytest.raises(ClosedError, match="closed"):
        CALLS[kind][name](target)


@pytest.mark.parametrize(("kind", "name"), [c for c in CASES if c[0] in {"Context", "Memory", "Template"}])
def test_use_after_its_own_close_leaves_the_model_open(path: Path, kind: str, name: str) -> None:
    with Model(path) as model:
        target = make(kind, model)
        (target._context if kind == "Memory" else target).close()
        with pytest.raises(ClosedError, match="closed"):
            CALLS[kind][name](target)
        assert model.vocab.tokenize("a").size


@pytest.mark.parametrize("kind", CALLS)
def test_every_public_name_is_tried_here(path: Path, kind: str) -> None:
    with Model(path) as model:
        names = {name for name in dir(type(make(kind, model))) if not name.startswith("_")}
        assert names == (set(CALLS[kind]) - {"__enter__"}) | PLAIN[kind]


@pytest.mark.parametrize("kind", ["Model", "Context", "Template"])
def test_close_is_idempotent_and_told(path: Path, kind: str) -> None:
    with Model(path) as model:
        target = make(kind, model)
        assert not target.closed
        for _ in range(3):
            target.close()
            assert target.closed
        assert "closed" in repr(target)


@pytest.mark.parametrize("kind", ["Model", "Context", "Template"])
def test_with_closes_also_after_an_exception(path: Path, kind: str) -> None:
    with Model(path) as model:
        target = make(kind, model)
        with pytest.raises(KeyError), target as entered:
            raise KeyError(entered is target)
        assert target.closed


def test_closing_the_model_closes_all_that_belongs_to_it(path: Path) -> None:
    model = Model(path)
    children = [make(kind, model) for kind in ("Context", "Context", "Template")]
    model.close()
    assert [child.closed for child in children] == [True] * 3


def test_a_child_of_a_closed_model_cannot_be_made(path: Path) -> None:
    model = Model(path)
    model.close()
    with pytest.raises(ClosedError):
        Context(model)
    with pytest.raises(ClosedError):
        Template.from_model(model)


def test_facts_stay_readable(path: Path) -> None:
    model = Model(path)
    context = Context(model, n_ctx=64)
    vocab = model.vocab
    model.close()
    assert (model.n_layer, vocab.n_tokens, context.n_ctx, len(vocab)) == (2, 64, 256, 64)
    assert vocab.bos == 2
