"""NVML's bits and processes in words, and what is said where there is no NVML."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from kernelmate.backends.cuda.sensors import Sensors, process_names, reasons_of


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, ()),
        (0x1 | 0x2 | 0x10 | 0x100, ()),
        (0x4, ("power cap",)),
        (0x20 | 0x40, ("software thermal slowdown", "hardware thermal slowdown")),
    ],
)
def test_only_what_holds_clocks_down_is_a_reason(bits: int, words: tuple[str, ...]) -> None:
    assert reasons_of(bits) == words


def test_processes_are_named_and_many_are_counted() -> None:
    mine = os.getpid()
    name = Path("/proc/self/comm").read_text().strip()
    assert process_names([mine]) == (f"{name} (pid {mine})",)
    assert process_names([2**22 + 1]) == (f"a process (pid {2**22 + 1})",)
    many = process_names(list(range(2**22 + 1, 2**22 + 8)))
    assert len(many) == 5
    assert many[-1] == "3 more"


def test_without_nvml_nothing_is_known_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sensors = Sensors("GPU-0")
    assert sensors.missing == "temperature and throttling unknown (install nvidia-ml-py)"
    assert (sensors.temperature_c(), sensors.throttle_reasons(), sensors.others()) == (None, (), ())


def test_a_driver_that_nvml_cannot_reach_is_told_apart_from_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("Driver Not Loaded")

    module = types.ModuleType("pynvml")
    module.nvmlInit = fails  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert Sensors("GPU-0").missing == "temperature and throttling unknown (NVML: Driver Not Loaded)"
