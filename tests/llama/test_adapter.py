"""LoRA adapters: they change what they shall, go away without a trace, and cannot break a context."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import gguf
import numpy as np
import pytest

from causerie.errors import ClosedError, ModelLoadError
from causerie.llama import Batch, Context, Model
from causerie.llama.adapter import LoraAdapter

PROMPT = list(range(100, 112))
RANK = 4


def logits(ctx, tokens=PROMPT):
    """Logits after the tokens alone."""
    ctx.memory.clear()
    batch = Batch(len(tokens))
    batch.add_sequence(tokens, 0, 0)
    ctx.decode(batch)
    return ctx.logits(-1).copy()


def write_lora(path, tensors, *, arch="llama", kind="adapter", adapter="lora", alpha=8.0, tokens=None):
    writer = gguf.GGUFWriter(path, arch)
    if kind:
        writer.add_type(kind)
    if adapter:
        writer.add_string("adapter.type", adapter)
    writer.add_float32("adapter.lora.alpha", alpha)
    if tokens is not None:
        writer.add_key_value(
            "adapter.alora.invocation_tokens", tokens, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32
        )
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pair(model, name="blk.0.attn_q.weight", seed=0, rank=RANK, n_in=None, n_out=None):
    """The two tensors of one adapted matrix."""
    rng = np.random.default_rng(seed)
    n_in, n_out = n_in or model.n_embd, n_out or model.n_embd
    return {
        f"{name}.lora_a": rng.normal(0, 0.3, (rank, n_in)).astype(np.float32),
        f"{name}.lora_b": rng.normal(0, 0.3, (n_out, rank)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def lora_path(model, tmp_path_factory):
    return write_lora(tmp_path_factory.mktemp("lora") / "lora.gguf", pair(model))


@pytest.fixture
def lora(model, lora_path):
    with LoraAdapter(model, lora_path) as adapter:
        yield adapter


def test_attaching_changes_logits_and_detaching_restores_them_exactly(context, lora):
    base = logits(context)
    context.set_adapters([(lora, 1.0)])
    changed = logits(context)
    assert not np.allclose(changed, base)
    context.set_adapters([])
    assert np.array_equal(logits(context), base)


def test_the_scale_counts(context, lora):
    base = logits(context)
    context.set_adapters([(lora, 0.5)])
    half = logits(context)
    context.set_adapters([(lora, 1.0)])
    full = logits(context)
    assert not np.allclose(half, full)
    context.set_adapters([(lora, 0.0)])
    assert np.array_equal(logits(context), base)
    context.set_adapters([(lora, 0.5)])
    assert np.array_equal(logits(context), half)


def test_several_adapters_work_together(model, context, lora, tmp_path):
    with LoraAdapter(
        model, write_lora(tmp_path / "second", pair(model, "blk.3.ffn_up.weight", 1, n_out=1536))
    ) as second:
        context.set_adapters([(lora, 1.0)])
        one = logits(context)
        context.set_adapters([(lora, 1.0), (second, -2.0)])
        assert not np.allclose(logits(context), one)
        assert [scale for _, scale in context.adapters] == [1.0, -2.0]


def test_contexts_of_one_model_have_their_own_adapters(model, context, lora):
    base = logits(context)
    with Context(model, n_ctx=512, n_batch=512) as other:
        other.set_adapters([(lora, 1.0)])
        assert not np.allclose(logits(other), base)
        assert np.array_equal(logits(context), base)


def test_metadata_and_repr(lora, lora_path):
    assert lora.metadata["general.type"] == "adapter"
    assert lora.metadata["general.architecture"] == "llama"
    assert lora.path == lora_path
    assert lora.alora_invocation_tokens.shape == (0,)
    assert "lora.gguf" in repr(lora)


def test_an_activated_adapter_tells_its_invocation_tokens(model, tmp_path):
    path = write_lora(tmp_path / "alora", pair(model), tokens=[7, 8, 9])
    with LoraAdapter(model, path) as adapter:
        assert adapter.alora_invocation_tokens.tolist() == [7, 8, 9]


@pytest.mark.parametrize("wrap", [lambda p: io.BytesIO(p.read_bytes()), lambda p: p.open("rb")], ids=["memory", "file"])
def test_file_objects_are_read_from_their_position(model, context, lora, lora_path, wrap):
    context.set_adapters([(lora, 1.0)])
    expected = logits(context)
    with wrap(lora_path) as source, LoraAdapter(model, source) as adapter:
        assert source.tell() == 0
        assert adapter.path is None
        context.set_adapters([(adapter, 1.0)])
        assert np.array_equal(logits(context), expected)


def bad_files(model):
    a, b = "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"
    good = pair(model)
    ints = {k: v.astype(np.int32) for k, v in good.items()}
    yield "arch", good, {"arch": "qwen2"}, "arch"
    yield "not an adapter", good, {"kind": "model"}, "adapter"
    yield "no type", good, {"kind": None}, "adapter"
    yield "not a lora", good, {"adapter": "dora"}, "lora"
    yield "half a pair", {a: good[a]}, {}, "missing one"
    yield "no such tensor", pair(model, "blk.99.attn_q.weight"), {}, "does not exist"
    yield "other width", pair(model, n_in=64), {}, "incorrect shape"
    yield "other suffix", {**good, "blk.0.attn_q.weight.lora_c": good[a]}, {}, "unexpected suffix"
    yield "transposed", {a: good[a].T.copy(), b: good[b].T.copy()}, {}, "shape"
    yield "integers", ints, {}, "i32"
    yield "experts", {k: np.stack([v, v]) for k, v in good.items()}, {}, "experts"
    other_rank = {
        "token_embd.weight.lora_a": np.zeros((model.n_vocab, 4), np.float32),
        "token_embd.weight.lora_b": np.zeros((model.n_embd, 8), np.float32),
    }
    yield "ranks of embeddings", other_rank, {}, "rank"


def test_every_unusable_file_is_refused_with_the_reason(model, context, tmp_path):
    base = logits(context)
    for i, (what, tensors, options, reason) in enumerate(bad_files(model)):
        path = write_lora(tmp_path / f"{i}.gguf", tensors, **options)
        with pytest.raises(ModelLoadError) as caught:
            LoraAdapter(model, path)
        assert reason in str(caught.value), what
        assert caught.value.path == str(path)
        assert caught.value.size == path.stat().st_size
        assert caught.value.reason
    assert np.array_equal(logits(context), base)


def test_a_key_of_another_type_is_refused(model, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_uint32("general.type", 7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError):
        LoraAdapter(model, tmp_path / "odd.gguf")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no gguf at all", None])
def test_a_file_that_is_no_gguf_is_refused(model, tmp_path, content):
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelLoadError):
        LoraAdapter(model, path)


def test_every_truncation_is_refused(model, lora_path, tmp_path):
    content = lora_path.read_bytes()
    path = tmp_path / "cut"
    for length in [*range(1, len(content), len(content) // 60), len(content) - 64]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelLoadError):
            LoraAdapter(model, path)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_a_scale_that_is_not_finite_is_refused(context, lora, scale):
    with pytest.raises(ValueError):
        context.set_adapters([(lora, scale)])
    assert context.adapters == ()


def test_an_adapter_twice_is_refused(context, lora):
    with pytest.raises(ValueError, match="once"):
        context.set_adapters([(lora, 1.0), (lora, 0.5)])


def test_something_else_is_refused(context):
    with pytest.raises(TypeError):
        context.set_adapters([("lora", 1.0)])


def test_an_adapter_of_another_model_is_refused(lora, tiny_models):
    with Model(tiny_models["llama-dense"]) as tiny, Context(tiny, n_ctx=64) as other, pytest.raises(ValueError):
        other.set_adapters([(lora, 1.0)])


def test_a_closed_adapter_cannot_be_attached_and_the_old_ones_stay(model, context, lora, lora_path):
    context.set_adapters([(lora, 1.0)])
    closed = LoraAdapter(model, lora_path)
    closed.close()
    closed.close()
    with pytest.raises(ClosedError):
        context.set_adapters([(closed, 1.0)])
    for read in (lambda: closed.metadata, lambda: closed.alora_invocation_tokens):
        with pytest.raises(ClosedError):
            read()
    assert context.adapters == ((lora, 1.0),)


def test_an_adapter_closed_while_attached_goes_on_until_it_is_replaced(model, context, lora_path):
    adapter = LoraAdapter(model, lora_path)
    context.set_adapters([(adapter, 1.0)])
    changed = logits(context)
    adapter.close()
    assert np.array_equal(logits(context), changed)
    resource = adapter._resource
    assert resource._claims == 1
    context.set_adapters([])
    assert resource._claims == 0
    assert not np.allclose(logits(context), changed)


def test_a_closed_context_lets_its_adapters_go(model, lora_path):
    adapter = LoraAdapter(model, lora_path)
    context = Context(model, n_ctx=64)
    context.set_adapters([(adapter, 1.0)])
    context.close()
    assert adapter._resource._claims == 1
    with pytest.raises(ClosedError):
        context.set_adapters([])
    adapter.close()


def test_a_forgotten_context_lets_its_adapters_go(model, lora_path):
    adapter = LoraAdapter(model, lora_path)
    gc.disable()
    try:
        context = Context(model, n_ctx=64)
        context.set_adapters([(adapter, 1.0)])
        alive = weakref.ref(context)
        del context
        assert alive() is None
        assert adapter._resource._claims == 1
        alive = weakref.ref(adapter)
        del adapter
        assert alive() is None
    finally:
        gc.enable()


def test_closing_the_model_closes_its_adapters(smollm2_path, lora_path):
    model = Model(smollm2_path)
    adapters = [LoraAdapter(model, lora_path) for _ in range(3)]
    context = Context(model, n_ctx=64)
    context.set_adapters([(adapters[0], 1.0)])
    logits(context)
    model.close()
    assert all(adapter.closed for adapter in adapters)
    with pytest.raises(ClosedError):
        LoraAdapter(model, lora_path)


def test_loading_and_closing_while_others_decode(model, lora_path):
    failures = []
    stop = threading.Event()

    def decode():
        try:
            with Context(model, n_ctx=64, n_threads=1) as ctx:
                while not stop.is_set():
                    ctx.set_adapters([])  # plans the next graph anew, which walks the model's adapters
                    logits(ctx, [1, 2])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=decode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(30):
        adapter = LoraAdapter(model, lora_path)
        if i % 2:
            adapter.close()
        del adapter
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


MANY = """
import sys
from causerie.llama import Model
from causerie.llama.adapter import LoraAdapter
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
with Model(sys.argv[1]) as model:
    for i in range(300):
        LoraAdapter(model, sys.argv[2]).close()
        if i == 50:
            before = rss()
    print(rss() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_memory_does_not_grow_with_loading_and_closing(model, tmp_path):
    tensors = {}
    for i in range(4):
        tensors |= pair(model, f"blk.{i}.attn_q.weight", rank=64)
    path = write_lora(tmp_path / "big", tensors)
    found = subprocess.run(
        [sys.executable, "-c", MANY, model.path, path],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    assert int(found.stdout) < 10 * path.stat().st_size


def expert_pair(n_expert, n_in, n_out, name="blk.0.ffn_up_exps.weight"):
    rng = np.random.default_rng(0)
    return {
        f"{name}.lora_a": rng.normal(0, 0.5, (n_expert, RANK, n_in)).astype(np.float32),
        f"{name}.lora_b": rng.normal(0, 0.5, (n_expert, n_out, RANK)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def moe(tiny_models):
    with Model(tiny_models["llama-moe"]) as loaded:
        yield loaded


def test_experts_can_be_adapted(moe, tmp_path):
    n_expert, width = int(moe.metadata["llama.expert_count"]), int(moe.metadata["llama.feed_forward_length"])
    path = write_lora(tmp_path / "experts", expert_pair(n_expert, moe.n_embd, width))
    with LoraAdapter(moe, path) as adapter, Context(moe, n_ctx=64) as ctx:
        base = logits(ctx)
        ctx.set_adapters([(adapter, 1.0)])
        assert not np.allclose(logits(ctx), base)


def test_another_number_of_experts_is_refused(moe, tmp_path):
    width = int(moe.metadata["llama.feed_forward_length"])
    for n_expert in (1, int(moe.metadata["llama.expert_count"]) + 1):
        path = write_lora(tmp_path / f"{n_expert}", expert_pair(n_expert, moe.n_embd, width))
        with pytest.raises(ModelLoadError, match="experts"):
            LoraAdapter(moe, path)


def test_token_embeddings_can_be_adapted(moe, tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "token_embd.weight.lora_a": rng.normal(0, 1, (moe.n_vocab, RANK)).astype(np.float32),
        "token_embd.weight.lora_b": rng.normal(0, 1, (moe.n_embd, RANK)).astype(np.float32),
    }
    with LoraAdapter(moe, write_lora(tmp_path / "embd", tensors)) as adapter, Context(moe, n_ctx=64) as ctx:
        base = logits(ctx)
        ctx.set_adapters([(adapter, 1.0)])
        assert not np.allclose(logits(ctx), base)
