"""`kernelmate calibrate`: measures the peak rates of this machine's GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, device_option, output_of, output_options, settings_of
from kernelmate.errors import BackendUnavailable, EnvironmentFailed, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmate.records import Calibration, Roofs


@click.command(
    epilog="""\b
Examples:
  kernelmate calibrate
  kernelmate calibrate --device 1
  kernelmate calibrate --json

\b
Takes a few seconds. Rooflines of that kind of GPU are drawn with what was measured from then on, those of
other GPUs with their data sheet. `kernelmate doctor` shows what is known."""
)
@device_option
@output_options(quiet=False)
def calibrate(**options: Any) -> int:
    """Measure and store the peak rates of this machine's GPU: bandwidths of DRAM, L2 and L1, rates of fp32, fp64, fp16
    and tensor cores (by mma.sync), and the cost of a launch.
    """  # noqa: D205 -- one sentence, which the help shows whole
    output = output_of(options)
    settings = settings_of(options)
    place = settings.place
    if place.host is not None:
        raise UsageError(
            "calibrate measures the GPUs of this machine.", hint=f"Run it there: ssh {place.host} kernelmate calibrate"
        )
    from kernelmate.backends.cuda.probes import calibrate as measure
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.measure.calibration import save

    try:
        with TerminalProgress(output.stderr()) as progress:
            measured = measure(place.index, progress.stage)
    except BackendUnavailable as error:
        error.hint = (error.hint or "").partition(" Or use --backend")[0] + " Without one, roofs are the data sheet's."
        raise
    try:
        path = save(measured, settings.calibration_file)
    except OSError as error:
        raise EnvironmentFailed(
            f"The measurements cannot be saved: {error.strerror or error}.",
            hint="Set KERNELMATE_CALIBRATION_FILE to a file that can be written.",
        ) from error
    _show(measured, path, output)
    return 0


def _show(measured: Calibration, path: Path, output: Output) -> None:
    if output.as_json:
        from kernelmate.report.json import calibration_json

        output.document(calibration_json(measured))
        return
    from kernelmate.report.console import show
    from kernelmate.report.machine import calibration_view

    show(output.stdout(), *calibration_view(measured, _sheet(measured)), "", f"kept in {path}")


def _sheet(measured: Calibration) -> Roofs | None:
    """Returns the data-sheet figures of this GPU model; None for a GPU that is not in the table."""
    from kernelmate.compiler import find_target
    from kernelmate.measure.roofline import table_roofs

    try:
        return table_roofs(find_target(measured.gpu))
    except UsageError:
        return None
