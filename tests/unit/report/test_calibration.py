"""Display of measured roofs."""

from __future__ import annotations

import io

from kernelmate.measure.roofline import table_roofs
from kernelmate.records import Calibration, Roofs
from kernelmate.report.calibration import calibration_view, calibration_words
from kernelmate.report.console import make_console, show

ROOFS = Roofs("measured", 3000.0, 6500.0, 30000.0, {"fp32": 60.0, "tensor": 620.0})
MEASURED = Calibration("NVIDIA H100", "GPU-1", 132, "13.0", "2026-11-21T08:00:00+00:00", ROOFS, 1.1, 2.2, ("hot",))


def text(sheet: Roofs | None) -> str:
    stream = io.StringIO()
    show(make_console(stream, color=False, width=80), *calibration_view(MEASURED, sheet))
    return stream.getvalue()


def test_each_roof_stands_beside_the_data_sheets() -> None:
    from kernelmate.compiler import find_target

    rows = {line.split()[0]: line for line in text(table_roofs(find_target("H100 SXM"))).splitlines() if line.strip()}
    assert "3,352 GB/s" in rows["DRAM"]
    assert "3,000 GB/s" in rows["DRAM"]
    assert "89.5%" in rows["DRAM"]
    assert "mma.sync" in rows["tensor"]
    assert any("hot" in line for line in rows.values())


def test_a_gpu_that_the_table_does_not_have_is_shown_without() -> None:
    rows = text(None).splitlines()
    assert "3,000 GB/s" in next(line for line in rows if "DRAM" in line)


def test_one_line_for_the_doctor() -> None:
    assert (
        calibration_words(MEASURED)
        == "NVIDIA H100, 2026-11-21: DRAM 3,000 GB/s, fp32 60 TFLOPS, tensor cores 620 TFLOPS"
    )
