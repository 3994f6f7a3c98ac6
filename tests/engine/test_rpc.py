"""Layers on RPC servers: where they are, the same answers, and a server that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from rpc_servers import Server, free_port, needs_rpc

from causerie import DeviceError, Engine, HelperDiedError, UnsupportedError
from causerie.llama import Model, find_devices, fit, placement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_rpc
EXACT: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "flash_attn": "enabled", "n_ubatch": 32}
GREEDY = {"temperature": 0, "max_tokens": 16}
QUESTION = "Name three colours of the sea."


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with Server() as first, Server() as second:
        yield first, second


@pytest.fixture
def rpc(pair: tuple[Server, Server]) -> list[str]:
    return [server.endpoint for server in pair]


def answers(engine: Engine) -> list[Any]:
    """A conversation of all kinds of steps."""
    chat = engine.conversation("Be brief.")
    told: list[Any] = [chat.send(QUESTION, **GREEDY).text]
    told.append("".join(chunk.text for chunk in chat.stream("And the sky?", **GREEDY)))
    branch = chat.fork()
    told += [chat.regenerate(**GREEDY).text, branch.send("Why?", **GREEDY).text]
    chat.rewind()
    told.append(chat.send("A number?", grammar="root ::= [0-9]+", **GREEDY).text)
    return [*told, chat.messages, branch.messages]


@pytest.fixture(scope="module")
def expected(smollm2_path: Path) -> list[Any]:
    # A server does not repack weights: other kernels, whose sums are rounded in another way.
    with Engine(smollm2_path, devices="cpu", use_extra_bufts=False, **EXACT) as engine:
        return answers(engine)


def test_layers_are_divided_among_two_servers(smollm2_path: Path, rpc: list[str]) -> None:
    with Model(smollm2_path, rpc=rpc, strict=True) as model:
        first, second, cpu = model.devices
        assert [use.description for use in (first, second)] == rpc
        assert first.layers + second.layers == model.n_layer
        assert min(first.layers, second.layers) >= model.n_layer // 3
        assert cpu.layers == 0
        assert min(first.model_bytes, second.model_bytes) > 10 << 20


def test_layers_may_stay_here(smollm2_path: Path, rpc: list[str]) -> None:
    with Model(smollm2_path, devices=[f"RPC[{rpc[0]}]"], n_gpu_layers=11, strict=True) as model:
        remote, cpu = model.devices
        assert (remote.layers, cpu.layers) == (10, 20)
    with Model(smollm2_path, rpc=rpc, tensor_split=[3, 1]) as model:
        assert model.devices[0].layers > 2 * model.devices[1].layers


def test_servers_are_used_where_they_were_named_and_nowhere_else(smollm2_path: Path, rpc: list[str]) -> None:
    (device,) = find_devices(f"RPC[{rpc[0]}]")
    assert (device.backend, device.kind, device.description) == ("RPC", "gpu", rpc[0])
    assert device.memory_total > 0
    with Model(smollm2_path, devices="cpu") as model:
        assert [use.name for use in model.devices] == ["CPU"]


@pytest.mark.parametrize("isolate", [False, True])
def test_the_same_conversation(smollm2_path: Path, rpc: list[str], expected: list[Any], isolate: bool) -> None:
    with Engine(smollm2_path, rpc=rpc, isolate=isolate, **EXACT) as engine:
        assert answers(engine) == expected
        first, second, cpu = engine.stats().devices
        assert min(first.layers, second.layers) > 0
        assert min(first.cache_bytes, second.cache_bytes) > 0
        assert (cpu.layers, cpu.cache_bytes) == (0, 0)


def test_engines_on_different_devices_work_at_the_same_time(
    smollm2_path: Path, rpc: list[str], expected: list[Any]
) -> None:
    with (
        Engine(smollm2_path, devices="cpu", use_extra_bufts=False, **EXACT) as here,
        Engine(smollm2_path, rpc=rpc[:1], **EXACT) as there,
        ThreadPoolExecutor(2) as pool,
    ):
        assert list(pool.map(answers, (here, there))) == [expected, expected]


def test_what_fits_is_found_by_llama_cpp(smollm2_path: Path, rpc: list[str]) -> None:
    only = {"devices": [f"RPC[{rpc[0]}]"]}
    whole = fit(smollm2_path, model=only, n_ctx=512, margin=0)
    assert (whole.fits, whole.devices[0].layers, whole.devices[-1].layers) == (True, 30, 0)
    (device,) = find_devices(f"RPC[{rpc[0]}]")
    room = whole.devices[0].nbytes - whole.devices[0].model_bytes // 2
    half = fit(smollm2_path, model=only, n_ctx=512, margin=device.memory_free - room)
    assert half.fits
    assert 0 < half.devices[0].layers < 30
    assert half.devices[0].layers + half.devices[-1].layers == 30
    assert half.devices[0].nbytes < whole.devices[0].nbytes
    with Model(smollm2_path, **only, **half.model_options) as model:
        assert [use.layers for use in model.devices] == [use.layers for use in half.devices]


def test_an_engine_may_find_out_what_fits(smollm2_path: Path, rpc: list[str]) -> None:
    (device,) = find_devices(f"RPC[{rpc[0]}]")
    for margin, on_device in ((0, 30), (device.memory_free, 0)):
        options = {"devices": [f"RPC[{rpc[0]}]"], "n_gpu_layers": "auto", "fit_margin": margin}
        with Engine(smollm2_path, **options, **EXACT) as engine:
            assert engine.stats().devices[0].layers == on_device
            assert engine.conversation().send(QUESTION, **GREEDY).text


def test_a_server_that_dies_ends_replies_and_nothing_else(smollm2_path: Path, expected: list[Any]) -> None:
    with Server() as first, Server() as second:
        endpoints = [first.endpoint, second.endpoint]
        with Engine(smollm2_path, rpc=endpoints, isolate=True, **EXACT) as engine:
            chat, other = engine.conversation("Be brief."), engine.conversation("Be brief.")
            said = other.send(QUESTION, **GREEDY).text
            assert said == expected[0]
            stream = chat.stream("Tell a long story.", temperature=0, max_tokens=300)
            next(stream)
            os.kill(second.process.pid, signal.SIGKILL)
            with pytest.raises(HelperDiedError, match="SIGABRT") as caught:
                list(stream)
            assert "RPC" in caught.value.log
            assert [message.role for message in chat.messages] == ["system", "user"]
            with pytest.raises(DeviceError):  # the server is still away
                chat.respond(**GREEDY)
            second.process.wait()
            with Server(second.port):
                assert chat.respond(**GREEDY).text
                assert other.send("And the sky?", **GREEDY).text == expected[1]
                chat.rewind()
                assert chat.send(QUESTION, **GREEDY).text == expected[0]
                assert engine.stats().devices[1].layers > 0


def test_a_device_that_does_not_start_is_left_out_or_refused(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Server() as server:
        (device,) = find_devices(f"RPC[{server.endpoint}]")
    monkeypatch.setattr(placement, "default_devices", lambda: [device])  # a device of this machine that has a fault
    with Model(smollm2_path) as model:
        assert [use.name for use in model.devices] == ["CPU"]
    assert f"{device.name} ({server.endpoint}) is left out" in caplog.text
    with pytest.raises(DeviceError, match="cannot be used") as caught:
        Model(smollm2_path, strict=True)
    assert caught.value.device == device.name
    with Model(smollm2_path, devices="cpu", strict=True) as model:
        assert model.devices[0].layers == model.n_layer


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3"])
def test_other_machines_are_let_in_only_where_it_was_asked_for(host: str) -> None:
    command = [sys.executable, "-m", "causerie.cli", "rpc-server", "--port", str(free_port()), "--host", host]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "--allow-network" in refused.stderr
    server = subprocess.Popen([*command, "--allow-network"], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        told = server.stderr.readline()
        assert "WARNING" in told
        assert "no authentication" in told
    finally:
        server.kill()
        server.wait()
        server.stderr.close()  # type: ignore[union-attr]


def test_a_port_that_is_taken_is_one_line(rpc: list[str]) -> None:
    port = rpc[0].rpartition(":")[2]
    command = [sys.executable, "-m", "causerie.cli", "rpc-server", "--port", port]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "causerie: error: cannot serve at" in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_ends_the_server() -> None:
    with Server() as server:
        time.sleep(0.1)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) in {-signal.SIGINT, 128 + signal.SIGINT}


def test_strict_counts_layers(smollm2_path: Path, rpc: list[str]) -> None:
    with pytest.raises(UnsupportedError, match="strict"):
        Model(
            smollm2_path,
            devices=[f"RPC[{rpc[0]}]"],
            tensor_buft_overrides={r"blk\.1[0-9]\.": "CPU"},
            strict=True,
        )
