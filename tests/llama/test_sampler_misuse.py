"""Wrong options and arguments are typed exceptions, and nothing ends the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from causerie.llama.sampler import Sampler

NAN, INF = float("nan"), float("inf")
ROW = np.array([1.0, 3.0, -2.0], np.float32)


@pytest.mark.parametrize("make", [
    lambda x: Sampler.top_p(x), lambda x: Sampler.min_p(x), lambda x: Sampler.typical(x), lambda x: Sampler.xtc(x),
    lambda x: Sampler.xtc(0.5, x), lambda x: Sampler.temperature(x), lambda x: Sampler.temperature_dynamic(x, 0.1),
    lambda x: Sampler.temperature_dynamic(1, x), lambda x: Sampler.temperature_dynamic(1, 1, exponent=x),
    lambda x: Sampler.mirostat_v2(x), lambda x: Sampler.mirostat_v2(5, x), lambda x: Sampler.adaptive_p(0.5, decay=x),
])  # fmt: skip
@pytest.mark.parametrize("value", [NAN, INF, -INF, -0.1, 1e300, 10**400])
def test_numbers_that_are_not_finite_or_out_of_range(make, value):
    with pytest.raises(ValueError, match="must be"):
        make(value)


@pytest.mark.parametrize("value", ["0.5", None, True, 1j, [0.5], np.array([0.5])])
def test_what_is_not_a_number(value):
    for make in (Sampler.top_p, Sampler.temperature, Sampler.top_n_sigma, Sampler.adaptive_p):
        with pytest.raises(TypeError):
            make(value)


@pytest.mark.parametrize(("make", "error"), [
    (lambda: Sampler.top_p(1.01), ValueError), (lambda: Sampler.temperature(1e-30), ValueError),
    (lambda: Sampler.top_n_sigma(NAN), ValueError), (lambda: Sampler.adaptive_p(1.5), ValueError),
    (lambda: Sampler.adaptive_p(0.5, decay=0.995), ValueError), (lambda: Sampler.top_k(2**31), ValueError),
    (lambda: Sampler.top_k(1.5), TypeError), (lambda: Sampler.top_k(True), TypeError), (lambda: Sampler.dist(-1), ValueError),
    (lambda: Sampler.dist(2**32), ValueError), (lambda: Sampler.dist(1.0), TypeError),
    (lambda: Sampler.top_p(0.5, min_keep=-1), ValueError), (lambda: Sampler.xtc(0.5, min_keep=2**40), ValueError),
    (lambda: Sampler.mirostat(None), TypeError),
])  # fmt: skip
def test_other_options_out_of_range(make, error):
    with pytest.raises(error):
        make()


def test_numpy_numbers_are_numbers():
    assert Sampler.top_p(np.float32(0.5)).name == "top-p"
    assert Sampler.top_k(np.int64(3)).name == "top-k"
    Sampler.dist(np.uint32(7))
    Sampler.greedy().accept(np.int32(3))


def test_options_of_samplers_for_a_vocabulary(model):
    vocab = model.vocab
    wrong = [
        lambda: Sampler.mirostat(vocab, m=1), lambda: Sampler.mirostat(vocab, NAN), lambda: Sampler.mirostat(vocab, 5, -1),
        lambda: Sampler.penalties(vocab, last_n=-1), lambda: Sampler.penalties(vocab, last_n=2**31),
        lambda: Sampler.penalties(vocab, repeat=0), lambda: Sampler.penalties(vocab, repeat=-1),
        lambda: Sampler.penalties(vocab, repeat=1e-40), lambda: Sampler.penalties(vocab, freq=NAN),
        lambda: Sampler.penalties(vocab, present=1e30), lambda: Sampler.dry(vocab, -1), lambda: Sampler.dry(vocab, NAN),
        lambda: Sampler.dry(vocab, base=0.5), lambda: Sampler.dry(vocab, allowed_length=-1),
        lambda: Sampler.dry(vocab, last_n=-1), lambda: Sampler.dry(vocab, last_n=10**12),
        lambda: Sampler.dry(vocab, seq_breakers=[""]), lambda: Sampler.dry(vocab, seq_breakers=["a\0b"]),
        lambda: Sampler.dry(vocab, seq_breakers=["x" * 41]), lambda: Sampler.dry(vocab, seq_breakers=["\ud800"]),
        lambda: Sampler.logit_bias(vocab, {-1: 1.0}), lambda: Sampler.logit_bias(vocab, {vocab.n_tokens: 1.0}),
        lambda: Sampler.logit_bias(vocab, {1: NAN}), lambda: Sampler.logit_bias(vocab, {1: INF}),
        lambda: Sampler.logit_bias(vocab, {1: 1e30}),
    ]  # fmt: skip
    for make in wrong:
        with pytest.raises(ValueError):
            make()
    for make in (lambda: Sampler.dry(vocab, seq_breakers="abc"), lambda: Sampler.dry(vocab, seq_breakers=[b"a"]),
                 lambda: Sampler.logit_bias(vocab, {"a": 1.0}), lambda: Sampler.logit_bias(vocab, {1: "x"}),
                 lambda: Sampler.infill(model), lambda: Sampler.penalties(model)):  # fmt: skip
        with pytest.raises(TypeError):
            make()
    Sampler.dry(vocab, seq_breakers=["…" * 13, "é"])
    assert Sampler.mirostat(vocab, m=10**6).apply(np.zeros(vocab.n_tokens)).selected is not None


@pytest.mark.parametrize("row", [
    [], [[1.0, 2.0]], 3.0, [NAN, 1.0], [INF, 1.0], [1e300, 1.0], [-INF, -INF],
])  # fmt: skip
def test_rows_that_no_sampler_can_work_on(row):
    for sampler in (Sampler.greedy(), Sampler.top_k(1), Sampler.mirostat_v2()):
        with pytest.raises(ValueError):
            sampler.apply(row)


def test_rows_of_something_else_than_numbers():
    for row in (None, "abc", ["a"], object()):
        with pytest.raises((TypeError, ValueError)):
            Sampler.greedy().apply(row)


@pytest.mark.parametrize(
    ("token", "error"), [(-1, ValueError), (2**31, ValueError), (1.0, TypeError), (None, TypeError)]
)
def test_tokens_that_are_none(token, error):
    with pytest.raises(error):
        Sampler.dist(1).accept(token)


def test_samplers_of_one_candidate_and_of_mostly_excluded_ones(model):
    vocab = model.vocab
    one = np.full(vocab.n_tokens, -np.inf, np.float32)
    one[100] = 5
    makers = [
        lambda: Sampler.top_k(3), lambda: Sampler.top_p(0.5), lambda: Sampler.min_p(0.5), lambda: Sampler.typical(0.5),
        lambda: Sampler.temperature(0.5), lambda: Sampler.temperature(0), lambda: Sampler.temperature_dynamic(1, 0.5),
        lambda: Sampler.xtc(1, 0.1), lambda: Sampler.top_n_sigma(1), lambda: Sampler.penalties(vocab, repeat=1.5),
        lambda: Sampler.dry(vocab), lambda: Sampler.logit_bias(vocab, {5: -INF}),
    ]  # fmt: skip
    choices = [Sampler.greedy, lambda: Sampler.dist(1), lambda: Sampler.mirostat(vocab, seed=1),
               lambda: Sampler.mirostat_v2(seed=1), lambda: Sampler.adaptive_p(0.5, seed=1)]  # fmt: skip
    for make in makers:
        for choose in choices:
            chain = Sampler.chain([make(), choose()])
            for _ in range(2):
                assert chain.apply(one).selected == 100
                chain.accept(100)


def test_a_temperature_that_overflows_is_an_error_not_a_random_token(context):
    from causerie.llama import Batch

    batch = Batch(4)
    batch.add(1, 0, output=True)
    context.decode(batch)
    chain = Sampler.chain([Sampler.temperature(1e-20), Sampler.temperature(1e-20), Sampler.dist(1)])
    with pytest.raises(ValueError, match="inf"):
        chain.sample(context)


RISKY = {
    "deep parentheses": 'refused(lambda: Sampler.grammar(v, "root ::= " + "(" * 200_000 + \'"a"\' + ")" * 200_000))',
    "a long chain of rules": """
        text = "".join(f"r{i} ::= r{i + 1}\\n" for i in range(200_000)) + 'r200000 ::= "a"\\nroot ::= r0'
        refused(lambda: Sampler.grammar(v, text))""",
    "endless expansion": """
        refused(lambda: Sampler.grammar(v, 'root ::= a\\na ::= b a "x" | "y"\\nb ::= c\\nc ::= ""'))""",
    "endless repetition": """refused(lambda: Sampler.grammar(v, 'root ::= "x"{3,2}'))""",
    "exponential search": """
        text = "".join(f"r{i} ::= r{i + 1} | r{i + 1}\\n" for i in range(200)) + 'r200 ::= "a"\\nroot ::= r0'
        refused(lambda: Sampler.grammar(v, text))""",
    "huge repetitions": """refused(lambda: Sampler.grammar(v, 'root ::= "' + "a" * 100_000 + '"{2000}'))""",
    "a deep regular expression": """
        for pattern in ("(" * 100_000 + ")" * 100_000, "a" * 100_000, r"([\\s\\S]*)(x)", "a{1000000}", "(" , "[z-a]", "\\\\"):
            refused(lambda: Sampler.grammar_lazy(v, 'root ::= "a"', trigger_patterns=[pattern]))""",
    "the largest grammar that is allowed, in a thread": """
        import threading
        deep = "root ::= " + "(" * 199 + '"a"' + ")" * 199
        long = "".join(f"r{i} ::= r{i + 1}\\n" for i in range(4900)) + 'r4900 ::= "a"\\nroot ::= r0'
        pattern = "((((" + "a{0,1000}" + "))))b"
        def work():
            for text in (deep, long):
                Sampler.grammar(v, text).reset()
            s = Sampler.grammar_lazy(v, 'root ::= "b"', trigger_patterns=[pattern, "x" * 4000])
            for _ in range(300):
                s.accept(int(v.tokenize("aaaaaaaaaaaaaaaa")[0]))
            s.reset()
        threading.stack_size(2**21)
        thread = threading.Thread(target=work); thread.start(); thread.join()""",
    "eog where the grammar goes on": """
        s = Sampler.grammar(v, 'root ::= "ab"')
        refused(lambda: s.accept(v.eos)); refused(lambda: s.accept(v.eos)); s.accept(int(v.tokenize("a")[0]))""",
    "a clone of adaptive_p that waits": """
        s = Sampler.adaptive_p(0.5, seed=1)
        t = s.apply(np.zeros(v.n_tokens)).selected
        for _ in range(50):
            c = s.clone(); c.accept(t); c.apply(np.zeros(v.n_tokens))""",
    "random tokens into every sampler": """
        rng = np.random.default_rng(1)
        row = rng.standard_normal(v.n_tokens)
        s = Sampler.chain([Sampler.penalties(v, repeat=1.5, last_n=7), Sampler.dry(v, last_n=5), Sampler.top_k(9),
            Sampler.infill(v), Sampler.typical(.9), Sampler.xtc(.5, .1), Sampler.adaptive_p(.2)])
        for token in rng.integers(0, v.n_tokens, 500):
            s.accept(int(token)); s.apply(row)""",
    "interrupts at any moment": """
        import random, signal, time
        class Interrupt(Exception): pass
        def interrupt(*_): raise Interrupt
        s = Sampler.chain([Sampler.custom(lambda c: None, accept=lambda t: None), Sampler.dist(1)])
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, interrupt)
            for _ in range(1500):
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 4e-4))
                    for _ in range(10):
                        s.apply(np.zeros(9)); s.accept(1)
                    time.sleep(0.01)
                    raise SystemExit("an interrupt was lost")
                except Interrupt: pass
        s.apply(np.zeros(9)); s.accept(1)""",
    "closing the model from a custom sampler": """
        s = Sampler.chain([Sampler.grammar(v, 'root ::= "a"'), Sampler.custom(lambda c: v._model.close()), Sampler.greedy()])
        assert s.apply(np.zeros(v.n_tokens)).selected is not None
        refused(lambda: s.apply(np.zeros(v.n_tokens)))""",
    "exit while a sampler runs in a daemon thread": """
        import threading, time
        s = Sampler.chain([Sampler.custom(lambda c: time.sleep(0.001)), Sampler.dist(1)])
        def spin():
            while True: s.apply(np.zeros(v.n_tokens))
        threading.Thread(target=spin, daemon=True).start()
        time.sleep(0.2)""",
    "exit with everything open": """
        keep = [Sampler.grammar(v, 'root ::= "a"'), Sampler.custom(lambda c: 1, reset=lambda: None), Sampler.chain([Sampler.dist()])]
        keep.append(keep)""",
}


EXIT_WHILE_SAMPLING = """
    import threading, time
    from causerie.llama import Batch, Context
    model = Model(sys.argv[1])
    ctx = Context(model, n_ctx=64, n_batch=64)
    batch = Batch(4)
    batch.add(1, 0, output=True)
    ctx.decode(batch)
    s = Sampler.chain([Sampler.top_k(40), Sampler.custom(lambda c: None), Sampler.dist(1)])
    def spin():
        while True: s.sample(ctx)
    for _ in range(3):
        threading.Thread(target=spin, daemon=True).start()
    time.sleep(0.2)
"""


@pytest.mark.parametrize("code", [*RISKY.values(), EXIT_WHILE_SAMPLING], ids=[*RISKY, "exit while sampling a context"])
def test_nothing_ends_the_process(code, smollm2_path):
    program = textwrap.dedent("""
        import sys
        import numpy as np
        from causerie.errors import CauserieError
        from causerie.llama import Model
        from causerie.llama.sampler import Sampler

        def refused(call):
            try:
                call()
            except CauserieError:
                return
            raise SystemExit("not refused")

        v = Model(sys.argv[1], vocab_only=True).vocab
    """) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, str(smollm2_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
