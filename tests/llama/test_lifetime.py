"""Native objects end with their Python objects, in any order, without a trace in memory or on the terminal."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny import write_llama

from causerie.llama import Batch, Context, Model
from causerie.llama.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    extra = {"tokenizer.chat_template": "{{ messages[0].content }}"}
    return write_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", extra=extra)


@pytest.fixture
def no_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def decoded(model: Model, **options: Any) -> Context:
    context = Context(model, n_ctx=64, n_threads=1, **options)
    batch = Batch(3)
    batch.add_sequence([4, 5, 6], 0, 0)
    context.decode(batch)
    return context


def load(path: Path) -> Model:
    return Model(path, progress=lambda _: True)


MAKE: dict[str, Callable[[Path], Any]] = {
    "model": load,
    "vocab": lambda p: load(p).vocab,
    "context": lambda p: Context(load(p), n_ctx=64),
    "used context": lambda p: decoded(load(p)),
    "context with a callback": lambda p: decoded(load(p), eval_callback=lambda _tensor, _ask: False),
    "memory": lambda p: decoded(load(p)).memory,
    "state": lambda p: decoded(load(p)).state,
    "template": lambda p: Template.from_model(load(p)),
    "template of its own": lambda _: Template("{{ messages[0].content }}"),
    "batch": lambda _: Batch(4),
}


@pytest.mark.usefixtures("no_gc")
class TestReferences:
    @pytest.mark.parametrize("kind", MAKE)
    def test_the_last_one_gone_the_object_is_gone_without_the_collector(self, path: Path, kind: str) -> None:
        target = MAKE[kind](path)
        watched = weakref.ref(target)
        del target
        assert watched() is None

    @pytest.mark.parametrize("kind", ["context", "used context", "context with a callback"])
    def test_the_native_objects_are_gone_with_it(self, path: Path, kind: str) -> None:
        context = MAKE[kind](path)
        model = weakref.ref(context.model)
        resources = [weakref.ref(context._resource), weakref.ref(context.model._resource)]
        del context
        assert model() is None
        assert [resource() for resource in resources] == [None, None]

    def test_a_child_keeps_its_parent(self, path: Path) -> None:
        model = load(path)
        watched = weakref.ref(model)
        context = decoded(model)
        vocab = model.vocab
        del model
        assert context.logits().size
        del context
        assert vocab.tokenize("a").size
        assert watched() is not None
        del vocab
        assert watched() is None

    def test_a_closed_context_lets_go_of_its_native_memory_at_once(self, path: Path) -> None:
        context = decoded(load(path))
        context.close()
        assert context._resource._claims == 0
        assert context.model._resource._claims == 1

    def test_a_view_keeps_the_native_memory_and_nothing_else(self, path: Path) -> None:
        context = decoded(load(path))
        view, expected = context.logits(), context.logits().copy()
        watched = [weakref.ref(context), weakref.ref(context.model)]
        resource = weakref.ref(context._resource)
        del context
        assert [w() for w in watched] == [None, None]
        assert (view == expected).all()
        assert resource() is not None
        del view
        assert resource() is None

    def test_an_object_that_could_not_be_made_leaves_nothing(self, path: Path) -> None:
        model = load(path)
        for _ in range(5):
            with pytest.raises(ValueError, match=r"V cache|flash_attn"):
                Context(model, n_ctx=64, type_v="q8_0", flash_attn="disabled")
        assert model._resource._claims == 1
        assert len(model._children) == 0

    def test_closing_in_any_order_is_fine(self, path: Path) -> None:
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
            model = load(path)
            things = [model, decoded(model), Template.from_model(model)]
            for i in order:
                things[i].close()
            assert model._resource._claims == 0


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_handle_cannot_be_copied_or_pickled(path: Path, kind: str, way: Callable[[Any], object]) -> None:
    target = MAKE[kind](path)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        way(target)


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


MEMORY = """
import ctypes, gc, sys
from causerie.llama import Batch, Context, Model

# What was freed goes back to the system before it is measured: glibc otherwise keeps up to some 30 MiB.
give_back = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)

def rss():
    gc.collect()
    give_back(0)
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

def cycle():
    with Model(sys.argv[1]) as model, Context(model, n_ctx=512, n_batch=64, n_ubatch=64, n_threads=1) as context:
        batch = Batch(64)
        batch.add_sequence(model.vocab.tokenize("a b c"), 0, 0)
        context.decode(batch)
        context.logits().sum()
        context.state.get()

for _ in range(5):
    cycle()
