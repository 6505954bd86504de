"""Roofs measured on a GPU: below the figures of its data sheet, close to them, and reproducible."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.cli.main import cli
from kernelmate.compiler import find_target
from kernelmate.errors import UsageError
from kernelmate.measure.roofline import table_roofs
from kernelmate.records import Roofs

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two runs of the command, as documents."""
    from kernelmate.backends.cuda.probes import calibrate
    from kernelmate.report.json import calibration_json, dumps

    return [json.loads(dumps(calibration_json(calibrate())))["calibration"] for _ in range(2)]


@pytest.fixture(scope="module")
def sheet(measured) -> Roofs:
    try:
        return table_roofs(find_target(measured[0]["gpu"]))
    except UsageError:
        pytest.skip(f"{measured[0]['gpu']} is not in the table")


def test_no_roof_is_above_the_data_sheets(measured, sheet) -> None:
    for one in measured:
        roofs = one["roofs"]
        assert roofs["dram_gbps"] <= 1.01 * sheet.dram_gbps
        for name, peak in sheet.tflops.items():
            assert roofs["tflops"][name] <= 1.03 * peak, name


def test_every_roof_is_near_enough_to_be_one(measured, sheet) -> None:
    roofs = measured[0]["roofs"]
    assert roofs["dram_gbps"] > 0.8 * sheet.dram_gbps
    for name, least in (("fp32", 0.85), ("fp64", 0.85), ("fp16", 0.8), ("tensor", 0.45)):
        assert roofs["tflops"][name] > least * sheet.tflops[name], name
    assert roofs["dram_gbps"] < roofs["l2_gbps"] < roofs["l1_gbps"]
    assert 0.2 < measured[0]["replay_us"] < 10
    assert 0.5 < measured[0]["submit_us"] < 50


def test_measuring_again_gives_the_same_within_some_percent(measured) -> None:
    once, again = (one["roofs"] for one in measured)
    for key in ("dram_gbps", "l2_gbps", "l1_gbps"):
        assert again[key] == pytest.approx(once[key], rel=0.05), key
    for name, rate in once["tflops"].items():
        assert again["tflops"][name] == pytest.approx(rate, rel=0.05), name


def test_the_command_keeps_it_and_shows_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KERNELMATE_CALIBRATION_FILE", str(tmp_path / "calibration.json"))
    result = CliRunner().invoke(cli, ["calibrate"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "DRAM" in result.stdout
    print(result.stdout)
    assert json.loads((tmp_path / "calibration.json").read_text())["gpus"]
