"""`kernelmate bench`: judges one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    Output,
    SweepRange,
    against_option,
    compile_options,
    judging_options,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.stopping import exit_code
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kernelmate.config import Settings
    from kernelmate.records import Verdict
    from kernelmate.report.excerpt import SourceLines


@click.command(
    epilog="""\b
Examples:
  kernelmate bench softmax.cu
  kernelmate bench softmax.cu::softmax_rows --size "rows=37,cols=853" --size "rows=1,cols=1"
  kernelmate bench softmax.cu --lines
  kernelmate bench softmax.cu --sanitize --profile
  kernelmate bench softmax.cu --against torch --against compile
  kernelmate bench softmax.cu --nvcc               what nvcc builds, after a change was accepted
  kernelmate bench softmax.cu --sweep rows=1..65536 --with faster.cu --html sweep.html
  kernelmate bench softmax.cu --reference reference.py:softmax --seed 7 --json"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.option(
    "--lines",
    is_flag=True,
    help="Also show the counters of each source line, the most expensive first, and the most frequent SASS instructions.",
)
@click.option(
    "--nvcc",
    is_flag=True,
    help="Judge the code that nvcc builds from the whole file, as your program runs it, in place of NVRTC's.",
)
@click.option(
    "--sweep",
    type=SweepRange(),
    help="Time it at every power of two from A to B of one size; the other sizes are those of the first --size, or of the headline.",
)
@click.option("--with", "others", type=KernelSpec(), multiple=True, metavar="FILE[::KERNEL]", help="Another version of the kernel, beside it in a sweep; repeatable.")  # fmt: skip
@click.option("--html", "page", metavar="OUT", help="Write a page with the chart of a sweep.")
@click.option("--dispatch", metavar="OUT", help="Write a CUDA file with the versions of a sweep and a host function that launches the right one.")  # fmt: skip
@against_option
@judging_options
@compile_options
@output_options()
def bench(
    file: str, lines: bool, nvcc: bool, sweep: tuple[str, int, int] | None, sizes: tuple[Mapping[str, int], ...],
    reference: str | None, **options: Any,
) -> int:  # fmt: skip
    """Judge one kernel by its contract: correctness at every size, guards, resources, counters and time.

    Without a GPU it runs in the emulator: counts are exact, and times are marked as predicted.
    """
    output, asked = output_of(options), {name: options.pop(name) for name in ("others", "page", "dispatch")}
    settings = settings_of(options)
    if sweep is not None:
        if settings.against:
            raise UsageError("A sweep times versions of the kernel alone.", hint="Leave out --against or --sweep.")
        return _sweep(file, sweep, sizes, reference, settings, output, **asked)
    if any(asked.values()):
        raise UsageError("--with, --html and --dispatch belong to a sweep.", hint="Add --sweep NAME=A..B.")
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.source import load_kernel

    kernel = load_kernel(file)
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage, nvcc=nvcc) as session,
    ):
        verdicts = session.bench(kernel, sizes, reference)
        given = session.given(kernel, sizes, reference) if output.as_json else None
    print_notices(session)
    if output.as_json:
        from kernelmate.report.json import verdicts_json

        output.document(verdicts_json(verdicts, given))
    else:
        from kernelmate.report.console import show, show_lines
        from kernelmate.report.excerpt import SourceLines
        from kernelmate.report.tables import verdict_line, verdict_view

        sources, console = SourceLines(), output.stdout()
        if output.quiet:
            show_lines(console, *map(verdict_line, verdicts))
        else:
            for index, verdict in enumerate(verdicts):
                show(console, *([""] if index else []), verdict_view(verdict, sources))
                if lines:
                    show(console, "", _lines_view(verdict, kernel.unit.path, sources))
    return exit_code(verdicts)


def _sweep(
    file: str, along: tuple[str, int, int], sizes: tuple[Mapping[str, int], ...], reference: str | None,
    settings: Settings, output: Output, *, others: tuple[str, ...], page: str | None, dispatch: str | None,
) -> int:  # fmt: skip
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.cli.tune import check_outputs, show_tuned, write_outputs
    from kernelmate.session import Session
    from kernelmate.session.tuning import sweep, sweep_sizes
    from kernelmate.source import contract_for, load_kernel

    check_outputs(page, dispatch)
    kernel, versions = load_kernel(file), [load_kernel(other) for other in others]
    base = {**contract_for(kernel).sizes[0], **(sizes[0] if sizes else {})}
    points = sweep_sizes(base, *along)
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        tuned = sweep(session, kernel, points, versions, reference=reference)
    print_notices(session)
    show_tuned(tuned, kernel, output)
    by = f"kernelmate bench --sweep {along[0]}={along[1]}..{along[2]}"
    return 0 if write_outputs(tuned, kernel, settings, output, page, dispatch, by) else 1


def _lines_view(verdict: Verdict, file: str, sources: SourceLines) -> RenderableType:
    from rich.console import Group

    from kernelmate.report.console import indented
    from kernelmate.report.counters import line_table, mix_table

    if verdict.lines is None:
        return indented("no counters by source line: the headline size did not run, or not in the emulator")
    shown: list[RenderableType] = [indented(line_table(verdict.lines, file, sources))]
    if verdict.counters is not None and verdict.counters.instruction_mix is not None:
        shown += ["", indented(mix_table(verdict.counters.instruction_mix))]
    return Group(*shown)
