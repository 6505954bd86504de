"""`kernelmate bench`: the verdict of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    compile_options,
    judging_options,
    output_of,
    output_options,
    settings_of,
)


@click.command(
    epilog="""\b
Examples:
  kernelmate bench softmax.cu
  kernelmate bench softmax.cu::softmax_rows --size "rows=37,cols=853" --size "rows=1,cols=1"
  kernelmate bench softmax.cu --reference reference.py:softmax --seed 7 --json"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@judging_options
@compile_options
@output_options()
def bench(file: str, sizes: tuple[Mapping[str, int], ...], reference: str | None, **options: Any) -> int:
    """Judge one kernel by its contract: right at every size, honest, and what it costs.

    Without a GPU it runs in the emulator: counts are exact, times are predicted and say so.
    """
    output = output_of(options)
    settings = settings_of(options)
    from kernelmate.cli.progress import Progress
    from kernelmate.session import Session
    from kernelmate.source import load_kernel

    kernel = load_kernel(file)
    with Progress(output.stderr(), quiet=output.quiet) as progress, Session(settings, progress.stage) as session:
        verdicts = session.bench(kernel, sizes, reference)
    if output.as_json:
        from kernelmate.report.json import verdicts_json

        output.document(verdicts_json(verdicts))
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
    return 1 if any(verdict.accepted is False for verdict in verdicts) else 0
