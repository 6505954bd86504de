"""Names of GPUs on the command line and in settings."""

from __future__ import annotations

import pytest

from kernelmate.config import load_settings
from kernelmate.errors import UsageError
from kernelmate.records import Device, parse_device


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("0", Device(None, 0)),
        ("3", Device(None, 3)),
        ("ssh:gpubox", Device("gpubox", 0)),
        ("ssh:me@gpu.example.org:2", Device("me@gpu.example.org", 2)),
    ],
)
def test_a_device_is_read_and_written_alike(text: str, device: Device) -> None:
    assert parse_device(text) == device
    assert parse_device(str(device)) == device


@pytest.mark.parametrize(
    "text", ["", "-1", "cuda:0", "ssh:", "ssh:-oProxyCommand=x", "ssh:a b", "ssh:host:x", "ssh:h:1:2"]
)
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither the number of a GPU nor ssh:HOST"):
        parse_device(text)
    with pytest.raises(UsageError, match="device = ") as caught:
        load_settings(device=text)
    assert "ssh:HOST:N" in str(caught.value.hint)


def test_a_device_may_stand_in_the_environment_and_be_a_bare_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMATE_DEVICE", "ssh:box:1")
    assert load_settings().place == Device("box", 1)
    assert load_settings(device="2").place == Device(None, 2)
    monkeypatch.delenv("KERNELMATE_DEVICE")
    assert load_settings().place == Device()
    assert load_settings(device=1).place == Device(None, 1)
