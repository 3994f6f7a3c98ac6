"""Where an engine is: its options for devices, and what its figures say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causerie import UnsupportedError
from causerie.engine import TokenEngine
from causerie.llama import Chooser, Model
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


def test_threads_are_one_for_each_core(smollm2: Model) -> None:
    with TokenEngine(smollm2, n_ctx=256) as engine:
        chosen = engine.stats().threads
        assert chosen == (processors().threads, processors().reason)
    with TokenEngine(smollm2, n_ctx=256, n_threads=1) as engine:
        assert engine.stats().threads == (1, "as it was asked for")
