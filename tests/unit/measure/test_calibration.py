"""Measured roofs are stored, loaded, and used only for the GPU that was measured."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.compiler.targets import find_target
from kernelmate.measure.calibration import calibration_of, load, roofs_of, save
from kernelmate.measure.roofline import table_roofs
from kernelmate.records import Calibration, Roofs

ROOFS = Roofs("measured", 3000.0, 6500.0, 30000.0, {"fp32": 60.0, "fp64": 30.0, "fp16": 110.0, "tensor": 620.0})
H100 = Calibration("NVIDIA H100 80GB HBM3", "GPU-1", 132, "13.0", "2026-11-21T08:00:00+00:00", ROOFS, 1.1, 2.2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "calibration.json"


def test_what_is_kept_is_found_again(file) -> None:
    assert load(file) == ()
    assert save(H100, file) == file
    assert load(file) == (H100,)


def test_measuring_again_replaces_and_other_gpus_stay(file) -> None:
    later = replace(H100, measured_at="2026-11-22T08:00:00+00:00", replay_us=1.2)
    other = replace(H100, gpu="NVIDIA GeForce RTX 4090", uuid="GPU-2", sms=128)
    for one in (H100, other, later):
        save(one, file)
    assert load(file) == (later, other)


def test_roofs_are_the_measured_ones_for_such_a_gpu_alone(file) -> None:
    save(H100, file)
    assert roofs_of(find_target("H100 SXM"), file) == ROOFS
    for name in ("H100 PCIe", "RTX 4090"):
        assert roofs_of(find_target(name), file) == table_roofs(find_target(name))


def test_a_slice_of_a_gpu_is_not_the_gpu(file) -> None:
    save(replace(H100, sms=16), file)
    assert calibration_of(find_target("H100 SXM"), file) is None


def test_the_newest_of_several_such_gpus_counts(file) -> None:
    newer = replace(H100, uuid="GPU-2", measured_at="2026-11-23T00:00:00+00:00", roofs=replace(ROOFS, dram_gbps=2900.0))
    for one in (newer, H100):
        save(one, file)
    assert roofs_of(find_target("H100 SXM"), file).dram_gbps == 2900.0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 9, "gpus": {}}', '{"format": 1, "gpus": {"GPU-1": {"gpu": 3}}}']
)
def test_a_damaged_file_is_as_if_nothing_had_been_measured(file, text) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert load(file) == ()
    save(H100, file)
    assert load(file) == (H100,)


def test_nothing_is_left_behind_where_it_cannot_be_written(file, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save(H100, file)
    assert list(file.parent.iterdir()) == []
