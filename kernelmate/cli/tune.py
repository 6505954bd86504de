"""`kernelmate tune`: finds the fastest version at each size, and the sizes at which the choice changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    Output,
    compile_options,
    judging_options,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.errors import KernelmateError, UsageError

if TYPE_CHECKING:
    from kernelmate.config import Settings
    from kernelmate.records import Kernel, Tuned


@click.command(
    epilog="""\b
Examples:
  kernelmate tune softmax.cu
  kernelmate tune softmax.cu --size "rows=8,cols=65536" --size "rows=65536,cols=64"
  kernelmate tune softmax.cu --budget 120 --html tuned.html
  kernelmate tune softmax.cu --dispatch softmax_dispatch.cuh"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.option("--html", "page", metavar="OUT", help="Write a page with the chart, the table and every version.")
@click.option("--dispatch", metavar="OUT", help="Write a CUDA file with the chosen versions and a host function that launches the right one.")  # fmt: skip
@click.option("--budget", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="End all searches within this time.")  # fmt: skip
@click.option("--max-candidates", type=click.IntRange(1), default=16, show_default=True, help="Judge at most this many candidates for each size.")  # fmt: skip
@judging_options
@compile_options
@output_options()
def tune(file: str, page: str | None, dispatch: str | None, budget: float | None, max_candidates: int, sizes: tuple[Mapping[str, int], ...], reference: str | None, **options: Any) -> int:  # fmt: skip
    """Search for faster versions at every listed size in turn, and time all right ones at all of them.

    The table marks the version to launch at each size. As few versions are chosen as keep every size within 3 %
    of its fastest time. Without a GPU times are predicted.
    """
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.session.tuning import tune as tuned_by
    from kernelmate.source import load_single_kernel

    output, settings = output_of(options), settings_of(options)
    check_outputs(page, dispatch)
    kernel = load_single_kernel(file, "tune")
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        tuned = tuned_by(
            session, kernel, sizes, budget_s=budget, max_candidates=max_candidates, reference=reference,
            on_judged=progress.judged, on_trying=progress.trying,
        )  # fmt: skip
    print_notices(session)
    show_tuned(tuned, kernel, output)
    by = f"kernelmate tune {Path(kernel.unit.path).name}"
    return 0 if write_outputs(tuned, kernel, settings, output, page, dispatch, by) else 1


def check_outputs(page: str | None, dispatch: str | None) -> None:
    """Check that the outputs can be written, before the search starts.

    Raises:
        UsageError: a path cannot be written.
        EnvironmentFailed: plotly is missing.
    """
    from kernelmate.cli.search import check_page

    check_page(page)
    if dispatch is None:
        return
    path = Path(dispatch)
    if path.exists() or not path.parent.is_dir():
        what = "is there already" if path.exists() else f"cannot be written: there is no folder {path.parent}"
        raise UsageError(f"--dispatch {dispatch} {what}.", hint="Give the path of a new file in a folder that exists.")


def show_tuned(tuned: Tuned, kernel: Kernel, output: Output) -> None:
    """Print the table in the requested form."""
    if output.as_json:
        from kernelmate.report.json import tuned_json

        output.document(tuned_json(tuned))
        return
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.tuning import rule_words, tuned_view

    if output.quiet:
        from rich.text import Text

        show_lines(output.stdout(), Text(f"{kernel.name}: {rule_words(tuned)}"))
    else:
        show(output.stdout(), *tuned_view(tuned))


def write_outputs(
    tuned: Tuned, kernel: Kernel, settings: Settings, output: Output, page: str | None, dispatch: str | None, by: str
) -> bool:
    """Write the requested page and dispatch; returns False, after a remark, if there is no dispatch to write.

    Raises:
        UsageError: a file cannot be written.
    """
    from kernelmate.cli.search import remark

    if page is not None:
        from kernelmate.report.tuning import tuned_page

        _save(Path(page), tuned_page(tuned, kernel))
        remark(f"page written to {page}", output)
    if dispatch is not None:
        from kernelmate.session.tuning import dispatch_file

        heading = f"{kernel.name}: the version to launch at each size, times {tuned.kind} for {tuned.target}, {date.today():%Y-%m-%d} ({by})."
        try:
            text = dispatch_file(tuned, kernel, settings, heading)
        except KernelmateError as error:
            remark(f"no dispatch was written: {error.message} {error.hint or ''}".strip(), output)
            return False
        _save(Path(dispatch), text)
        remark(f"dispatch written to {dispatch}", output)
    return True


def _save(path: Path, text: str) -> None:
    from kernelmate.report.page import save

    try:
        save(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", hint="Give another path.") from error