before = rss()
for _ in range(20):
    cycle()
print(rss() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("size", ["tiny", "real"])
def test_twenty_cycles_of_load_and_close_keep_memory_flat(path: Path, smollm2_path: Path, size: str) -> None:
    done = run(MEMORY, path if size == "tiny" else smollm2_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 2 * 1024  # KiB


EXITS = {
    "open handles": "keep = [model, context, context.logits(), model.vocab, context.memory]",
    "a cycle of references": "context.me = context; model.context = context; del context, model",
    "a handle in a module": "sys.modules['kept'] = context",
    "an exception": "context.decode(Batch(1))",
    "sys.exit in a callback": "Model(sys.argv[1], progress=lambda _: sys.exit(0))",
    "a daemon thread that decodes": "start(lambda: decode_forever(context))",
    "a daemon thread that decodes one long prompt": "start(lambda: context.decode(long)); started.wait()",
    "daemon threads with contexts of their own": "[start(lambda: decode_forever(fresh())) for _ in range(3)]",
    "a daemon thread that tokenises": "start(lambda: forever(lambda: model.vocab.tokenize('a b ' * 2000)))",
    "a daemon thread that loads": "start(lambda: forever(lambda: Model(sys.argv[1])))",
    "a daemon thread that opens and closes contexts": "start(lambda: forever(lambda: fresh().close()))",
    "a daemon thread that swallows every error": "start(lambda: forever(lambda: context.decode(long)))",
}
EXIT = """
import sys, threading
from causerie.llama import Batch, Context, Model
model = Model(sys.argv[1])
started = threading.Event()

def fresh(**options):
    return Context(model, n_ctx=512, n_batch=512, n_ubatch=32, n_threads=1, **options)

context = fresh(eval_callback=lambda tensor, ask: started.set())
one, long = Batch(1), Batch(500)
one.add(4, 0, output=True)
long.add_sequence([4 + i % 50 for i in range(500)], 0, 0)
context.decode(one)
context.memory.clear()

def start(function):
    begun = threading.Event()
    def work():
        begun.set()
        function()
    threading.Thread(target=work, daemon=True).start()
    begun.wait()

def forever(function):
    while True:
        try:
            function()
        except Exception:
            pass

def decode_forever(context):
    while True:
        context.memory.clear()
        context.decode(long)

"""


@pytest.mark.parametrize("what", EXITS)
def test_the_interpreter_ends_silently_with(path: Path, what: str) -> None:
    for _ in range(3):
        done = run(EXIT + EXITS[what], path)
        if what == "an exception":
            assert done.returncode == 1
            assert done.stderr.endswith("ValueError: the batch is empty\n")
        else:
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_interpreter_ends_silently_mid_decode_of_a_real_model_every_time(smollm2_path: Path) -> None:
    for _ in range(10):
        done = run(EXIT + "started.clear(); start(lambda: decode_forever(context)); started.wait()", smollm2_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_printed_by_loading_decoding_and_failing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.gguf").write_bytes(b"junk" * 100)
    code = """
import sys
from causerie import CauserieError
from causerie.llama import Batch, Context, Model
with Model(sys.argv[1]) as model, Context(model, n_ctx=64) as context:
    batch = Batch(4)
    batch.add_sequence([4, 5], 0, 0)
    context.decode(batch)
    for call in (lambda: context.decode(batch), lambda: Model(sys.argv[2]), lambda: context.embeddings()):
        try:
            call()
        except CauserieError:
            pass
"""
    done = run(code, path, tmp_path / "junk.gguf")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_can_end_while_the_parent_goes_on(path: Path) -> None:
    code = """
import os, sys
from causerie.llama import Batch, Context, Model
model = Model(sys.argv[1])
context = Context(model, n_ctx=64, n_threads=1)
batch = Batch(4)
batch.add_sequence([4, 5], 0, 0)
context.decode(batch)
kept = context.logits()
child = os.fork()
if child == 0:
    assert model.vocab.tokenize("a").size
    context.close()
    model.close()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
again = Batch(1)
again.add(6, 2, output=True)
context.decode(again)
"""
    done = run(code, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_views_of_many_contexts_can_be_dropped_in_any_order(path: Path) -> None:
    with Model(path) as model:
        views = []
        for _ in range(8):
            context = decoded(model)
            views += [context.logits(), context.logits()[::3]]
        del context
        expected = views[0].copy()
        for i in (3, 0, 6, 2, 9, 1):
            views[i] = np.zeros(0)
        assert (views[4] == expected).all()
