"""Devices and buffer types by name."""

from __future__ import annotations

import dataclasses

import pytest

from causerie.llama import buffer_types, devices
from causerie.llama.device import buffer_type, find_device


def test_the_processor_is_always_there() -> None:
    found = [device for device in devices() if device.kind == "cpu"]
    assert [device.name for device in found] == ["CPU"]
    assert found[0].backend == "CPU"
    assert found[0].description
    assert 0 < found[0].memory_free <= found[0].memory_total


def test_names_are_unique_and_find_their_device() -> None:
    names = [device.name for device in devices()]
    assert len(set(names)) == len(names)
    for device in devices():
        assert find_device(device.name).name == device.name


def test_a_device_is_plain_data() -> None:
    device = devices()[0]
    assert dataclasses.replace(device, memory_free=0).name == device.name
    assert "_pointer" not in repr(device)
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["", "CUDA99", "CP\0U", "C" * 10_000, "🦙"])
def test_an_unknown_device_is_a_value_error_that_lists_the_known(name: str) -> None:
    with pytest.raises(ValueError, match=r"found: .*CPU"):
        find_device(name)


def test_buffer_types_go_by_name() -> None:
    known = buffer_types()
    assert "CPU" in known
    assert buffer_type("CPU") == known["CPU"]
    with pytest.raises(ValueError, match=r"found: .*CPU"):
        buffer_type("Nowhere")
