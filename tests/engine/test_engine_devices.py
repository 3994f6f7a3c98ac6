"""Where an engine is: its options for devices, and what its figures say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causerie import UnsupportedError
from causerie.engine import TokenEngine
from causerie.engine._opening import on_gpu
from causerie.engine.settings import settings
from causerie.llama import Chooser, Context, Model
from causerie.llama.device import default_devices
from causerie.llama.processors import processors

if TYPE_CHECKING:
    from pathlib import Path


def test_the_figures_tell_where_layers_and_cache_are(smollm2_path: Path) -> None:
    with TokenEngine(smollm2_path, devices="cpu", n_ctx=512) as engine:
        (cpu,) = engine.stats().devices
        assert (cpu.name, cpu.layers) == ("CPU", engine.model.n_layer)
        assert min(cpu.model_bytes, cpu.cache_bytes, cpu.compute_bytes) > 0


def test_options_of_models_are_for_models_that_the_engine_loads(smollm2: Model) -> None:
    for options in ({"devices": "cpu"}, {"n_gpu_layers": "auto"}, {"strict": True}, {"model_options": {"rpc": ()}}):
        with pytest.raises(TypeError, match="loaded already"):
            TokenEngine(smollm2, **options)  # type: ignore[arg-type]


def test_unknown_options_are_named(smollm2_path: Path) -> None:
    with pytest.raises(TypeError, match="nonsense"):
        TokenEngine(smollm2_path, nonsense=1)


@pytest.mark.skipif(bool(default_devices()), reason="this machine has GPUs")
def test_strict_refuses_the_processor(smollm2_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="strict"):
        TokenEngine(smollm2_path, n_gpu_layers=99, strict=True)


@pytest.mark.parametrize("architecture", ["llama-dense", "mamba-dense", "gemma3-dense"])
@pytest.mark.parametrize("options", [{}, {"n_ctx": 128, "kv_unified": False}, {"type_k": "q8_0", "flash_attn": "auto"}])
def test_what_fits_may_be_found_out(tiny_models: dict[str, Path], architecture: str, options: dict[str, Any]) -> None:
    path = tiny_models[architecture]
    with TokenEngine(path, devices="cpu", n_threads=1, **options) as plain:
        expected = plain.n_ctx, plain.stats().devices[0].cache_bytes
        want = plain.generate(plain.sequence(), [1, 2, 3], chooser=Chooser(), max_tokens=5)
        plain.wait(want)
    with TokenEngine(path, devices="cpu", n_gpu_layers="auto", n_threads=1, **options) as engine:
        assert (engine.n_ctx, engine.stats().devices[0].cache_bytes) == expected
        found = engine.generate(engine.sequence(), [1, 2, 3], chooser=Chooser(), max_tokens=5)
        engine.wait(found)
        assert found.tokens == want.tokens


def test_settings_tell_what_was_chosen_and_why(smollm2: Model) -> None:
    with TokenEngine(smollm2, n_ctx=512) as engine:
        found = engine.stats().settings
    assert found["n_threads"] == (processors().threads, processors().reason)
    assert found["n_ctx"] == (512, "as it was asked for")
    assert found["n_batch"].value == 512
    assert found["max_resident"].value == 32
    assert found["kv_unified"].value is True
    assert found["flash_attn"] == ("enabled", "each layer's device can")
    assert (found["type_k"].value, found["type_v"].value) == ("f16", "f16")
    if not on_gpu(smollm2):
        assert found["n_ubatch"].value == 48
        assert "equal logits" in found["n_ubatch"].reason
    assert "as it was asked for" not in {s.reason for name, s in found.items() if name != "n_ctx"}


def test_settings_tell_what_was_asked_for(smollm2: Model) -> None:
    asked = {
        "n_threads": 1, "n_ctx": 300, "n_batch": 96, "n_ubatch": 32, "max_resident": 3, "kv_unified": False,
        "flash_attn": "disabled", "type_k": "q8_0",
    }  # fmt: skip
    with TokenEngine(smollm2, **asked) as engine:
        found = engine.stats().settings
    n_ctx = found.pop("n_ctx")
    assert n_ctx == (768, "300 was asked for, as near as it can be")  # 256 for each sequence
    assert found.pop("type_v").value == "f16"
    assert found == {name: (value, "as it was asked for") for name, value in asked.items() if name != "n_ctx"}


def test_settings_tell_that_nobody_asked_for_what_was_fitted(tiny_models: dict[str, Path]) -> None:
    path = tiny_models["llama-dense"]
    with TokenEngine(path, devices="cpu", n_gpu_layers="auto", n_threads=1) as engine:
        n_ctx = engine.stats().settings["n_ctx"]
    assert n_ctx == (engine.model.n_ctx_train, "what the model was trained with")


def test_settings_tell_that_less_than_the_default_fits(smollm2: Model) -> None:
    with Context(smollm2, n_ctx=256, n_threads=1) as context:  # as fitting makes it, where nobody asked for a size
        assert settings(context, {})["n_ctx"] == (256, "what fits beside the layers that are on devices")


def test_settings_of_states_and_of_what_the_model_cannot(tiny_models: dict[str, Path]) -> None:
    with TokenEngine(tiny_models["mamba-dense"], n_threads=1) as engine:
        found = engine.stats().settings
    assert found["max_resident"] == (8, "each has a state of its own")
