"""Display of roofs, measured or from data sheets, and of launches under them, as text and as a chart."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.measure.roofline import place, table_roofs
from kernelmate.records import Calibration, Counters, HardwareProfile, Roofline, Roofs, Timing, Work
from kernelmate.report.chart import BLUE, GREY, ChartVersion
from kernelmate.report.console import make_console, show
from kernelmate.report.figures import figures
from kernelmate.report.machine import calibration_view, calibration_words
from kernelmate.report.roofline import flop_words, roofline_view, roofline_words
from kernelmate.report.roofline_chart import roofline_figure, share_figure
from tests.plotly_schema import taken

ROOFS = Roofs("table", 1000.0, 4000.0, 16000.0, {"fp32": 50.0, "fp64": 25.0})


def placed(kind: Any = "predicted", flops: float = 4e9, roofs: Roofs = ROOFS) -> Roofline:
    work = Work({"fp32": flops} if flops else {}, dram_bytes=50e6, l1_bytes=400e6, l2_bytes=80e6, limiter="dram")
    timing = Timing(kind, 100.0, (90.0, 110.0), 125.0, None, None, None, None)
    return place(work, roofs, timing, 50 << 20)


def text(line: Roofline, width: int) -> str:
    stream = io.StringIO()
    show(make_console(stream, color=False, width=width), roofline_view(line))
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_each_roof_has_one_line_even_in_a_narrow_terminal(width) -> None:
    lines = text(placed(), width).splitlines()
    assert [line.split()[0].rstrip(",") for line in lines[2:6]] == ["DRAM", "L2", "L1", "fp32"]
    assert "80 FLOP" not in lines[2]
    assert "ridge 50" in lines[5]
    assert all(len(line) <= width for line in lines)


def test_predicted_shares_are_marked_and_drawn_otherwise_than_measured_ones() -> None:
    predicted, measured = text(placed("predicted"), 100), text(placed("measured"), 100)
    assert "~40% cold" in predicted
    assert "[---....." in predicted
    assert "~" not in measured
    assert "40% cold" in measured
    assert "[###....." in measured


def test_bytes_that_hardware_counted_stand_beside_those_that_must_be_moved() -> None:
    counters = Counters("hardware", *[None] * 12)
    profile = HardwareProfile("ncu 2025.3", counters, 14.2, 60_000_000, 15_000_000, 0.5, 0.6, 0.7, 0.8, 0.9)
    stream = io.StringIO()
    show(make_console(stream, color=False, width=80), roofline_view(placed("measured"), profile))
    lines = stream.getvalue().splitlines()
    assert lines[2].startswith("DRAM ")
    assert "40% cold" in lines[2]
    assert lines[3].startswith("DRAM, by ncu")
    assert "60% cold" in lines[3]
    assert "53.3" in lines[3]


def test_it_says_what_the_time_goes_by_and_whose_roofs_they_are() -> None:
    measured = Roofs("measured", 900.0, 3800.0, 15000.0, {"fp32": 48.0})
    assert "bound by memory (dram), as predicted; roofs by the data sheet" in roofline_words(placed())
    assert "roofs as measured by `kernelmate calibrate`" in roofline_words(placed(roofs=measured))
    assert "no floating-point operations" in roofline_words(placed(flops=0))


@pytest.mark.parametrize(("flops", "said"), [(0, "0 FLOP"), (2e3, "2 kFLOP"), (33.6e6, "33.6 MFLOP"), (7.1e12, "7.1 TFLOP")])  # fmt: skip
def test_operations_in_a_unit_that_fits(flops, said) -> None:
    assert flop_words(flops) == said


def shown(make: SimpleNamespace, *lines: Roofline) -> list[ChartVersion]:
    names = ["baseline", *(f"{index} x" for index in range(1, len(lines)))]
    return [ChartVersion(name, make.verdict(roofline=line)) for name, line in zip(names, lines, strict=True)]


def test_points_lie_at_intensity_and_rate_below_the_roofs(make) -> None:
    figure = taken(roofline_figure(shown(make, placed("measured"))))
    point = next(trace for trace in figure.data if trace.name == "baseline")
    assert list(point.x) == pytest.approx([80, 50, 10])
    assert list(point.y) == pytest.approx([32, 40, 40])
    for x, y, gbps in zip(point.x, point.y, (1000, 4000, 16000), strict=True):
        assert y <= min(50, x * gbps / 1e3) + 1e-9
    low, high = (10**end for end in figure.layout.xaxis.range)
    assert low < min(point.x) < max(point.x) < high


def test_predicted_points_are_hollow_and_measured_ones_solid(make) -> None:
    figure = taken(roofline_figure(shown(make, placed("measured"), placed("predicted"))))
    solid, hollow = (next(trace for trace in figure.data if trace.name == name) for name in ("baseline", "1 x"))
    assert all(not symbol.endswith("-open") for symbol in solid.marker.symbol)
    assert all(symbol.endswith("-open") for symbol in hollow.marker.symbol)
    assert all("measured" in words and "predicted" not in words for words in solid.customdata)
    assert all("predicted, not measured" in words for words in hollow.customdata)
    assert any(trace.name.startswith("hollow: predicted, not measured") for trace in figure.data if trace.name)
    only = taken(roofline_figure(shown(make, placed("measured"))))
    assert not any((trace.name or "").startswith("hollow") for trace in only.data)


def test_candidates_have_the_first_colours_with_and_without_a_baseline(make) -> None:
    alone = taken(roofline_figure([ChartVersion("row_sum", make.verdict(roofline=placed()))]))
    beside = taken(roofline_figure(shown(make, placed(), placed())))
    colors = [
        next(trace.marker.color for trace in figure.data if trace.name == name)
        for figure, name in ((alone, "row_sum"), (beside, "baseline"), (beside, "1 x"))
    ]
    assert colors == [BLUE, GREY, BLUE]


def test_roofs_are_drawn_as_far_as_they_bind(make) -> None:
    figure = taken(roofline_figure(shown(make, placed())))
    dram = next(trace for trace in figure.data if "DRAM: 1,000 GB/s" in (trace.hovertemplate or ""))
    assert dram.y[-1] == pytest.approx(50)
    assert dram.x[-1] == pytest.approx(50)
    assert all(math.isclose(y / x, 1.0) for x, y in zip(dram.x, dram.y, strict=True))


def test_kernels_without_such_operations_have_a_share_but_no_point(make) -> None:
    copies = shown(make, placed(flops=0))
    assert roofline_figure(copies) is None
    shares = taken(share_figure(copies))
    assert list(shares.data[0].x) == pytest.approx([40])
    assert shares.data[0].marker.pattern.shape == "/"


def test_versions_that_were_not_counted_are_left_out(make) -> None:
    assert "Roofline" not in figures([ChartVersion("baseline", make.verdict())])
    assert "Roofline" in figures(shown(make, placed()))


def test_names_of_roofs_are_beside_their_lines_and_their_figures_in_the_legend(make) -> None:
    figure = taken(roofline_figure(shown(make, placed())))
    named = [trace.name for trace in figure.data if trace.mode == "lines"]
    assert named == ["DRAM: 1,000 GB/s", "L2: 4,000 GB/s", "L1: 16,000 GB/s", "fp32: 50 TFLOP/s"]
    rate = {"DRAM": 1.0, "L2": 4.0, "L1": 16.0}
    for note in figure.layout.annotations:
        if note.text in rate:
            x, y = 10**note.x, 10**note.y
            assert (y < rate[note.text] * x) == (note.text == "DRAM"), (
                "the lowest below its line, the others above theirs"
            )


CALIBRATION_ROOFS = Roofs("measured", 3000.0, 6500.0, 30000.0, {"fp32": 60.0, "tensor": 620.0})
MEASURED = Calibration(
    "NVIDIA H100", "GPU-1", 132, "13.0", "2026-11-21T08:00:00+00:00", CALIBRATION_ROOFS, 1.1, 2.2, ("hot",)
)


def calibration_text(sheet: Roofs | None) -> str:
    stream = io.StringIO()
    show(make_console(stream, color=False, width=80), *calibration_view(MEASURED, sheet))
    return stream.getvalue()


def test_each_roof_stands_beside_the_data_sheets() -> None:
    from kernelmate.compiler import find_target

    rows = {
        line.split()[0]: line
        for line in calibration_text(table_roofs(find_target("H100 SXM"))).splitlines()
        if line.strip()
    }
    assert "3,352 GB/s" in rows["DRAM"]
    assert "3,000 GB/s" in rows["DRAM"]
    assert "89.5%" in rows["DRAM"]
    assert "mma.sync" in rows["tensor"]
    assert any("hot" in line for line in rows.values())


def test_a_gpu_that_the_table_does_not_have_is_shown_without() -> None:
    rows = calibration_text(None).splitlines()
    assert "3,000 GB/s" in next(line for line in rows if "DRAM" in line)


def test_one_line_for_the_doctor() -> None:
    assert (
        calibration_words(MEASURED)
        == "NVIDIA H100, 2026-11-21: DRAM 3,000 GB/s, fp32 60 TFLOPS, tensor cores 620 TFLOPS"
    )
