"""Where layers, cache and buffers are, and refusing where they would not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import causerie
from causerie import DeviceError, UnsupportedError
from causerie.llama import Context, Model, device_uses, devices, find_devices, rpc_devices
from causerie.llama.device import default_devices
from causerie.llama.placement import DeviceUse, require_on_devices
from causerie.llama.rpc import rpc_endpoint

if TYPE_CHECKING:
    from pathlib import Path

RPC = "rpc" in causerie.build_info().backends
CPU_ONLY = pytest.mark.skipif(bool(default_devices()), reason="this machine has GPUs")


def on(kind: str, layers: int) -> DeviceUse:
    return DeviceUse(kind.upper(), "", kind, "", layers, 0, 0, 0)


def test_a_model_on_the_processor_says_so(smollm2_path: Path) -> None:
    with Model(smollm2_path, devices="cpu") as model:
        (cpu,) = model.devices
        assert (cpu.name, cpu.kind, cpu.layers) == ("CPU", "cpu", model.n_layer)
        # Mapped pages of the file, and the buffers of tensors that were repacked from there.
        assert model.size <= cpu.model_bytes < 2.5 * model.size
        assert (cpu.cache_bytes, cpu.compute_bytes) == (0, 0)


def test_a_context_adds_its_cache_and_its_buffers(smollm2_path: Path) -> None:
    with Model(smollm2_path, devices="cpu") as model, Context(model, n_ctx=512) as context:
        (cpu,) = device_uses(model, context)
        head = model.n_embd // model.n_head
        assert cpu.cache_bytes == 512 * model.n_layer * model.n_head_kv * head * 2 * 2  # f16, keys and values
        assert cpu.compute_bytes > 0
        assert cpu.nbytes == cpu.model_bytes + cpu.cache_bytes + cpu.compute_bytes


def test_a_closed_model_has_no_place(smollm2_path: Path) -> None:
    model = Model(smollm2_path, vocab_only=True)
    model.close()
    with pytest.raises(causerie.ClosedError):
        device_uses(model)


@CPU_ONLY
def test_strict_refuses_what_would_silently_be_on_the_processor(smollm2_path: Path) -> None:
    for layers in (-1, 99, 2):
        with pytest.raises(UnsupportedError, match="causerie doctor"):
            Model(smollm2_path, n_gpu_layers=layers, strict=True)


@pytest.mark.parametrize("options", [{"devices": "cpu"}, {"devices": []}, {"devices": ["CPU"]}, {"n_gpu_layers": 0}])
def test_strict_has_nothing_against_the_processor_where_it_was_asked_for(
    smollm2_path: Path, options: dict[str, object]
) -> None:
    with Model(smollm2_path, strict=True, **options) as model:  # type: ignore[arg-type]
        assert model.devices[-1].layers == model.n_layer


def test_layers_that_are_missing_are_counted() -> None:
    require_on_devices([on("gpu", 30), on("cpu", 0)], -1)
    require_on_devices([on("gpu", 9), on("cpu", 21)], 10)  # the output layer is the tenth
    with pytest.raises(UnsupportedError, match=r"30 of 30 layers .* 20 are"):
        require_on_devices([on("gpu", 20), on("cpu", 10)], 99)
    with pytest.raises(UnsupportedError, match=r"10 of 30 layers .* 9 are"):
        require_on_devices([on("gpu", 9), on("cpu", 21)], 11)


def test_a_model_without_memory_knows_what_it_is(smollm2_path: Path) -> None:
    names = ("desc", "n_layer", "n_params", "size", "n_ctx_train", "n_vocab", "fingerprint", "architecture", "n_swa")
    with Model(smollm2_path) as whole, Model(smollm2_path, no_alloc=True, devices="cpu") as plan:
        assert [getattr(plan, name) for name in names] == [getattr(whole, name) for name in names]
        assert plan.chat_template() == whole.chat_template()
        assert plan.vocab.tokenize("The sea").tolist() == whole.vocab.tokenize("The sea").tolist()
        with pytest.raises(UnsupportedError, match="no_alloc"):
            Context(plan)


def test_one_name_needs_no_list(smollm2_path: Path) -> None:
    with pytest.raises(ValueError, match="no device named 'CUDA99'"):
        Model(smollm2_path, devices="CUDA99")


def test_names_of_servers_are_told_from_names_of_devices() -> None:
    assert rpc_endpoint("RPC[127.0.0.1:5]") == "127.0.0.1:5"
    assert rpc_endpoint("RPC0") is None
    assert [device.name for device in find_devices("CPU")] == ["CPU"]


@pytest.mark.parametrize("endpoint", ["", "host", "host:", ":5", "host:0", "host:65536", "a b:5", "h:5\0", "[::1]:5"])
def test_what_is_no_endpoint_is_a_value_error(endpoint: str, smollm2_path: Path) -> None:
    for call in (rpc_devices, lambda e: Model(smollm2_path, rpc=[e]), lambda e: find_devices(f"RPC[{e}]")):
        with pytest.raises(ValueError, match='named "host:port"'):
            call(endpoint)


@pytest.mark.skipif(RPC, reason="this build has the RPC backend")
def test_without_the_backend_servers_are_unsupported(smollm2_path: Path) -> None:
    for option in ({"rpc": ["127.0.0.1:1"]}, {"devices": ["RPC[127.0.0.1:1]"]}, {"rpc": "127.0.0.1:1"}):
        with pytest.raises(UnsupportedError, match="GGML_RPC=ON"):
            Model(smollm2_path, **option)  # type: ignore[arg-type]


@pytest.mark.skipif(not RPC, reason="this build has no RPC backend: pip install . -C cmake.define.GGML_RPC=ON")
def test_where_no_server_listens_there_are_no_devices(smollm2_path: Path) -> None:
    before = [device.name for device in devices()]
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"127\.0\.0\.1:1") as caught:
            Model(smollm2_path, rpc=["127.0.0.1:1"])
        assert caught.value.device == "RPC[127.0.0.1:1]"
    assert [device.name for device in devices()] == before
    with Model(smollm2_path, devices="cpu") as model:  # and nothing is left behind of the attempts
        assert model.devices[0].layers == model.n_layer
