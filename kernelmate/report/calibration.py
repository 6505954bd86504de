"""Terminal view of `calibrate`: measured peak rates beside those of the data sheet."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from kernelmate.records import Calibration, Roofs
from kernelmate.report.console import heading, indented, lines, table
from kernelmate.report.roofline import PRECISION_WORDS
from kernelmate.report.words import number, percent, time_words


def calibration_view(measured: Calibration, sheet: Roofs | None) -> list[RenderableType]:
    """Show every peak rate as stated by the data sheet and as measured.

    Args:
        measured: rates measured on the GPU.
        sheet: rates of the target table; None for a GPU that is not in it.
    """
    made = table("roof", "stated", "measured", "reached", right=(1, 2, 3))
    for name, stated, found, unit in _rows(measured.roofs, sheet):
        share = percent(found / stated) if stated else "-"
        made.add_row(name, f"{number(stated)} {unit}" if stated else "-", f"{number(found)} {unit}", share)
    made.add_row("empty launch, in a graph", "", time_words(measured.replay_us), "")
    made.add_row("empty launch, on a stream", "", time_words(measured.submit_us), "")
    stamp = f"{measured.uuid}, driver for CUDA {measured.driver}, {measured.measured_at}"
    parts: list[RenderableType] = [heading(measured.gpu), indented(stamp), "", indented(made)]
    if measured.notes:
        parts += ["", indented(lines(measured.notes))]
    return parts


def calibration_words(measured: Calibration) -> str:
    """Returns a GPU's measurement as a line: `NVIDIA H100 80GB HBM3, 2026-11-21: DRAM 2,950 GB/s, fp32 59.1 TFLOPS`."""
    roofs = measured.roofs
    rates = ", ".join(f"{PRECISION_WORDS.get(name, name)} {value:.3g} TFLOPS" for name, value in roofs.tflops.items())
    return f"{measured.gpu}, {measured.measured_at[:10]}: DRAM {number(roofs.dram_gbps)} GB/s, {rates}"


def _rows(roofs: Roofs, sheet: Roofs | None) -> Iterator[tuple[str, float | None, float, str]]:
    for name, key in (("DRAM", "dram_gbps"), ("L2", "l2_gbps"), ("L1", "l1_gbps")):
        # No document states L2's bandwidth; the table's figure is the model's own.
        yield name, None if sheet is None or name == "L2" else getattr(sheet, key), getattr(roofs, key), "GB/s"
    for name, found in roofs.tflops.items():
        stated = None if sheet is None else sheet.tflops.get(name)
        shown = PRECISION_WORDS.get(name, name) + (", by mma.sync" if name == "tensor" else "")
        yield shown, stated, found, "TFLOPS"
