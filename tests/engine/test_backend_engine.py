"""An engine on a device other than the CPU: logits as on the CPU, and where everything is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from engine_oracle import Program, Reference, check_slots, run_programs, watch

from causerie.engine import TokenEngine
from causerie.llama import Batch, Chooser, Context, Model, find_devices, fit
from causerie.llama.device import default_devices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.backend

# How far logits may be from the CPU's (docs/backends.md has what was measured).
KINDS = {"llama-dense": 1e-6, "gemma3-dense": 1e-6, "mamba-dense": 1e-6, "falcon-h1-dense": 1e-6}
SMOLLM2 = 1e-3
# Mesa 22.3's lavapipe uses freed memory in it (docs/backends.md).
FATAL_ON_LAVAPIPE = ("falcon-h1-dense", 1)
WIDE = {"flash_attn": "disabled", "type_k": "f32", "type_v": "f32"}
IDS = [1000 + 7 * i for i in range(48)]


@pytest.fixture
def gpu(device: str) -> str:
    """A device with layers of its own."""
    if find_devices(device)[0].kind == "cpu":
        pytest.skip("about another device than the CPU, which stands for one here")
    return device


def generated(engine: TokenEngine) -> list[int]:
    made = engine.generate(engine.sequence(), IDS, chooser=Chooser(), max_tokens=6)
    engine.wait(made)
    return made.target


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_memory(tiny_models: dict[str, Path], device: str, name: str, seed: int) -> None:
    if (name, seed) == FATAL_ON_LAVAPIPE and "llvmpipe" in find_devices(device)[0].description:
        pytest.skip("lavapipe takes hold of buffers that are freed, where a descriptor that no shader reads names them")
    with Model(tiny_models[name], devices="cpu") as judge, Model(tiny_models[name], devices=[device]) as model:
        reference = Reference(judge, KINDS[name], **WIDE)
        sizes: dict[str, Any] = {"n_ctx": 256 << seed, "max_resident": 2 + seed, "n_batch": 64, "n_ubatch": 32}
        with watch(TokenEngine(model, n_threads=1, **sizes, **WIDE)) as engine:
            words = list(range(3, model.n_vocab))
            run_programs([Program(engine, reference, 10 * seed + i, words, 120) for i in range(1 + seed)], 10)
            check_slots(engine, idle=True)
        print(f"{name}: NMSE {reference.worst:.1e}")
        reference.close()


def rows(model: Model) -> Any:
    with Context(model, n_ctx=256, n_threads=1) as context:
        batch = Batch(len(IDS))
        for i, token in enumerate(IDS):
            batch.add(token, i, [0], output=True)
        context.decode(batch)
        return np.stack([context.logits(i).astype(np.float64) for i in range(len(IDS))])


def test_quantised_weights_give_the_cpus_logits(smollm2_path: Path, device: str) -> None:
    with Model(smollm2_path, devices="cpu") as there, Model(smollm2_path, devices=[device]) as here:
        want, got = rows(there), rows(here)
    error = np.square(got - want).mean(1) / np.square(want).mean(1)
    print(
        f"NMSE {error.mean():.1e}, at most {error.max():.1e}; logits differ by at most {np.abs(got - want).max():.2f}"
    )
    assert error.mean() <= SMOLLM2
    assert (
        np.square(np.roll(want, 1, 0) - want).mean() / np.square(want).mean() > 10 * SMOLLM2
    )  # another row is far away


def test_layers_and_cache_are_there(smollm2_path: Path, gpu: str) -> None:
    with TokenEngine(smollm2_path, devices=[gpu], n_gpu_layers=99, strict=True, n_ctx=512) as engine:
        use, cpu = engine.stats().devices
        assert (use.name, use.layers, cpu.name, cpu.layers, cpu.cache_bytes) == (gpu, engine.model.n_layer, "CPU", 0, 0)
        assert min(use.model_bytes, use.cache_bytes, use.compute_bytes) > 0
    with TokenEngine(smollm2_path, devices=[gpu], n_gpu_layers=11, strict=True, n_ctx=512) as engine:
        use, cpu = engine.stats().devices
        assert (use.layers, cpu.layers) == (10, engine.model.n_layer - 10)
        assert min(use.cache_bytes, cpu.cache_bytes) > 0


def test_what_nobody_chose_is_on_the_gpus_and_the_cpu_may_be_chosen(smollm2_path: Path, gpu: str) -> None:
    with Model(smollm2_path, strict=True) as model:
        assert model.devices[0].name == default_devices()[0].name
        assert model.devices[-1].layers == 0
    with Model(smollm2_path, devices="cpu", strict=True) as model:
        assert [(use.name, use.layers) for use in model.devices] == [("CPU", model.n_layer)]


def test_layers_are_fitted_to_what_is_free(smollm2_path: Path, gpu: str) -> None:
    (device,) = find_devices(gpu)
    whole = fit(smollm2_path, model={"devices": [gpu]}, n_ctx=512, margin=0)
    assert (whole.fits, whole.devices[0].layers) == (True, 30)
    for margin, layers in ((0, 30), (device.memory_total, 0)):
        options: dict[str, Any] = {"n_gpu_layers": "auto", "fit_margin": margin, "n_ctx": 512}
        with TokenEngine(smollm2_path, devices=[gpu], **options) as engine:
            assert engine.stats().devices[0].layers == layers
            assert len(generated(engine)) > len(IDS)


@pytest.fixture
def pair(tiny_models: dict[str, Path], gpu: str) -> Iterator[list[TokenEngine]]:
    path = tiny_models["llama-dense"]
    with TokenEngine(path, devices="cpu", n_threads=1) as here, TokenEngine(path, devices=[gpu], n_threads=1) as there:
        yield [here, there]


def test_engines_on_different_devices_work_at_the_same_time(pair: list[TokenEngine]) -> None:
    ids = [3 + i % 90 for i in range(40)]

    def run(engine: TokenEngine) -> list[list[int]]:
        found = []
        for start in range(8):
            made = engine.generate(engine.sequence(), ids[start:], chooser=Chooser(), max_tokens=8)
            engine.wait(made)
            found.append(made.target)
        return found

    alone = [run(engine) for engine in pair]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, pair * 2)) == alone * 2
