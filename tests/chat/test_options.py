"""Generation options: what they take, what they refuse, and what is inherited."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import pickle
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat import SamplingOptions
from causerie.chat.option_checks import CHECKS
from causerie.chat.options import DEFAULTS, file_defaults, resolve
from causerie.llama import Model

if TYPE_CHECKING:
    from pathlib import Path

INF, NAN = math.inf, math.nan


def shout(row: Any) -> None:
    """A sampler that can be pickled, as it has a name in a module."""


class File:
    """Stands for a model whose file recommends something."""

    def __init__(self, **recommended: str) -> None:
        self.sampling_defaults = recommended
        self.path = "model.gguf"


def write_recommending(path: Path) -> Path:
    """A file without weights that recommends temperature 0.25, top_k 7 and a top_p that is none."""
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_context_length, 64), (writer.add_embedding_length, 32), (writer.add_block_count, 1),
        (writer.add_head_count, 4), (writer.add_feed_forward_length, 64), (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_tokenizer_model, "none"), (writer.add_vocab_size, 8),
        (writer.add_sampling_temp, 0.25), (writer.add_sampling_top_k, 7), (writer.add_sampling_top_p, 3.0),
        (writer.add_sampling_mirostat, 0),
    ):  # fmt: skip
        add(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


EVERYTHING: dict[str, Any] = {
    "max_tokens": 5, "thinking_budget": 7, "thinking_budget_message": "So:", "temperature": 0.5, "dynatemp_range": 0.1, "dynatemp_exponent": 1.5,
    "top_k": 3, "top_p": 0.5,
    "min_p": 0.1, "typical_p": 0.9, "top_n_sigma": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.2,
    "dry_multiplier": 0.8, "dry_base": 2.0, "dry_allowed_length": 3, "dry_penalty_last_n": 100,
    "dry_sequence_breakers": ("\n",), "mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2, "adaptive_target": 0.3,
    "adaptive_decay": 0.5, "repeat_penalty": 1.1, "repeat_last_n": 32, "frequency_penalty": 0.2,
    "presence_penalty": 0.3, "seed": 7, "stop": ("END",), "logit_bias": {1: -1.0}, "logprobs": 2,
    "grammar": 'root ::= "a"', "samplers": (shout,), "n": 2,
}  # fmt: skip


class TestValues:
    def test_nothing_is_set_at_first(self):
        assert SamplingOptions().given() == {}
        assert all(getattr(SamplingOptions(), f.name) is None for f in dataclasses.fields(SamplingOptions))

    def test_every_option_has_a_check_and_no_other(self):
        assert [f.name for f in dataclasses.fields(SamplingOptions)] == list(CHECKS)
        assert list(EVERYTHING) == list(CHECKS)

    def test_every_option_is_kept(self):
        assert SamplingOptions(**EVERYTHING).given() == EVERYTHING

    def test_positions_have_no_meaning(self):
        with pytest.raises(TypeError):
            SamplingOptions(5)  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("name", "given", "kept"),
        [
            ("max_tokens", np.int64(5), 5),
            ("max_tokens", -1, -1),
            ("thinking_budget", np.int64(0), 0),
            ("thinking_budget", -1, -1),
            ("temperature", np.float32(0.5), 0.5),
            ("temperature", 1, 1.0),
            ("temperature", Fraction(1, 2), 0.5),
            ("temperature", 0, 0.0),
            ("top_k", np.uint8(3), 3),
            ("top_k", -1, -1),
            ("top_n_sigma", -1, -1.0),
            ("seed", 0, 0),
            ("seed", -1, -1),
            ("seed", 2**32 - 2, 2**32 - 2),
            ("seed", 2**32 - 1, -1),
            ("stop", "END", ("END",)),
            ("stop", ["a", "b", "a"], ("a", "b")),
            ("stop", (text for text in "ab"), ("a", "b")),
            ("stop", [], ()),
            ("dry_sequence_breakers", "\n", ("\n",)),
            ("dry_sequence_breakers", [], ()),
            ("logit_bias", {}, {}),
            ("logit_bias", {5: False, np.int32(6): np.float32(1.5), 7: -INF, 8: 0}, {5: -INF, 6: 1.5, 7: -INF, 8: 0}),
            ("logprobs", True, 0),
            ("logprobs", False, -1),
            ("logprobs", 0, 0),
            ("logprobs", 5, 5),
            ("grammar", "", ""),
            ("samplers", shout, (shout,)),
            ("samplers", [shout, max], (shout, max)),
            ("samplers", [], ()),
        ],
    )
    def test_taken(self, name, given, kept):
        value = getattr(SamplingOptions(**{name: given}), name)
        assert value == kept
        if not isinstance(kept, dict):
            assert type(value) is type(kept)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("max_tokens", 0), ("max_tokens", -2), ("max_tokens", 2**31),
            ("thinking_budget", -2), ("thinking_budget", 2**31),
            ("temperature", -0.1), ("temperature", NAN), ("temperature", INF), ("temperature", 1e-30),
            ("temperature", 10**400), ("temperature", np.float32("nan")), ("temperature", 1e39),
            ("dynatemp_range", -1), ("dynatemp_exponent", -1),
            ("top_k", -2), ("top_k", 2**31),
            ("top_p", 1.01), ("top_p", -0.01), ("top_p", NAN), ("min_p", 2), ("typical_p", -1),
            ("top_n_sigma", NAN), ("top_n_sigma", -2),
            ("xtc_probability", 1.5), ("xtc_threshold", -0.5),
            ("dry_multiplier", -1), ("dry_base", 0.5), ("dry_allowed_length", -1), ("dry_penalty_last_n", -1),
            ("dry_penalty_last_n", 2**24 + 1), ("dry_sequence_breakers", [""]), ("dry_sequence_breakers", ["a\0"]),
            ("dry_sequence_breakers", ["x" * 41]), ("dry_sequence_breakers", ["\ud800"]),
            ("mirostat", 3), ("mirostat", -1), ("mirostat_tau", -1), ("mirostat_eta", INF),
            ("adaptive_target", 1.5), ("adaptive_target", -2), ("adaptive_decay", 1.0),
            ("repeat_penalty", 0), ("repeat_penalty", -1), ("repeat_penalty", INF), ("repeat_last_n", -1),
            ("frequency_penalty", NAN), ("presence_penalty", 1e7),
            ("seed", -2), ("seed", 2**32),
            ("stop", ""), ("stop", ["a", ""]), ("stop", "\ud800"),
            ("logit_bias", {-1: 1.0}), ("logit_bias", {1: NAN}), ("logit_bias", {1: INF}), ("logit_bias", {1: 1e10}),
            ("logprobs", -2), ("grammar", "\udcff"), ("n", 0), ("n", -1), ("n", 1025),
        ],
    )  # fmt: skip
    def test_out_of_range(self, name, value):
        with pytest.raises(ValueError) as caught:
            SamplingOptions(**{name: value})
        assert name in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("max_tokens", 1.5), ("max_tokens", "5"), ("max_tokens", True), ("max_tokens", np.bool_(True)),
            ("temperature", "0.5"), ("temperature", True), ("temperature", np.bool_(False)), ("temperature", 1j),
            ("temperature", [0.5]), ("temperature", np.array([0.5])),
            ("top_k", 40.0), ("top_k", None.__class__), ("top_p", False), ("mirostat", True), ("seed", 1.0),
            ("seed", True), ("n", True), ("n", "2"), ("logprobs", "yes"), ("logprobs", 1.0),
            ("stop", 5), ("stop", [5]), ("stop", b"END"), ("stop", {"a": 1}),
            ("dry_sequence_breakers", 5), ("dry_sequence_breakers", [b"\n"]),
            ("logit_bias", [(1, 2.0)]), ("logit_bias", {"hello": 1.0}), ("logit_bias", {1.5: 1.0}),
            ("logit_bias", {True: 1.0}), ("logit_bias", {1: "x"}), ("logit_bias", {1: True}), ("logit_bias", {1: None}),
            ("grammar", b"root"), ("grammar", 5), ("samplers", 5), ("samplers", [5]), ("samplers", "greedy"),
        ],
    )  # fmt: skip
    def test_of_another_type(self, name, value):
        with pytest.raises(TypeError) as caught:
            SamplingOptions(**{name: value})
        assert name in str(caught.value)

    def test_the_message_has_option_value_and_range(self):
        with pytest.raises(ValueError, match=r"^top_p must be in 0\.\.1, not 1\.5$"):
            SamplingOptions(top_p=1.5)
        with pytest.raises(ValueError, match=r"^mirostat must be in 0\.\.2, not 3$"):
            SamplingOptions(mirostat=3)
        with pytest.raises(ValueError, match=r"max_tokens must be in 1\.\.2147483647, or -1 for no limit, not 0"):
            SamplingOptions(max_tokens=0)


class TestImmutable:
    def test_no_option_can_be_set(self):
        options = SamplingOptions(temperature=1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            options.temperature = 2.0  # type: ignore[misc]
        with pytest.raises((AttributeError, TypeError)):
            options.colour = 1  # type: ignore[attr-defined]

    def test_what_was_passed_in_may_change_later(self):
        bias, stops, samplers = {1: 1.0}, ["a"], [shout]
        options = SamplingOptions(logit_bias=bias, stop=stops, samplers=samplers)
        bias[2] = 2.0
        stops.append("b")
        samplers.clear()
        assert options.given() == {"logit_bias": {1: 1.0}, "stop": ("a",), "samplers": (shout,)}

    def test_the_bias_cannot_change(self):
        bias: Any = SamplingOptions(logit_bias={1: 1.0}).logit_bias
        with pytest.raises(TypeError):
            bias[1] = 2.0
        with pytest.raises(TypeError):
            del bias[1]

    def test_equal_and_with_equal_hashes(self):
        one, other = SamplingOptions(**EVERYTHING), SamplingOptions(**EVERYTHING)
        assert one == other
        assert hash(one) == hash(other)
        assert one != SamplingOptions(**{**EVERYTHING, "seed": 8})
        assert SamplingOptions(logprobs=False) != SamplingOptions(logprobs=True)

    def test_pickled_and_copied(self):
        options = SamplingOptions(**EVERYTHING)
        for again in (pickle.loads(pickle.dumps(options)), copy.copy(options), copy.deepcopy(options)):
            assert again == options
            assert hash(again) == hash(options)
        assert dataclasses.replace(options) == options

    def test_its_repr_shows_what_is_set(self):
        assert repr(SamplingOptions()) == "SamplingOptions()"
        options = SamplingOptions(top_k=3, stop="x", logit_bias={1: False})
        assert repr(options) == "SamplingOptions(top_k=3, stop=('x',), logit_bias={1: -inf})"


class TestOf:
    def test_nothing_a_mapping_or_options(self):
        options = SamplingOptions(top_k=3)
        assert SamplingOptions.of(None) == SamplingOptions()
        assert SamplingOptions.of({"top_k": 3}) == options
        assert SamplingOptions.of({"top_k": None}) == SamplingOptions()
        assert SamplingOptions.of(options) is options

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("temprature", "temperature"), ("temp", "temperature"), ("max_new_tokens", "max_tokens"), ("topk", "top_k"),
         ("repetition_penalty", "repeat_penalty"), ("Seed", "seed"), ("stops", "stop")],
    )  # fmt: skip
    def test_an_unknown_name_is_refused_with_a_proposal(self, name, meant):
        with pytest.raises(TypeError, match=f"unknown option '{name}': did you mean '{meant}'\\?"):
            SamplingOptions.of({name: 1})

    @pytest.mark.parametrize("name", ["zzzzzz", "", 3])
    def test_a_name_like_none_is_refused_with_the_list(self, name):
        with pytest.raises(TypeError, match=r"unknown option .*: there are max_tokens, thinking_budget, .*, n$"):
            SamplingOptions.of({name: 1})

    @pytest.mark.parametrize("value", [5, "temperature=1", [("top_k", 3)]])
    def test_other_things_are_refused(self, value):
        with pytest.raises(TypeError, match="must be SamplingOptions or a mapping"):
            SamplingOptions.of(value)

    def test_values_are_checked(self):
        with pytest.raises(ValueError, match="top_p"):
            SamplingOptions.of({"top_p": 2})


some_options = st.dictionaries(st.sampled_from(["top_k", "seed", "n", "mirostat"]), st.integers(1, 2)).map(
    SamplingOptions.of
)


class TestOver:
    def test_what_is_set_wins(self):
        near, far = SamplingOptions(top_k=1, stop=()), SamplingOptions(top_k=2, top_p=0.5, stop="x")
        assert near.over(far) == SamplingOptions(top_k=1, top_p=0.5, stop=())
        assert (near, far) == (SamplingOptions(top_k=1, stop=()), SamplingOptions(top_k=2, top_p=0.5, stop="x"))

    def test_a_neutral_value_is_set_too(self):
        assert SamplingOptions(temperature=0, top_k=0).over(DEFAULTS).given().items() >= {
            "temperature": 0.0, "top_k": 0,
        }.items()  # fmt: skip

    @settings(deadline=None, max_examples=50)
    @given(some_options, some_options, some_options)
    def test_levels_may_be_joined_in_any_order(self, a, b, c):
        assert a.over(b).over(c) == a.over(b.over(c))
        assert a.over(SamplingOptions()) == SamplingOptions().over(a) == a


class TestFileDefaults:
    def test_names_and_types(self):
        model = File(temp="0.600000", top_k="20", top_p="0.949999988079071", penalty_last_n="128",
                     penalty_repeat="1.05", mirostat="0", sequence="top_k;temperature")  # fmt: skip
        assert file_defaults(model) == SamplingOptions(  # type: ignore[arg-type]
            temperature=0.6, top_k=20, top_p=0.949999988079071, repeat_last_n=128, repeat_penalty=1.05, mirostat=0
        )

    def test_whole_numbers_may_be_written_as_floats(self):
        assert file_defaults(File(top_k="20.0")) == SamplingOptions(top_k=20)  # type: ignore[arg-type]

    def test_nonsense_is_left_out_with_one_warning_per_model(self, caplog):
        model: Any = File(temp="hot", top_p="7", top_k="2.5", min_p="nan", mirostat="9", xtc_threshold="0.3")
        with caplog.at_level(logging.WARNING, "causerie"):
            assert file_defaults(model) == file_defaults(model) == SamplingOptions(xtc_threshold=0.3)
        assert len(caplog.records) == 5
        assert "top_p = '7', which the model's file recommends: top_p must be in 0..1, not 7.0" in caplog.text

    def test_of_a_real_file(self, tmp_path):
        with Model(write_recommending(tmp_path / "vocab.gguf"), vocab_only=True) as model:
            assert file_defaults(model) == SamplingOptions(temperature=0.25, top_k=7, mirostat=0)


class TestResolve:
    def test_each_from_the_nearest_level_that_sets_it(self):
        model: Any = File(temp="0.1", top_k="1", top_p="0.1", min_p="0.1")
        engine, conversation = SamplingOptions(temperature=0.2, top_k=2, top_p=0.2), {"temperature": 0.3, "top_k": 3}
        found = resolve({"temperature": 0.4}, conversation, engine, model=model)
        assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.4, 3, 0.2, 0.1)
        assert found == SamplingOptions(temperature=0.4, top_k=3, top_p=0.2, min_p=0.1).over(DEFAULTS)

    def test_levels_may_be_missing(self):
        model: Any = File()
        assert resolve(model=model) == resolve(None, None, model=model) == DEFAULTS

    def test_the_defaults_leave_only_five_open(self):
        assert {name for name in CHECKS if getattr(DEFAULTS, name) is None} == {
            "max_tokens", "thinking_budget", "seed", "logprobs", "grammar",
        }  # fmt: skip
        assert (DEFAULTS.temperature, DEFAULTS.top_k, DEFAULTS.top_p, DEFAULTS.min_p) == (0.8, 40, 0.95, 0.05)
        assert (DEFAULTS.repeat_last_n, DEFAULTS.dry_penalty_last_n, DEFAULTS.n) == (64, 64, 1)

    def test_what_is_inherited_can_be_taken_back(self):
        far = {"max_tokens": 5, "thinking_budget": 3, "seed": 1, "logprobs": 3, "grammar": 'root ::= "a"', "stop": "x",
               "logit_bias": {1: False}, "samplers": shout}  # fmt: skip
        near = {"max_tokens": -1, "thinking_budget": -1, "seed": -1, "logprobs": False, "grammar": "", "stop": [], "logit_bias": {},
                "samplers": []}  # fmt: skip
        model: Any = File()
        assert resolve(near, far, model=model) == DEFAULTS
        assert resolve({}, far, model=model) == SamplingOptions.of(far).over(DEFAULTS)

    def test_one_call_leaves_no_trace_in_the_next(self):
        model: Any = File()
        conversation = SamplingOptions(temperature=0.5)
        before = resolve({}, conversation, model=model)
        assert resolve({"temperature": 2.0, "stop": "x"}, conversation, model=model) != before
        assert resolve({}, conversation, model=model) == before
